"""The same stages without Rx: `StreamAssembler`, `SSEParser`, `parse_sse`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

from rillet.operators import Delta, Message, ToolCall, WireProtocol
from rillet.operators.decode_utf8 import MAX_BYTES
from rillet.operators.frame_sse import frame_sse
from rillet.operators.group_events import MAX_EVENT
from rillet.operators.split_lines import MAX_LINE
from rillet.operators.stage import collected

from .chain import DEFAULT_LIMITS, DeltaChain, Limits


class StreamAssembler:
    """Chunks in, one verified answer out.

    After a fault it stays failed: it raises the same error again, and never a result.

    Args:
        protocol: The dialect, by its name in `PROTOCOLS` ("plain" by default), or one of your own.
        limits: How much of each thing is taken.
        eof: What becomes of an event that no blank line ended: "discard" (the default), or "dispatch", which takes it
            where its data is whole JSON or [DONE]. Dialects after whose terminal nothing follows (anthropic, gemini,
            openai-responses) always take it.
        extras: Give also what only this provider sends, as `ProviderEvent`; False by default.

    Raises:
        ValueError: There is no protocol of that name.
    """

    def __init__(
        self,
        protocol: str | WireProtocol = "plain",
        *,
        limits: Limits = DEFAULT_LIMITS,
        eof: Literal["discard", "dispatch"] = "discard",
        extras: bool = False,
    ) -> None:
        self._chain = DeltaChain(protocol, limits=limits, eof=eof, extras=extras)
        self._error: Exception | None = None
        self._ended = False

    def feed(self, chunk: bytes) -> list[Delta]:
        """Take the next bytes, cut anywhere.

        Returns:
            The deltas that they complete; none once the answer was whole.

        Raises:
            StreamError: The stream is at fault. What came before is in `messages` and in the error's `partial`.
            RuntimeError: `result` has been called: the stream is over.
        """
        if self._error is not None:
            raise self._error
        if self._chain.closed:
            return []
        if self._ended:
            raise RuntimeError("feed after result: the stream was declared over")
        try:
            deltas, self._error = self._chain.take((chunk,))
        except Exception as error:  # whatever it is, what follows would not be the same stream
            self._error = error
            raise
        if self._error is not None:
            raise self._error
        return deltas if isinstance(deltas, list) else list(deltas)

    def result(self) -> tuple[str, list[ToolCall]]:
        """The stream is over: its text and its finished tool calls, of choice 0.

        Raises:
            StreamError: The answer did not arrive whole.
        """
        if not self._ended and self._error is None:
            self._ended = True
            _, self._error = collected(self._chain.finish)
        if self._error is not None:
            raise self._error
        message = self.message
        return message.text, list(message.tool_calls)

    @property
    def message(self) -> Message:
        """What has arrived of choice 0, finished or not."""
        return self._chain.message()

    @property
    def messages(self) -> tuple[Message, ...]:
        """What has arrived, one `Message` a choice that spoke."""
        return self._chain.messages


class SSEParser:
    """Chunks in, events out, as (event type, data).

    Args:
        max_line: The longest line taken, in characters; 4 Mi by default, None for no limit.
        max_event: The longest event taken, comments counted, in characters; 4 Mi by default, None for no limit.
        max_total: The longest stream taken, in bytes; 256 MiB by default, None for no limit.

    Attributes:
        latest: The pairs that the last chunk completed; also where it then raised.
    """

    def __init__(
        self,
        *,
        max_line: int | None = MAX_LINE,
        max_event: int | None = MAX_EVENT,
        max_total: int | None = MAX_BYTES,
    ) -> None:
        self._framing = frame_sse(_pair, max_bytes=max_total, max_line=max_line, max_event=max_event)
        self._error: Exception | None = None
        self.latest: list[tuple[str, str]] = []

    def feed(self, chunk: bytes) -> list[tuple[str, str]]:
        """Take the next bytes, cut anywhere.

        Returns:
            The (event type, data) pairs that they complete.

        Raises:
            StreamError: The stream is at fault; every later call raises the same. What this chunk had completed before
                is in `latest`.
        """
        self.latest = []
        if self._error is not None:
            raise self._error
        pairs, self._error = self._framing.take((chunk,))
        self.latest = list(pairs)
        if self._error is not None:
            raise self._error
        return self.latest


def parse_sse(
    chunks: Iterable[bytes],
    *,
    max_line: int | None = 65_536,
    max_event: int | None = 262_144,
    max_total: int | None = 8_388_608,
) -> Iterator[tuple[str, str]]:
    """Parse an event stream lazily, as (event type, data).

    Args:
        chunks: The bytes, in any pieces.
        max_line: The longest line taken, in characters; 65,536 by default, None for no limit.
        max_event: The longest event taken, comments counted, in characters; 262,144 by default, None for no limit.
        max_total: The longest stream taken, in bytes; 8 MiB by default, None for no limit.

    Yields:
        Each event at the blank line that ends it; an unfinished one at the end is discarded.

    Raises:
        StreamError: The stream is at fault; the events before it have been yielded.

    Source: HTML Standard §9.2.6.
    """
    framing = frame_sse(_pair, max_bytes=max_total, max_line=max_line, max_event=max_event)
    yield from framing.feed(chunks)
    yield from framing.finish()


def _pair(event: str, data: str, id: str) -> tuple[str, str]:
    """What an event is here; nobody asks for its id."""
    del id
    return event, data
