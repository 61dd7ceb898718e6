"""`FrameSse`: `decode_utf8`, `split_lines` and `group_events` as one stage, for chains that need all three."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, Literal, TypeVar

from .decode_utf8 import MAX_BYTES, DecodeUtf8
from .group_events import MAX_EVENT, GroupEvents
from .split_lines import MAX_LINE, SplitLines
from .stage import BatchStage, Chain

Event = TypeVar("Event")

# So many lines that looking for plain events among them is less work than grouping all of them.
_WORTH_A_LOOK = 10

_find_lone_cr = re.compile(rb"\r(?!\n)").search


class FrameSse(BatchStage[bytes, Event], Generic[Event]):
    """From bytes to server-sent events: the three stages, without what only stages apart need.

    The state is theirs. Mostly, an event is one line of data and a blank one: lines that are nothing else need not be
    grouped.

    Args:
        decode, split, group: The three.
    """

    refuses = (str,)

    def __init__(self, decode: DecodeUtf8, split: SplitLines, group: GroupEvents[Event]) -> None:
        self._make = group.make
        self._decode = decode
        self._split = split
        self._group = group
        self._limit = min(split.limit, group.limit)
        self._chain: Chain[bytes, Event] = Chain(decode, split, group)

    @property
    def room(self) -> float:
        """How many bytes somebody else may read instead, as whole events, before a limit is reached; 0 inside one."""
        decode, split, group = self._decode, self._split, self._group
        if decode.at_start or decode.tail or split.after_cr or split.pending or group.size:
            return 0
        return min(self._limit, decode.limit - decode.bytes_seen)

    def skip(self, size: int) -> None:
        """So many bytes, whole events all of them, were read by somebody else."""
        self._decode.bytes_seen += size

    def take(self, batch: Sequence[bytes]) -> tuple[Sequence[Event], Exception | None]:
        decode, split, group = self._decode, self._split, self._group
        if len(batch) != 1 or decode.tail or decode.at_start:
            return self._chain.take(batch)
        chunk = batch[0]
        size = len(chunk)
        seen = decode.bytes_seen + size
        if seen > decode.limit or split.pending + size > self._limit:
            return self._chain.take(batch)
        try:
            text = chunk.decode()
        except UnicodeDecodeError:
            return self._chain.take(batch)
        decode.bytes_seen = seen
        if "\r" in text and not (split.after_cr or _find_lone_cr(chunk)):
            text = chunk.replace(b"\r", b"").decode()  # a third of what replacing CRLF in text costs
        if split.after_cr or "\r" in text:
            text = split.normalise(text)
        if text.endswith("\n\n") and not (split.pending or group.size):  # a small chunk mostly is one event
            kind, _, data = text[:-2].rpartition("\n")
            if data.startswith("data: ") and (not kind or (kind.startswith("event: ") and "\n" not in kind)):
                return (self._make(kind[7:] or "message", data[6:], group.last_id),), None
            block = text[6:-2]
            if text.startswith("data: ") and block.count("\n") == block.count("\ndata: "):  # each line is data
                return (self._make("message", block.replace("\ndata: ", "\n"), group.last_id),), None
        lines = split.cut(text)
        if len(lines) >= _WORTH_A_LOOK:
            return self._events(lines)
        if len(lines) == 2 and not (lines[1] or group.size) and lines[0].startswith("data: "):  # or the end of one
            return (self._make("message", lines[0][6:], group.last_id),), None
        return group.take(lines) if lines else ((), None)

    def finish(self) -> Iterator[Event]:
        return self._chain.finish()

    def _events(self, lines: Sequence[str]) -> tuple[Sequence[Event], Exception | None]:
        """The events of some lines: those of one line of data, perhaps with a type, without grouping them."""
        group, make, last_id = self._group, self._make, self._group.last_id
        events: list[Event] = []
        at, count = 0, len(lines)
        if group.size:
            at = lines.index("") + 1 if "" in lines else count
            grouped, fault = group.take(lines[:at])
            events.extend(grouped)
            if fault is not None:
                return events, fault
            last_id = group.last_id
        if at < count and lines[at].startswith("event: "):
            for line, data, blank in zip(lines[at::3], lines[at + 1 :: 3], lines[at + 2 :: 3], strict=False):
                if blank or not data.startswith("data: ") or not line.startswith("event: "):
                    break
                events.append(make(line[7:] or "message", data[6:], last_id))
                at += 3
        else:
            for data, blank in zip(lines[at::2], lines[at + 1 :: 2], strict=False):
                if blank or not data.startswith("data: "):
                    break
                events.append(make("message", data[6:], last_id))
                at += 2
        if at == count:
            return events, None
        grouped, fault = group.take(lines[at:])
        events.extend(grouped)
        return events, fault


def frame_sse(
    make: Callable[[str, str, str], Event],
    *,
    max_bytes: int | None = MAX_BYTES,
    max_line: int | None = MAX_LINE,
    max_event: int | None = MAX_EVENT,
    eof: Literal["discard", "dispatch"] = "discard",
    stray: Literal["ignore", "dispatch"] = "ignore",
    half: Literal["discard", "fail"] = "discard",
) -> FrameSse[Event]:
    """The stage from bytes to events.

    Args:
        make: Makes an event of its type, its data and the last id, as `make_event` does.
        max_bytes, max_line, max_event: See the three operators.
        eof: What becomes of an event that no blank line ended, see `group_events`.
        stray: What becomes of lines that are no fields of the standard, see `group_events`; with "dispatch" the last
            line counts even where nothing ended it: it may be the error of a server that just stopped.
        half: What becomes of an event that the end cut in two, see `group_events`.
    """
    takes_tail = eof == "dispatch" or stray == "dispatch" or half == "fail"
    return FrameSse(
        DecodeUtf8(max_bytes=max_bytes),
        SplitLines(max_line=max_line, eof="dispatch" if takes_tail else "discard"),
        GroupEvents(make, max_event=max_event, eof=eof, stray=stray, half=half),
    )
