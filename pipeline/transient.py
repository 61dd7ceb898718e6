"""`is_transient`: which failures may be gone the next time."""

from __future__ import annotations

from rillet.operators.errors import (
    HttpStatusError,
    IdleTimeout,
    ProviderError,
    TransportError,
    TruncatedStream,
    UnclosedToolCall,
)

from .connect import FAILURES, NO_URL

_STATUSES = frozenset((408, 409, 425, 429))
_LASTING_STATUSES = frozenset((501, 505))
_TYPES = frozenset(
    (
        "api_error",
        "internal_server_error",
        "internalserverexception",
        "modelstreamerrorexception",
        "overloaded",
        "overloaded_error",
        "rate_limit_error",
        "rate_limit_exceeded",
        "server_error",
        "serviceunavailableexception",
        "throttlingexception",
        "timeout_error",
    )
)


def is_transient(error: Exception) -> bool:
    """Whether a failure may be gone the next time, so that trying again is worth it.

    It is where the connection broke, or could not be made, or went silent; where the stream ended early; for the
    statuses 408, 409, 425, 429 and those from 500 on but 501 and 505; and where the provider says in the stream that it
    is overloaded, limits the rate or failed inside. What the header `x-should-retry` says counts more. It is not where
    the account's quota is used up, nor for damaged or malformed data, exceeded limits, or `DeadlineExceeded`.
    """
    match error:
        case HttpStatusError():
            said = error.headers.get("x-should-retry")
            return said == "true" if said in ("true", "false") else _is_passing(error.status, error.type, error.code)
        case ProviderError():
            return _is_passing(error.status, error.type, error.code)
        case _:
            return is_broken(error)


def is_broken(error: Exception) -> bool:
    """Whether it was the connection that failed: what came over it, as far as it came, was in order."""
    match error:
        case TransportError():  # others than these stay as they are: no URL to go to, a compression nobody reads
            cause = error.__cause__
            return isinstance(cause, FAILURES) and not isinstance(cause, NO_URL)
        case UnclosedToolCall():
            return False
        case _:
            return isinstance(error, TruncatedStream | IdleTimeout)


def _is_passing(status: int | None, kind: str | None, code: str | int | None) -> bool:
    if "insufficient_quota" in (kind, code):
        return False
    if status is not None:
        return status in _STATUSES or (status >= 500 and status not in _LASTING_STATUSES)
    return any(str(word).lower() in _TYPES for word in (kind, code))
