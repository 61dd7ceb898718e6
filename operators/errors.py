"""Every way a stream can fail because of what a server sent: one base, `StreamError`, and its leaves.

Messages say what, where and how much. They never quote the model's text: answers are private.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from .deltas import Message


class StreamError(ValueError):
    """The base of all of them.

    Attributes:
        kind: The leaf's name in snake case, for logs and metrics.
        retry_safe: Nothing had been handed on yet, so that trying again repeats nothing.
        bytes_seen: How many bytes had arrived, None where that is not known.
        partial: What had arrived, one `Message` a choice; the facades set it.
    """

    kind: ClassVar[str] = "stream_error"

    def __init__(
        self,
        message: str,
        *,
        retry_safe: bool = False,
        bytes_seen: int | None = None,
        partial: tuple[Message, ...] = (),
    ) -> None:
        super().__init__(message)
        self.retry_safe = retry_safe
        self.bytes_seen = bytes_seen
        self.partial = partial

    def __reduce__(self) -> tuple[object, ...]:
        return _restored, (type(self), self.args, self.__dict__)


def _restored(kind: type[StreamError], args: tuple[object, ...], state: dict[str, object]) -> StreamError:
    """A pickled error, as it was: what its constructor took is in its attributes."""
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


class InvalidUtf8(StreamError):
    """A byte that is not UTF-8. `offset` counts bytes from the start of the stream."""

    kind = "invalid_utf8"

    def __init__(self, offset: int) -> None:
        super().__init__(f"byte {offset:,} of the stream is not valid UTF-8")
        self.offset = offset


class LimitExceeded(StreamError):
    """Something grew past its limit. `which` names the limit, `limit` is its value."""

    kind = "limit_exceeded"

    def __init__(self, which: str, limit: int, what: str) -> None:
        super().__init__(f"{what} went past {which}={limit:,}")
        self.which = which
        self.limit = limit


class MalformedPayload(StreamError):
    """An event that is not what the protocol says. `raw` is its data: the message does not quote it."""

    kind = "malformed_payload"

    def __init__(self, message: str, *, raw: str = "") -> None:
        super().__init__(message)
        self.raw = raw


class ProviderError(StreamError):
    """The provider reported an error inside the stream.

    Attributes:
        type: The provider's name for the kind of error, None where it gave none.
        code: Its code, None where it gave none.
        message: Its message, "" where it gave none.
        status: The HTTP status it names, None where it names none.
    """

    kind = "provider_error"

    def __init__(
        self,
        message: str,
        *,
        type: str | None = None,
        code: str | int | None = None,
        status: int | None = None,
    ) -> None:
        label = type if code is None else f"{type or 'code'} {code}"
        said = ": ".join(_shortened(part) for part in (label, message) if part) or "no details"
        super().__init__(f"the provider reported an error: {said}")
        self.type = type
        self.code = code
        self.message = message
        self.status = status


def _shortened(text: str) -> str:
    return text if len(text) <= 300 else text[:299] + "…"


class HttpStatusError(StreamError):
    """The answer's status was not 200.

    Attributes:
        status: The HTTP status.
        headers: The answer's headers.
        body: The start of the body.
        retry_after: How many seconds the server asked to wait, None where it did not ask.
    """

    kind = "http_status_error"

    def __init__(self, status: int, headers: Mapping[str, str], body: str, *, retry_after: float | None = None) -> None:
        wait = "" if retry_after is None else f"; it asks to wait {retry_after:g} s"
        super().__init__(f"the server answered with HTTP status {status}{wait}", retry_safe=True)
        self.status = status
        self.headers = headers
        self.body = body
        self.retry_after = retry_after


class NotAnEventStream(StreamError):
    """The answer was no event stream.

    Attributes:
        content_type: The content type that came, "" where there was none.
        status: The HTTP status, None where the bytes did not come over HTTP.
        body: The start of what came instead.
    """

    kind = "not_an_event_stream"

    def __init__(
        self, content_type: str, body: str, *, status: int | None = None, expected: str = "text/event-stream"
    ) -> None:
        super().__init__(f"expected {expected}, got {content_type or 'no content type'}", retry_safe=True)
        self.content_type = content_type
        self.status = status
        self.body = body


class TransportError(StreamError):
    """No answer could be had: the connection failed before there was one. The cause is chained."""

    kind = "transport_error"


class TruncatedStream(StreamError, EOFError):
    """The stream ended, or broke, before its provider's contract was met."""

    kind = "truncated_stream"


class IdleTimeout(StreamError, TimeoutError):
    """The connection stayed open, but nothing came for too long."""

    kind = "idle_timeout"


class UnclosedToolCall(TruncatedStream):
    """The answer was declared whole while a tool call was open.

    Attributes:
        index, id, name: The first such call.
        args_text: What had arrived of its arguments.
    """

    kind = "unclosed_tool_call"

    def __init__(self, index: int, id: str, name: str, args_text: str) -> None:
        super().__init__(f"tool call {index} was never closed; {len(args_text):,} characters of arguments had arrived")
        self.index = index
        self.id = id
        self.name = name
        self.args_text = args_text


class MalformedToolArguments(StreamError):
    """A tool call's arguments are not one strict JSON object.

    Attributes:
        reason: What is wrong, and where.
        index, id, name: The first such call; 0 and "" where the text stood alone.
        args_text: The arguments as they came.
    """

    kind = "malformed_tool_arguments"

    def __init__(self, reason: str, args_text: str, *, index: int = 0, id: str = "", name: str = "") -> None:
        super().__init__(f"the arguments of tool call {index} are not one JSON object: {reason}")
        self.reason = reason
        self.index = index
        self.id = id
        self.name = name
        self.args_text = args_text
