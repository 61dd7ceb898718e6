from __future__ import annotations

from typing import Any

import aiohttp
import pytest

from rillet.operators.errors import (
    BufferOverflow,
    DeadlineExceeded,
    HttpStatusError,
    IdleTimeout,
    InvalidUtf8,
    LimitExceeded,
    MalformedPayload,
    MalformedToolArguments,
    NotAnEventStream,
    ProviderError,
    TransportError,
    TruncatedStream,
    UnclosedToolCall,
)
from rillet.pipeline import is_transient


def caused(cause: Exception) -> TransportError:
    error = TransportError("no answer")
    error.__cause__ = cause
    return error


def status(number: int, code: str | None = None, **headers: str) -> HttpStatusError:
    details = None if code is None else ProviderError("x", code=code)
    return HttpStatusError(number, headers, "", details=details)


@pytest.mark.parametrize(
    "error",
    [
        *map(status, (408, 409, 425, 429, 500, 502, 503, 504, 520, 529)),
        status(400, **{"x-should-retry": "true"}),
        ProviderError("x", status=529),
        ProviderError("x", type="overloaded_error"),
        ProviderError("x", code="server_error"),
        ProviderError("x", type="ThrottlingException"),
        caused(ConnectionResetError()),
        caused(aiohttp.ServerDisconnectedError()),
        TruncatedStream("cut"),
        IdleTimeout("silent"),
        IdleTimeout("heartbeats", which="progress"),
    ],
    ids=repr,
)
def test_what_may_be_gone_the_next_time(error: Exception) -> None:
    assert is_transient(error)


@pytest.mark.parametrize(
    "error",
    [
        *map(status, (201, 204, 302, 400, 401, 403, 404, 413, 422, 501, 505)),
        status(429, "insufficient_quota"),
        status(503, **{"x-should-retry": "false"}),
        ProviderError("x"),
        ProviderError("x", type="invalid_request_error"),
        ProviderError("x", type="insufficient_quota", status=429),
        ProviderError("x", type="api_error", status=400),
        caused(ModuleNotFoundError("brotli")),
        caused(UnicodeError("idna")),
        TransportError("a compression nobody reads"),
        UnclosedToolCall(0, "", "f", "{"),
        MalformedToolArguments("x", "{"),
        MalformedPayload("x"),
        LimitExceeded("max_line", 1, "a line"),
        InvalidUtf8(3),
        NotAnEventStream("text/html", ""),
        DeadlineExceeded(1.0),
        BufferOverflow(1, "byte"),
        RuntimeError("mine"),
    ],
    ids=repr,
)
def test_what_stays(error: Any) -> None:
    assert not is_transient(error)
