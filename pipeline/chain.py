"""The standard chain: all the stages, composed for a protocol, with what arrived kept for the error to carry."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from reactivex import Observable

from rillet.operators import Chain, Delta, Done, Message, WireEvent, WireProtocol, lift
from rillet.operators.assemble_tools import MAX_ARGS, AssembleTools
from rillet.operators.decode_deltas import DecodeDeltas
from rillet.operators.decode_utf8 import MAX_BYTES
from rillet.operators.deltas import only_passing
from rillet.operators.errors import StreamError
from rillet.operators.events import make_event
from rillet.operators.frame_json_lines import FrameJsonLines
from rillet.operators.frame_sse import FrameSse, frame_sse
from rillet.operators.group_events import MAX_EVENT
from rillet.operators.require_done import RequireDone
from rillet.operators.skim_sse import SkimSse
from rillet.operators.split_frames import SplitFrames
from rillet.operators.split_lines import MAX_LINE
from rillet.operators.value import value

from .answer import Answer
from .protocols import find_protocol


@value
class Limits:
    """How much of each thing is taken; None lifts a limit.

    Attributes:
        max_bytes: The whole stream, in bytes; 256 MiB.
        max_line: A line, in characters; 4 Mi.
        max_event: An event with its comments, in characters, or a binary frame, in bytes; 4 Mi.
        max_args: The arguments of a tool call, in characters; 16 Mi.
    """

    max_bytes: int | None = MAX_BYTES
    max_line: int | None = MAX_LINE
    max_event: int | None = MAX_EVENT
    max_args: int | None = MAX_ARGS


DEFAULT_LIMITS = Limits()


class DeltaChain(Chain[bytes, Delta]):
    """From bytes to verified deltas, for one stream; what has arrived is kept, for the error to carry.

    Args:
        protocol: The dialect, by name or as such.
        limits: How much is taken.
        eof: What becomes of an event that no blank line ended, see `group_events`.
        extras: Give also what only this provider sends, see `decode_deltas`.
    """

    def __init__(
        self,
        protocol: str | WireProtocol,
        *,
        limits: Limits = DEFAULT_LIMITS,
        eof: Literal["discard", "dispatch"] = "discard",
        extras: bool = False,
    ) -> None:
        wire = find_protocol(protocol)
        self._answer = Answer()
        self._decode = DecodeDeltas(wire, extras=extras)
        self._bytes_seen = 0
        self._read = _reading(wire, self._decode, limits, eof)
        self._assemble = AssembleTools(max_args=limits.max_args)
        self._require = RequireDone(self._assemble.open)
        super().__init__(self._read, self._assemble, self._require)

    @property
    def events_seen(self) -> int:
        """How many events have been read."""
        return self._decode.events_seen

    @property
    def messages(self) -> tuple[Message, ...]:
        """What has arrived, one `Message` a choice."""
        return self._answer.messages

    def message(self, choice: int = 0) -> Message:
        """What has arrived of one choice."""
        return self._answer.message(choice)

    def take(self, batch: Sequence[bytes]) -> tuple[Sequence[Delta], Exception | None]:
        for chunk in batch:
            self._bytes_seen += len(chunk)
        deltas, fault = self._read.take(batch)
        if not only_passing(deltas):
            deltas, malformed = self._assemble.take(deltas)
            fault = malformed or fault
            if deltas and deltas[-1].__class__ is Done:  # nothing is decoded after it
                done, unclosed = self._require.take(deltas[-1:])
                deltas = deltas if done else deltas[:-1]
                self.closed = self._require.closed
                fault = None if self.closed else unclosed or fault
        self._answer.extend(deltas)
        return (deltas, None) if fault is None else (deltas, self._told(fault))

    def finish(self) -> Iterator[Delta]:
        return self._kept(super().finish())

    def fail(self, error: Exception) -> Iterator[Delta]:
        return self._kept(super().fail(error))

    def _kept(self, flow: Iterator[Delta]) -> Iterator[Delta]:
        try:
            for delta in flow:
                self._answer.add(delta)
                yield delta
        except StreamError as error:
            self._told(error)
            raise

    def _told(self, error: Exception) -> Exception:
        """The error, with all that can be told of what had arrived."""
        if isinstance(error, StreamError):
            error.partial = self.messages
            error.retry_safe = self._answer.is_empty
            error.bytes_seen = self._bytes_seen
        return error


def _reading(
    wire: WireProtocol, decode: DecodeDeltas, limits: Limits, eof: Literal["discard", "dispatch"]
) -> Chain[bytes, Delta]:
    """The stage from bytes to deltas."""
    if wire.framing == "eventstream":
        return Chain(SplitFrames(max_frame=limits.max_event, max_bytes=limits.max_bytes), decode)
    if wire.framing == "ndjson":
        return Chain(FrameJsonLines(max_bytes=limits.max_bytes, max_line=limits.max_line), decode)
    events: FrameSse[WireEvent] = frame_sse(
        make_event,
        max_bytes=limits.max_bytes,
        max_line=limits.max_line,
        max_event=limits.max_event,
        eof="dispatch" if wire.ends_with_stream else eof,
        stray="dispatch",
        half="fail",
    )
    return Chain(events, decode) if decode.template is None else SkimSse(events, decode, decode.template)


def deltas(
    source: Observable[bytes],
    protocol: str | WireProtocol,
    *,
    limits: Limits = DEFAULT_LIMITS,
    eof: Literal["discard", "dispatch"] = "discard",
    extras: bool = False,
) -> Observable[Delta]:
    """The standard chain over a source of bytes.

    .. marble::

        ---bytes---bytes-----------------bytes------------|
        [             deltas("openai-chat")               ]
        ---Text----Text-Start-Delta------End-ToolCall-Done|

    Args:
        source: The bytes of the stream, in any pieces.
        protocol: The dialect, by its name in `PROTOCOLS` ("openai-chat", "anthropic", …), or one of your own.
        limits: How much of each thing is taken.
        eof: What becomes of an event that no blank line ended: "discard" (the default), or "dispatch", which takes it
            where its data is whole JSON or [DONE]. Dialects after whose terminal nothing follows (anthropic, gemini,
            openai-responses) always take it.
        extras: Emit also what only this provider sends, as `ProviderEvent`; False by default.

    Returns:
        The deltas, cold: each subscription has its own state. It completes right after `Done` and fails with a
        `StreamError` that carries what had arrived as `partial`.

    Raises:
        ValueError: There is no protocol of that name.
    """
    wire = find_protocol(protocol)
    return source.pipe(lift(lambda: DeltaChain(wire, limits=limits, eof=eof, extras=extras)))
