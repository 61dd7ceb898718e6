"""Every way a stream can fail because of what a server sent: one base, `StreamError`, and its leaves.

Messages say what, where and how much. They never quote the model's text: answers are private.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

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
        self.type = type
        self.code = code
        self.message = message
        self.status = status
        super().__init__(f"the provider reported an error: {_said(self)}")


def _said(error: ProviderError) -> str:
    label = error.type if error.code is None else f"{error.type or 'code'} {error.code}"
    return ": ".join(_shortened(part) for part in (label, error.message) if part) or "no details"


def _shortened(text: str) -> str:
    return text if len(text) <= 300 else text[:299] + "…"


class HttpStatusError(StreamError):
    """The answer's status was not 200.

    Attributes:
        status: The HTTP status.
        headers: The answer's headers.
        body: The start of the body.
        retry_after: How many seconds the server asked to wait, None where it did not ask.
        type, code, message: What the body says of the error where it is JSON, as in `ProviderError`.
    """

    kind = "http_status_error"

    def __init__(
        self,
        status: int,
        headers: Mapping[str, str],
        body: str,
        *,
        retry_after: float | None = None,
        details: ProviderError | None = None,
    ) -> None:
        said = "" if details is None else f": {_said(details)}"
        wait = "" if retry_after is None else f"; it asks to wait {retry_after:g} s"
        super().__init__(f"the server answered with HTTP status {status}{said}{wait}", retry_safe=True)
        self.status = status
        self.headers = headers
        self.body = body
        self.retry_after = retry_after
        self.type = details.type if details else None
        self.code = details.code if details else None
        self.message = details.message if details else ""


class NotAnEventStream(StreamError):
    """The answer was no event stream.

    Attributes:
        content_type: The content type that came, "" where there was none.
        status: The HTTP status, None where the bytes did not come over HTTP.
        body: The start of what came instead: 64 KiB of it at most.
        snippet: The first 200 characters of that, on one line.
    """

    kind = "not_an_event_stream"

    def __init__(
        self, content_type: str, body: str, *, status: int | None = None, expected: str = "text/event-stream"
    ) -> None:
        super().__init__(f"expected {expected}, got {content_type or 'no content type'}", retry_safe=True)
        self.content_type = content_type
        self.status = status
        self.body = body

    @property
    def snippet(self) -> str:
        return " ".join(self.body[:1000].split())[:200]


class TransportError(StreamError):
    """The connection failed before there was an answer, or what came can't be decompressed. The cause is chained."""

    kind = "transport_error"


class ConnectTimeout(TransportError, TimeoutError):
    """No connection could be made in time."""

    kind = "connect_timeout"


class TruncatedStream(StreamError, EOFError):
    """The stream ended, or broke, before its provider's contract was met."""

    kind = "truncated_stream"


class IdleTimeout(StreamError, TimeoutError):
    """The connection stayed open, but nothing came for too long.

    Attributes:
        which: What ran out: "liveness" (no byte came) or "progress" (nothing but heartbeats came).
        seconds: How long was waited, None where that is not known.
    """

    kind = "idle_timeout"

    def __init__(
        self,
        message: str,
        *,
        which: Literal["liveness", "progress"] = "liveness",
        seconds: float | None = None,
        bytes_seen: int | None = None,
    ) -> None:
        super().__init__(message, bytes_seen=bytes_seen, retry_safe=bytes_seen == 0)
        self.which = which
        self.seconds = seconds


class DeadlineExceeded(StreamError, TimeoutError):
    """The whole answer took too long, however steadily it came. `seconds` is the time it was given."""

    kind = "deadline_exceeded"

    def __init__(self, seconds: float, *, bytes_seen: int | None = None) -> None:
        super().__init__(
            f"the answer was not over within total={seconds:g} s", bytes_seen=bytes_seen, retry_safe=bytes_seen == 0
        )
        self.seconds = seconds


class BufferOverflow(StreamError):
    """A consumer fell too far behind a source that can't wait, or must not, see `share`. `limit` counts `unit`s."""

    kind = "buffer_overflow"

    def __init__(self, limit: int, unit: Literal["byte", "item"]) -> None:
        super().__init__(f"more than {limit:,} {unit}s waited for a consumer that fell behind")
        self.limit = limit
        self.unit = unit


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
