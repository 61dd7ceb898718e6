"""`SeenEvents`: which events were handed on, so that a server that repeats some does not have them given twice."""

from __future__ import annotations

from collections import Counter, deque

from rillet.operators import ServerSentEvent

from .resume_by import Cursor

REMEMBERED = 1024


class SeenEvents:
    """Which events were handed on, over all the connections of a stream.

    Servers resume with the event after the last one, or with that one itself, or begin again. So only what a new
    connection sends up to its first new event can be a repetition.
    """

    def __init__(self) -> None:
        self._last: int | None = None
        self._recent: deque[int] = deque(maxlen=REMEMBERED)  # hashes: the events themselves may be large
        self._repeatable: Counter[int] | None = None

    def reconnect(self) -> None:
        """A new connection begins."""
        self._repeatable = Counter(self._recent)

    def is_new(self, event: ServerSentEvent, cursor: Cursor | None) -> bool:
        """Whether an event is to be handed on; it is then remembered.

        Args:
            event: The event. One that is equal in type, data and id to one of the last 1,024 is not new.
            cursor: Its own place, None where it has none: such an event is always new. Where it is a number, that
                alone counts: an event is not new whose number is not above the last.
        """
        if cursor is None:
            return True
        mark = hash(event)
        if self._repeatable is not None and self._repeats(mark, cursor, self._repeatable):
            return False
        self._repeatable = None
        if isinstance(cursor, int):
            self._last = cursor
        else:
            self._recent.append(mark)
        return True

    def _repeats(self, mark: int, cursor: Cursor, repeatable: Counter[int]) -> bool:
        if isinstance(cursor, int):
            return self._last is not None and cursor <= self._last
        repeatable[mark] -= 1
        return repeatable[mark] >= 0
