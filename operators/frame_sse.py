"""`FrameSse`: `decode_utf8`, `split_lines` and `group_events` as one stage, for chains that need all three."""

from __future__ import annotations

from codecs import utf_8_decode
from collections.abc import Iterator, Sequence
from typing import Literal

from .decode_utf8 import MAX_BYTES, DecodeUtf8
from .events import DataEvent, WireEvent
from .group_events import MAX_EVENT, GroupEvents
from .split_lines import MAX_LINE, SplitLines
from .stage import BatchStage, Chain


class FrameSse(BatchStage[bytes, WireEvent]):
    """From bytes to server-sent events: the three stages, without what only stages apart need.

    The state is theirs. Mostly, an event is one line of data and a blank one: lines that are nothing else need not be
    grouped. Events are `DataEvent`s.

    Args:
        max_bytes, max_line, max_event: See the three operators.
        eof: What becomes of an event that no blank line ended, see `group_events`.
        stray: What becomes of lines that are no fields of the standard, see `group_events`; with "dispatch" the last
            line counts even where nothing ended it: it may be the error of a server that just stopped.
        half: What becomes of an event that the end cut in two, see `group_events`.
    """

    def __init__(
        self,
        *,
        max_bytes: int | None = MAX_BYTES,
        max_line: int | None = MAX_LINE,
        max_event: int | None = MAX_EVENT,
        eof: Literal["discard", "dispatch"] = "discard",
        stray: Literal["ignore", "dispatch"] = "ignore",
        half: Literal["discard", "fail"] = "discard",
    ) -> None:
        takes_tail = eof == "dispatch" or stray == "dispatch" or half == "fail"
        self._decode = DecodeUtf8(max_bytes=max_bytes)
        self._split = SplitLines(max_line=max_line, eof="dispatch" if takes_tail else "discard")
        self._group = GroupEvents(DataEvent, max_event=max_event, eof=eof, stray=stray, half=half)
        self._limit = min(self._split.limit, self._group.limit)
        self._chain: Chain[bytes, WireEvent] = Chain(self._decode, self._split, self._group)

    @property
    def bytes_seen(self) -> int:
        """How many bytes were fed."""
        return self._decode.bytes_seen

    def take(self, batch: Sequence[bytes]) -> tuple[Sequence[WireEvent], Exception | None]:
        decode, split, group = self._decode, self._split, self._group
        if len(batch) != 1 or decode.tail or decode.at_start:
            return self._chain.take(batch)
        chunk = batch[0]
        try:
            text, used = utf_8_decode(chunk, "strict", False)
        except UnicodeDecodeError:
            return self._chain.take(batch)
        seen = decode.bytes_seen + used
        if used < len(chunk) or seen > decode.limit or split.pending + len(text) > self._limit:
            return self._chain.take(batch)
        decode.bytes_seen = seen
        lines = split.cut(split.normalise(text) if split.after_cr or "\r" in text else text)
        if not lines:
            return (), None
        if group.size:
            return group.take(lines)
        # Mostly, an event is a line of data and a blank one, perhaps with its type, and a small chunk ends one event.
        count = len(lines)
        if count == 2 and not lines[1] and lines[0].startswith("data: "):
            return (DataEvent("message", lines[0][6:]),), None
        if count == 3 and not lines[2] and lines[1].startswith("data: ") and lines[0].startswith("event: "):
            return (DataEvent(lines[0][7:] or "message", lines[1][6:]),), None
        if not any(lines[1::2]):
            events = [DataEvent("message", line[6:]) for line in lines[::2] if line.startswith("data: ")]
            if 2 * len(events) == count:
                return events, None
        return group.take(lines)

    def finish(self) -> Iterator[WireEvent]:
        return self._chain.finish()
