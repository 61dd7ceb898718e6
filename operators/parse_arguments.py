"""`parse_arguments`: a tool call's arguments, strictly."""

from __future__ import annotations

import json
import re
from math import isinf
from typing import cast

import orjson

from .deltas import Json
from .errors import MalformedToolArguments

# Looking for many digits in a row by a pattern takes ten times as long.
_DIGITS_ALONE = bytes(ord("0") if chr(byte).isdecimal() else ord(" ") for byte in range(256))
_BEYOND_64_BITS = b"0" * 19

_token = re.compile(r'"(?:[^"\\]|\\.)*"|[0-9]{19,}', re.DOTALL)


def parse_arguments(text: str) -> dict[str, Json]:
    """Parse the arguments of a tool call: one strict JSON object, or nothing.

    Args:
        text: The whole text of the arguments. Blank text and `null` mean no arguments, as providers send for calls
            without any. One JSON string that holds an object is unwrapped, once.

    Returns:
        The arguments. Integers are exact at any size; of a repeated key the last value counts.

    Raises:
        MalformedToolArguments: The text is anything else, cut short, nested about 1,000 deep, or holds an integer of
            over 4,300 digits.

    Source: RFC 8259. `NaN`, infinities and lone surrogates are refused.
    """
    if not text.strip(" \t\r\n"):
        return {}
    value = _loads(text, text)
    if isinstance(value, str):
        value = _loads(value, text)
        if value is None:
            raise MalformedToolArguments("a string that holds null", text)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise MalformedToolArguments(f"a JSON {_NAMES[type(value)]}", text)
    return value


_NAMES = {list: "array", str: "string", int: "number", float: "number", bool: "literal"}


def _loads(text: str, whole: str) -> Json:
    try:
        return strict_json(text)
    except json.JSONDecodeError as error:
        raise MalformedToolArguments(f"invalid JSON at character {error.pos:,} of {len(text):,}", whole) from None
    except (ValueError, RecursionError):
        raise MalformedToolArguments("a number or a nesting too large", whole) from None


def strict_json(text: str) -> Json:
    """A strict JSON document, with integers exact at any size.

    Raises:
        json.JSONDecodeError: It is none.
        ValueError: A number is too large.
        RecursionError: It is nested too deep.
    """
    digits = text.encode(errors="surrogatepass").translate(_DIGITS_ALONE)
    if _BEYOND_64_BITS not in digits:
        return cast("Json", orjson.loads(text))
    # orjson makes floats of larger integers: they are read the slower way, and that all else is strict, orjson says.
    value: Json = json.loads(text, parse_float=_finite)
    orjson.loads(_token.sub(lambda token: token[0] if token[0][0] == '"' else "1", text))
    return value


def _finite(digits: str) -> float:
    number = float(digits)
    if isinf(number):
        raise ValueError("a number beyond all floats")
    return number
