"""`ByteWindow`: how the far end of a pipeline slows the near end. It counts and calls back, and knows no event loop."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar

WINDOW_LIMIT = 128 * 1024

_current: ContextVar[ByteWindow | None] = ContextVar("rillet_window", default=None)


class ByteWindow:
    """How many wire bytes may wait between a source and an asynchronous boundary.

    The source adds what it hands on, no more at once than there is `room` for, and waits while the window is full. The
    boundary marks, for each item it queues, how far the source had read, and releases up to there once its consumer has
    taken the item; while the consumer waits on an empty queue nothing is held, however much the source reads. What is
    on its way to the boundary, and waits there for a time of its own, may be held. A window that was full opens again
    when half of it is free. Safe from any thread.

    `add`, `room`, `when_open` and `forget` are for sources; `mark`, `release`, `release_all`, `hold` and `let_go` for
    boundaries; `pending`, `read` and `stalls` for whoever wants to know.

    Args:
        limit: The bytes that may wait before the source pauses; 128 KiB by default.

    Attributes:
        limit: As given.
        read: How many bytes the source has read.
        stalls: How often the source had to wait.
    """

    def __init__(self, limit: int = WINDOW_LIMIT) -> None:
        if limit < 1:
            raise ValueError(f"limit must be at least 1 byte, not {limit}")
        self.limit = limit
        self.read = 0
        self.stalls = 0
        self._released = 0
        self._starving = False
        self._holders: set[object] = set()
        self._waiting: list[Callable[[], None]] = []
        self._lock = threading.Lock()

    @property
    def pending(self) -> int:
        """How many bytes were read and not yet released."""
        return self.read - self._released

    @property
    def starving(self) -> bool:
        """Whether the consumer waits on an empty queue, so that nothing is held until the next mark."""
        return self._starving

    @property
    def room(self) -> int:
        """How many bytes there is room for; 0 where the window is full."""
        return self.limit if self._is_free else max(self.limit - self.pending, 0)

    @property
    def _is_free(self) -> bool:
        return self._starving and not self._holders

    def add(self, count: int) -> None:
        """The source has read `count` bytes."""
        with self._lock:
            if self._is_free:
                self._released = self.read  # what came before these gave no item, or the consumer has it
            self.read += count

    def when_open(self, resume: Callable[[], None]) -> bool:
        """Whether the source may read on; where not, `resume` is called once it may, on the releasing thread."""
        with self._lock:
            if self._is_free or self.pending < self.limit:
                return True
            self.stalls += 1
            if resume not in self._waiting:
                self._waiting.append(resume)
            return False

    def forget(self, resume: Callable[[], None]) -> None:
        """The source waits no more: `resume` is not called."""
        with self._lock:
            if resume in self._waiting:
                self._waiting.remove(resume)

    def mark(self) -> int:
        """The boundary queues an item: how far the source had read for it."""
        with self._lock:
            self._starving = False
            return self.read

    def release(self, mark: int) -> None:
        """The consumer took the last item with this mark."""
        self._release(mark)

    def release_all(self) -> None:
        """The consumer waits on an empty queue: nothing is held until the next mark, but for what holders hold."""
        self._release(None)

    def hold(self, holder: object) -> None:
        """Something waits at `holder` before it comes to the boundary: until it lets go, what is read counts."""
        with self._lock:
            self._holders.add(holder)

    def let_go(self, holder: object) -> None:
        """Nothing waits at `holder`: it has come to the boundary, or was left out on the way."""
        with self._lock:
            self._holders.discard(holder)
            waiting = self._freed() if self._is_free else []
        for resume in waiting:
            resume()

    def _release(self, mark: int | None) -> None:
        with self._lock:
            self._starving = mark is None
            if mark is not None:
                self._released = max(self._released, mark)
            waiting = self._freed()
        for resume in waiting:
            resume()

    def _freed(self) -> list[Callable[[], None]]:
        """Who may read on now; the lock is held."""
        if self._is_free:
            self._released = self.read
        if self.pending > self.limit // 2:
            return []
        waiting, self._waiting = self._waiting, []
        return waiting


def current_window() -> ByteWindow | None:
    """The window of the boundary that is subscribing now: for sources, inside their subscribe function."""
    return _current.get()


@contextmanager
def offered(window: ByteWindow | None) -> Generator[None]:
    """Offer a window to whatever source is subscribed to inside the block: for boundaries. None takes an offer back."""
    token = _current.set(window)
    try:
        yield
    finally:
        _current.reset(token)
