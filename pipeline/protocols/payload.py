"""Reading payloads: what every dialect that speaks JSON needs."""

from __future__ import annotations

import json
from collections.abc import Sized
from typing import Any, TypeGuard, cast

import orjson

from rillet.operators import FinishReason, Usage
from rillet.operators.errors import MalformedPayload, ProviderError
from rillet.operators.parse_arguments import strict_json
from rillet.operators.value import maker

DONE = "[DONE]"
MAX_CHOICES = 1_024

_make_usage = maker(Usage)

_REASONS: dict[FinishReason, str] = {
    "stop": "stop end_turn eos stop_sequence complete completed",
    "length": "length max_tokens max_output_tokens incomplete model_context_window_exceeded budget_exceeded",
    "tool_calls": "tool_calls tool_call tool_use function_call requires_action",
    "content_filter": "content_filter content_filtered safety recitation blocklist prohibited_content spii "
    "image_safety guardrail_intervened",
    "refusal": "refusal",
}
_REASON_OF: dict[str, FinishReason] = {word: reason for reason, words in _REASONS.items() for word in words.split()}


def finish_reason(raw: str) -> FinishReason:
    """A provider's word for why a choice ended, in the vocabulary of `Finish`."""
    return _REASON_OF.get(raw.lower(), "other")


def load_object(data: str) -> dict[str, Any]:
    """The JSON object in an event's data; its values are checked where they are used.

    Raises:
        MalformedPayload: It is not JSON, or not an object.
    """
    try:
        payload: object = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise MalformedPayload("is not JSON") from error
    if not isinstance(payload, dict):
        raise MalformedPayload("is JSON, but not an object")
    return cast("dict[str, Any]", payload)


def load_exactly(data: str) -> dict[str, Any]:
    """The same object, with integers exact at any size.

    Raises:
        MalformedPayload: It is not JSON, or not an object; an integer has over 4,300 digits; the nesting is too deep.
    """
    try:
        payload = strict_json(data)
    except json.JSONDecodeError as error:
        raise MalformedPayload("is not JSON") from error
    except (ValueError, RecursionError) as error:
        raise MalformedPayload("has a number or a nesting too large") from error
    if not isinstance(payload, dict):
        raise MalformedPayload("is JSON, but not an object")
    return payload


def object_in(value: object, what: str) -> dict[str, Any]:
    """An object that may be missing or null.

    Raises:
        MalformedPayload: It is there and no object.
    """
    if value is None:
        return {}
    if isinstance(value, dict):
        return cast("dict[str, Any]", value)
    raise MalformedPayload(f"has a {what} that is no object")


def list_in(value: object) -> list[Any]:
    """A list that may be missing, null, or its only item."""
    if value is None:
        return []
    return value if is_list(value) else [value]


def is_list(value: object) -> TypeGuard[list[Any]]:
    """Whether it is a list; of what, is not known."""
    return isinstance(value, list)


def required_text(payload: dict[str, Any], key: str) -> str:
    """A string that must be there.

    Raises:
        MalformedPayload: It is missing, null, or no string.
    """
    value = payload.get(key)
    if type(value) is str:
        return value
    raise MalformedPayload(f"has no string as its {key}")


def required_index(payload: dict[str, Any], key: str) -> int:
    """A non-negative integer that must be there.

    Raises:
        MalformedPayload: It is missing, null, or anything else.
    """
    value = payload.get(key)
    if type(value) is int and value >= 0:
        return value
    raise MalformedPayload(f"has no number as its {key}")


def compact_json(value: object) -> str:
    """A value as JSON text: for arguments that come as an object."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def text_in(value: object, what: str) -> str:
    """A string that may be missing or null.

    Raises:
        MalformedPayload: It is there and no string.
    """
    if value is None:
        return ""
    if type(value) is str:
        return value
    raise MalformedPayload(f"has a {what} that is no string")


def check_choice(number: object, known: Sized) -> None:
    """Check the index of an alternative that has not been heard of, beside those that have.

    Raises:
        MalformedPayload: It is no integer, or there are too many.
    """
    if type(number) is not int:
        raise MalformedPayload("has a choice whose index is no integer")
    if len(known) >= MAX_CHOICES:
        raise MalformedPayload(f"has more than {MAX_CHOICES:,} choices")


def count_in(value: object) -> int | None:
    """A number of tokens, None where there is none."""
    return value if type(value) is int else None


def usage_of(figures: dict[str, Any], sent: str, got: str, total: str) -> Usage:
    """The `Usage` in a provider's figures, from the keys that it calls its three numbers by."""
    a, b, c = figures.get(sent), figures.get(got), figures.get(total)
    # As `count_in` does; some providers send their figures with every piece of text.
    return _make_usage(
        a if type(a) is int else None, b if type(b) is int else None, c if type(c) is int else None, figures
    )


def provider_error(error: object, context: dict[str, Any]) -> ProviderError:
    """The `ProviderError` for what a provider sent as its error: an object, or its message alone.

    Args:
        error: What stands under "error", or the whole payload.
        context: The payload around it, for a status that stands there.
    """
    details = cast("dict[str, Any]", error) if isinstance(error, dict) else {"message": error}
    message = details.get("message") or details.get("detail") or details.get("Message") or ""
    code = details.get("code")
    kind = details.get("type") or details.get("status") or details.get("__type")
    kind = None if kind == "error" else kind  # that of the event, not of the error
    statuses = (details.get("status_code"), details.get("status"), context.get("status_code"), code)
    return ProviderError(
        _words(message),
        type=kind if isinstance(kind, str) else None,
        code=code if isinstance(code, str | int) else None,
        status=next((status for status in statuses if type(status) is int and 100 <= status <= 599), None),
    )


def _words(message: object) -> str:
    """An error's message as text: FastAPI gives a list of objects, some servers one object."""
    if is_list(message):
        return "; ".join(map(_words, message))
    if not isinstance(message, dict):
        return str(message)
    parts = cast("dict[str, object]", message)
    inner = parts.get("msg") or parts.get("message") or parts.get("detail")
    if not inner:
        return str(parts)
    place = parts.get("loc")
    return ".".join(map(str, place)) + f": {_words(inner)}" if is_list(place) else _words(inner)
