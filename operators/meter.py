"""`Meter`: what the parts of one pipeline count, for whoever watches them. It finds its way as a window does."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

_current: ContextVar[Meter | None] = ContextVar("rillet_meter", default=None)


class Meter:
    """The counts of one subscription: the source and the stages write them, a watch or a measurement reads them.

    Attributes:
        bytes_read: How many bytes the source has handed on, decompressed.
        stalls: How often the source waited for a full window.
        reads_deltas: Whether a stage here decodes deltas: without one, no delta is missed.
        deltas: How many deltas were decoded: what counts as progress.
        heartbeats: How many comments and events came that gave none.
    """

    __slots__ = ("bytes_read", "deltas", "heartbeats", "reads_deltas", "stalls")

    def __init__(self) -> None:
        self.bytes_read = 0
        self.stalls = 0
        self.reads_deltas = False
        self.deltas = 0
        self.heartbeats = 0


def current_meter() -> Meter | None:
    """The meter of the pipeline that is being subscribed to: for sources and stages, as they are made."""
    return _current.get()


@contextmanager
def metering(meter: Meter) -> Generator[None]:
    """Have whatever is subscribed to inside the block count on this meter."""
    token = _current.set(meter)
    try:
        yield
    finally:
        _current.reset(token)
