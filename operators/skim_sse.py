"""`SkimSse`: `FrameSse` and `decode_deltas` as one stage, which reads the commonest events from their bytes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from .decode_deltas import DecodeDeltas, Template
from .deltas import Delta
from .events import DataEvent
from .frame_sse import FrameSse
from .stage import Chain

# After so many events in a row that were not known, one in each chunk is looked at.
_PATIENCE = 16
_MAX_HELD = 4_096  # so that small chunks cost linear time

_find_border = re.compile(rb"\n\r?\n").search
_find_end = re.compile(rb"\n[\r\n]|\r\r").search


class SkimSse(Chain[bytes, Delta]):
    """From the bytes of server-sent events to deltas.

    An event that is known at sight, since it is like the one before it, is neither framed nor parsed. Any other goes
    through the two stages, and its layout is learnt.

    Args:
        frame: The framing.
        decode: The decoding.
        template: Knows events at sight.
    """

    def __init__(self, frame: FrameSse[DataEvent], decode: DecodeDeltas, template: Template) -> None:
        super().__init__(frame, decode)
        self._frame = frame
        self._decode = decode
        self._template = template
        self._room: float = 0  # so many bytes may be skipped, since an event begins with the next one
        self._skipped = 0  # so many were, and the framing does not know it yet
        self._held = b""  # the beginning of an event, after others that were known
        self._patience = _PATIENCE

    @property
    def bytes_seen(self) -> int:
        """How many bytes were fed."""
        return self._frame.bytes_seen + self._skipped + len(self._held)

    def take(self, batch: Sequence[bytes]) -> tuple[Sequence[Delta], Exception | None]:
        if len(batch) != 1:
            return self._take_each(batch)
        data = self._held + batch[0] if self._held else batch[0]
        self._held = b""
        deltas, at = self._skim(data, 0)
        return (deltas, None) if at == len(data) else (deltas, self._read(data, at, deltas))

    def finish(self) -> Iterator[Delta]:
        held, self._held = self._held, b""
        deltas: list[Delta] = []
        fault = self._read_plainly(held, deltas) if held else None
        yield from deltas
        if fault is not None:
            raise fault
        yield from super().finish()

    def _take_each(self, batch: Sequence[bytes]) -> tuple[Sequence[Delta], Exception | None]:
        deltas: list[Delta] = []
        for chunk in batch:
            given, fault = self.take((chunk,))
            deltas += given
            if fault is not None:
                return deltas, fault
        return deltas, None

    def _skim(self, data: bytes, at: int) -> tuple[list[Delta], int]:
        """What the events from a place on give, as long as they are known, and where the first other begins."""
        if len(data) - at > self._room:
            return [], at
        deltas, end, count = self._template.skim(data, at)
        if count:
            self._room -= end - at
            self._skipped += end - at
            self._patience = _PATIENCE
            self._decode.skip(count, len(deltas))
        return deltas, end

    def _read(self, data: bytes, at: int, deltas: list[Delta]) -> Exception | None:
        """The rest of a chunk: event by event, as long as there is hope that some more will be known."""
        looks = self._patience or 1
        while looks and self._template.is_hopeful and data.find(b"\n", at) >= 0 and (border := _find_border(data, at)):
            block = data[at : border.end()]
            if fault := self._read_plainly(block, deltas):
                return fault
            self._template.see(block)
            looks = self._patience = max(self._patience - 1, 0)
            known, at = self._skim(data, border.end())
            if known:
                deltas += known
                looks = self._patience
            if at == len(data):
                return None
        if self._may_hold(data, at):
            self._held = data[at:]
            return None
        return self._read_plainly(data[at:], deltas)

    def _may_hold(self, data: bytes, at: int) -> bool:
        """Whether a rest is the beginning of an event that may be known, and nothing else."""
        if not self._template.is_hopeful or len(data) - at > min(self._room, _MAX_HELD) or data[at] not in b"de":
            return False
        return (data.find(b"\n", at) < 0 and data.find(b"\r", at) < 0) or not _find_end(data, at)

    def _read_plainly(self, data: bytes, deltas: list[Delta]) -> Exception | None:
        """Let the two stages read some bytes."""
        self._frame.skip(self._skipped)
        self._skipped = 0
        events, fault = self._frame.take((data,))
        if events:
            given, own = self._decode.take(events)
            deltas += given
            fault = own or fault
        self._room = self._frame.room
        return fault
