"""`Meter`: what the parts of one pipeline count, for whoever watches them. It finds its way as a window does."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar

_current: ContextVar[Meter | None] = ContextVar("rillet_meter", default=None)


class Meter:
    """The counts of one subscription: the source and the stages write them, a watch or a measurement reads them.

    Args:
        downstream: The meter that was offered where this one is made: all that is counted here counts there too.

    Attributes:
        bytes_read: How many bytes the source has handed on, decompressed.
        first_byte: What `clock` said as the first of them came, None before that and without a clock.
        stalls: How often the source waited for a full window.
        reads_deltas: Whether a stage that counts here decodes deltas: without one, no delta is missed.
        feeds_decoder: Whether that stage is downstream of whatever this meter is offered to.
        deltas: How many deltas were decoded: what counts as progress.
        heartbeats: How many comments came, and events that gave none, or one that only says that the stream is alive.
        is_done: Whether `Done` was decoded.
        clock: Tells the time, in seconds from any start; whoever measures sets it.
    """

    __slots__ = (
        "_downstream",
        "bytes_read",
        "clock",
        "deltas",
        "feeds_decoder",
        "first_byte",
        "heartbeats",
        "is_done",
        "reads_deltas",
        "stalls",
    )

    def __init__(self, downstream: Meter | None = None) -> None:
        self._downstream = downstream
        self.bytes_read = 0
        self.first_byte: float | None = None
        self.stalls = 0
        self.reads_deltas = False
        self.feeds_decoder = False
        self.deltas = 0
        self.heartbeats = 0
        self.is_done = False
        self.clock: Callable[[], float] | None = None

    def add_bytes(self, count: int) -> None:
        """The source has read so many bytes, and hands them on next."""
        if not self.bytes_read and self.clock is not None:
            self.first_byte = self.clock()
        self.bytes_read += count
        if self._downstream is not None:
            self._downstream.add_bytes(count)

    def add_stalls(self, count: int) -> None:
        """The source has waited for a full window, so many times."""
        self.stalls += count
        if self._downstream is not None:
            self._downstream.add_stalls(count)

    def add_decoder(self) -> None:
        """A stage decodes deltas."""
        self.reads_deltas = True
        if self._downstream is not None:
            self._downstream.add_decoder()

    def add_deltas(self, count: int, *, is_done: bool) -> None:
        """So many deltas were decoded; whether `Done` has been."""
        self.deltas += count
        self.is_done = is_done
        if self._downstream is not None:
            self._downstream.add_deltas(count, is_done=is_done)

    def add_heartbeat(self) -> None:
        """A comment came, or an event that is no progress."""
        self.heartbeats += 1
        if self._downstream is not None:
            self._downstream.add_heartbeat()


def current_meter() -> Meter | None:
    """The meter of the pipeline that is being subscribed to: for sources and stages, as they are made."""
    return _current.get()


@contextmanager
def metering(meter: Meter | None) -> Generator[None]:
    """Have whatever is subscribed to inside the block count on this meter; None takes an offer back."""
    token = _current.set(meter)
    try:
        yield
    finally:
        _current.reset(token)
