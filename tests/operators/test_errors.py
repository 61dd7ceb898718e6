from __future__ import annotations

import inspect
import re
from typing import Any

import pytest

from rillet.operators import Message, errors
from rillet.operators.errors import (
    HttpStatusError,
    IdleTimeout,
    InvalidUtf8,
    LimitExceeded,
    MalformedPayload,
    MalformedToolArguments,
    NotAnEventStream,
    ProviderError,
    StreamError,
    TransportError,
    TruncatedStream,
    UnclosedToolCall,
)

SECRET = "hunter2"
SAMPLES: list[StreamError] = [
    InvalidUtf8(1_234),
    LimitExceeded("max_line", 65_536, "a line"),
    MalformedPayload("event 3 is not JSON", raw=SECRET),
    ProviderError("overloaded", type="server_error", code=503, status=503),
    HttpStatusError(429, {"x": SECRET}, SECRET, retry_after=2.5),
    NotAnEventStream("text/html", SECRET),
    TransportError("no connection"),
    IdleTimeout("nothing came for 60 s"),
    TruncatedStream("the stream ended early"),
    UnclosedToolCall(2, "c2", "login", SECRET),
    MalformedToolArguments("invalid JSON at character 3 of 7", SECRET, index=2, id="c2", name="login"),
]
LEAVES = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, StreamError)]
ids = [type(error).__name__ for error in SAMPLES]


@pytest.mark.parametrize("kind", LEAVES)
def test_the_kind_is_the_name_in_snake_case(kind: type[StreamError]) -> None:
    assert kind.kind == re.sub("(?<!^)([A-Z])", r"_\1", kind.__name__).lower()


@pytest.mark.parametrize("error", SAMPLES, ids=ids)
def test_every_error_is_a_value_error_with_the_common_facts(error: StreamError) -> None:
    assert isinstance(error, ValueError)
    assert (error.bytes_seen, error.partial) == (None, ())
    assert error.retry_safe is isinstance(error, HttpStatusError | NotAnEventStream)


@pytest.mark.parametrize("error", SAMPLES, ids=ids)
def test_no_message_quotes_what_was_sent(error: StreamError) -> None:
    assert SECRET not in str(error)
    assert SECRET not in repr(error)


def test_the_common_facts_can_be_given() -> None:
    error = StreamError("x", retry_safe=True, bytes_seen=7, partial=(Message("a"),))
    assert (str(error), error.retry_safe, error.bytes_seen, error.partial) == ("x", True, 7, (Message("a"),))


@pytest.mark.parametrize(
    ("kind", "base"),
    [
        (TruncatedStream, EOFError),
        (UnclosedToolCall, TruncatedStream),
        (UnclosedToolCall, EOFError),
        (IdleTimeout, TimeoutError),
    ],
)
def test_double_bases(kind: type[StreamError], base: type[Exception]) -> None:
    assert issubclass(kind, base)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (SAMPLES[0], "byte 1,234 of the stream is not valid UTF-8"),
        (SAMPLES[1], "a line went past max_line=65,536"),
        (SAMPLES[4], "the server answered with HTTP status 429; it asks to wait 2.5 s"),
        (HttpStatusError(500, {}, ""), "the server answered with HTTP status 500"),
        (SAMPLES[5], "expected text/event-stream, got text/html"),
        (NotAnEventStream("", ""), "expected text/event-stream, got no content type"),
        (SAMPLES[9], "tool call 2 was never closed; 7 characters of arguments had arrived"),
    ],
)
def test_messages_say_what_where_and_how_much(error: StreamError, message: str) -> None:
    assert str(error) == message


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({}, "overloaded"),
        ({"type": "server_error"}, "server_error: overloaded"),
        ({"code": 503}, "code 503: overloaded"),
        ({"type": "server_error", "code": "busy"}, "server_error busy: overloaded"),
    ],
)
def test_a_provider_error_says_what_it_knows(facts: dict[str, Any], said: str) -> None:
    assert str(ProviderError("overloaded", **facts)) == f"the provider reported an error: {said}"


def test_a_provider_error_without_details() -> None:
    assert str(ProviderError("")) == "the provider reported an error: no details"


def test_a_long_provider_message_is_cut_in_the_text_alone() -> None:
    error = ProviderError("x" * 301)
    assert str(error).endswith(": " + "x" * 299 + "…")
    assert error.message == "x" * 301
