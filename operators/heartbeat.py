"""What says only that a stream is alive: `is_heartbeat`."""

from __future__ import annotations

from .deltas import ProviderEvent
from .events import ServerSentEvent

_WORDS = frozenset(("ping", "keepalive", "keep-alive", "heartbeat"))


def is_heartbeat(item: object) -> bool:
    """Whether it is an event whose type or kind is a heartbeat's, or whose data is blank: no progress."""
    if isinstance(item, ServerSentEvent):
        return item.event in _WORDS or not item.data.strip()
    return isinstance(item, ProviderEvent) and item.kind in _WORDS
