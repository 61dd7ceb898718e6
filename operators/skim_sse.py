"""`SkimSse`: `FrameSse` and `decode_deltas` as one stage, which reads the commonest events from their bytes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from .decode_deltas import DecodeDeltas, Template
from .deltas import Delta
from .events import WireEvent
from .frame_sse import FrameSse
from .stage import Chain

# After so many events in a row that were not known, only the first in each chunk is looked at.
_PATIENCE = 16
_LF, _CR = b"\n\r"
_MAX_HELD = 4_096  # so that small chunks cost linear time

_find_end = re.compile(rb"\n[\n\r:]|\r[\r:]").search  # the end of an event, or the beginning of a comment
_find_border = re.compile(rb"\n\r?\n").search


class SkimSse(Chain[bytes, Delta]):
    """From the bytes of server-sent events to deltas.

    An event that is known at sight, since it is like the one before it, is neither framed nor parsed. Any other goes
    through the two stages, and its layout is learnt. What may be the beginning of a known event, or of one whose layout
    is to be learnt, waits for the rest.

    Args:
        frame: The framing.
        decode: The decoding.
        template: Knows events at sight.
    """

    def __init__(self, frame: FrameSse[WireEvent], decode: DecodeDeltas, template: Template) -> None:
        super().__init__(frame, decode)
        self._frame = frame
        self._decode = decode
        self._template = template
        self._room: float = 0  # so many bytes may be skipped, since an event begins with the next one
        self._skipped = 0  # so many were, and the framing does not know it yet
        self._held = b""  # the beginning of an event that waits for its rest
        self._patience = _PATIENCE

    def take(self, batch: Sequence[bytes]) -> tuple[Sequence[Delta], Exception | None]:
        if len(batch) != 1:
            return self._take_each(batch)
        data = batch[0]
        if self._held:
            held = len(self._held)
            data = self._held + data
            if not _is_ended(data[held - 1 :]) and self._may_wait(data):  # what waited is not looked at again
                self._held = data
                return (), None
            self._held = b""
        deltas: list[Delta] = []
        at, size = 0, len(data)
        while True:
            if size - at <= self._room:
                known, end, count = self._template.skim(data, at)
                if count:
                    self._room -= end - at
                    self._skipped += end - at
                    self._patience = _PATIENCE
                    self._decode.events_seen += count
                    self._decode.meter.add_deltas(len(known), is_done=False)
                    deltas += known
                    at = end
            if at == size:
                return deltas, None
            if size - at <= _MAX_HELD and self._may_wait(rest := data[at:]) and not _is_ended(rest):
                self._held = rest
                return deltas, None
            block = self._next_block(data, at)
            fault = self._read(block, deltas)
            at += len(block)
            if fault is not None or at == size:
                return deltas, fault

    def finish(self) -> Iterator[Delta]:
        yield from self._let_go()
        yield from super().finish()

    def fail(self, error: Exception) -> Iterator[Delta]:
        yield from self._let_go()
        yield from super().fail(error)

    def _let_go(self) -> Iterator[Delta]:
        """What the two stages give for what waited; a fault in it came before what ended the stream."""
        held, self._held = self._held, b""
        deltas: list[Delta] = []
        fault = self._read(held, deltas) if held else None
        yield from deltas
        if fault is not None:
            raise fault

    def _take_each(self, batch: Sequence[bytes]) -> tuple[Sequence[Delta], Exception | None]:
        deltas: list[Delta] = []
        for chunk in batch:
            given, fault = self.take((chunk,))
            deltas += given
            if fault is not None:
                return deltas, fault
        return deltas, None

    def _next_block(self, data: bytes, at: int) -> bytes:
        """What the two stages read next: one event, as long as there is hope that more are known; else all the rest."""
        is_worth_it = self._patience or (not at and self._template.is_hopeful)
        if is_worth_it and data.find(b"\n", at) >= 0:  # which takes a thirtieth of what the pattern takes to find none
            border = _find_border(data, at)
            if border is not None:
                self._patience = max(self._patience - 1, 0)
                return data[at : border.end()]
        return data[at:]

    def _may_wait(self, data: bytes) -> bool:
        """Whether some bytes are few enough to wait, and may be the beginning of a known event."""
        return len(data) <= _MAX_HELD and len(data) <= self._room and self._template.may_begin(data)

    def _read(self, data: bytes, deltas: list[Delta]) -> Exception | None:
        """Let the two stages read a block, and see how it is laid out."""
        self._frame.skip(self._skipped)
        self._skipped = 0
        is_at_border = self._room > 0
        events, fault = self._frame.take((data,))
        given: Sequence[Delta] = ()
        if events:
            given, own = self._decode.take(events)
            deltas += given
            fault = own or fault
        self._room = self._frame.room
        if given and is_at_border:  # else it is a ping, or the end of an event
            self._template.see(data)
        return fault


def _is_ended(data: bytes) -> bool:
    """Whether the end of an event is in some bytes, or a comment, which counts before the event has ended."""
    return (_LF in data or _CR in data) and _find_end(data) is not None
