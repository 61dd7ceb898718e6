"""`Inbox`: what waits for a consumer at an asynchronous boundary."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TypeVar

from rillet.operators import ByteWindow

T = TypeVar("T")


class Inbox(deque[tuple[T, int]]):
    """Each item that waits, with how far the source had read for it. One thread puts and ends, one takes.

    Args:
        window: The window of the boundary.
        wake: Called after each item and after the end, on the thread that brought it.
    """

    def __init__(self, window: ByteWindow, wake: Callable[[], None]) -> None:
        super().__init__()
        self._window = window
        self._wake = wake
        self._error: Exception | None = None
        self._ended = False

    def put(self, item: T) -> None:
        """An item has come."""
        self.append((item, self._window.mark()))
        self._wake()

    def fail(self, error: Exception) -> None:
        """The observable has failed, or nothing more will be heard of it; the first end counts."""
        if not self._ended:
            self._error = error
        self.end()

    def end(self) -> None:
        """The observable has completed."""
        self._ended = True
        self._wake()

    def take(self) -> T:
        """The next item."""
        item, mark = self.popleft()
        if not self or self[0][1] != mark:  # the last item of what was read up to the mark
            self._window.release(mark)
        return item

    def is_over(self) -> bool:
        """Whether nothing waits and nothing will come.

        Raises:
            Exception: Whatever the observable failed with.
        """
        ended = self._ended  # in this order: another thread may put an item, and then end, meanwhile
        if self or not ended:
            return False
        if self._error is not None:
            raise self._error
        return True
