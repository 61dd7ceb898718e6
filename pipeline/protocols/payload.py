"""Reading payloads: what every dialect that speaks JSON needs."""

from __future__ import annotations

import json
from typing import Any, TypeGuard, cast

import orjson

from rillet.operators.errors import MalformedPayload, ProviderError

DONE = "[DONE]"


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
    """The same object, with integers exact at any size; slower.

    Raises:
        MalformedPayload: An integer has over 4,300 digits, or the nesting is too deep.
    """
    try:
        payload: dict[str, Any] = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise MalformedPayload("has a number or a nesting too large") from error
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
    return value if _is_list(value) else [value]


def _is_list(value: object) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


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


def count_in(value: object) -> int | None:
    """A number of tokens, None where there is none."""
    return value if type(value) is int else None


def provider_error(error: object, context: dict[str, Any]) -> ProviderError:
    """The `ProviderError` for what a provider sent as its error: an object, or its message alone.

    Args:
        error: What stands under "error", or the whole payload.
        context: The payload around it, for a status that stands there.
    """
    details = cast("dict[str, Any]", error) if isinstance(error, dict) else {"message": error}
    message = details.get("message") or details.get("detail") or ""
    code = details.get("code")
    kind = details.get("type") or details.get("status")
    statuses = (details.get("status_code"), details.get("status"), context.get("status_code"), code)
    return ProviderError(
        message if isinstance(message, str) else str(message),
        type=kind if isinstance(kind, str) else None,
        code=code if isinstance(code, str | int) else None,
        status=next((status for status in statuses if type(status) is int and 100 <= status <= 599), None),
    )
