"""`bounded`: an asynchronous boundary with a limit, and with back-pressure to the source."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Literal, TypeVar

from reactivex import Observable, abc
from reactivex.disposable import CompositeDisposable, Disposable, SingleAssignmentDisposable

from .errors import BufferOverflow
from .timers import timer_scheduler
from .window import WINDOW_LIMIT, ByteWindow, current_window, offered

T = TypeVar("T")

MAX_ITEMS = 65_536
BATCH = 16
LEAVE_SECONDS = 0.05


def bounded(
    max_bytes: int = WINDOW_LIMIT,
    *,
    max_items: int = MAX_ITEMS,
    overflow: Literal["pause", "error"] = "pause",
    scheduler: abc.SchedulerBase | None = None,
) -> Callable[[Observable[T]], Observable[T]]:
    """Hand the items on from a scheduler, as `observe_on` does, with no more waiting there than allowed.

    .. marble::

        --a-b-c-d-e---------|
        [    bounded()      ]      on a slow scheduler
        ---a---b---c---d---e|

    Args:
        max_bytes: How many wire bytes may wait between the source and the consumer; 128 KiB by default.
        max_items: How many items may wait where the source counts no bytes, or makes very many of them; 65,536 by
            default.
        overflow: What happens at `max_bytes`: "pause" (the default) makes the source wait, "error" lets it run and
            fails; a source that can't wait fails at `max_items` either way. Nothing is ever dropped in silence.
        scheduler: Where the consumer runs: the scheduler of a UI, of a thread, of an event loop (where the source
            runs on another thread, reactivex's `AsyncIOThreadSafeScheduler`). By default the one given at
            subscription; else the event loop of `iterate`, `for_each` or a `BackgroundLoop` behind it; else a thread
            of reactivex's `TimeoutScheduler`.

    Returns:
        An operator that passes on all it gets, a few items for each turn of the scheduler.

        - emits: the same items, in order, on the scheduler
        - holds back: what waits: `max_bytes` at most, or `max_items`
        - completes and fails: as the source does, after the items before it
        - fails: `BufferOverflow`, after the items that were waiting; whatever the subscriber's `on_next` raised, at
          once

    Raises:
        ValueError: A limit is less than 1, or `overflow` is something else.
    """
    if max_bytes < 1 or max_items < 1:
        raise ValueError(f"max_bytes and max_items must be at least 1, not {max_bytes} and {max_items}")
    if overflow not in ("pause", "error"):
        raise ValueError(f'overflow must be "pause" or "error", not {overflow!r}')

    def operator(source: Observable[T]) -> Observable[T]:
        def subscribe(observer: abc.ObserverBase[T], given: abc.SchedulerBase | None = None) -> abc.DisposableBase:
            turns = timer_scheduler(scheduler, given)
            window = ByteWindow(max_bytes) if overflow == "pause" else _Unheeded(max_bytes)
            return _Boundary(observer, turns, window, max_items).over(source, given)

        return Observable(subscribe)

    return operator


class _Unheeded(ByteWindow):
    """A window that counts and never makes the source wait."""

    @property
    def room(self) -> int:
        return self.limit

    def when_open(self, resume: Callable[[], None]) -> bool:
        return True


class _Boundary(abc.ObserverBase[T]):
    """One subscription: a queue that the source fills and the scheduler empties.

    Toward the consumer it is a source itself: where another boundary follows, it waits for that one's window.
    """

    def __init__(
        self, observer: abc.ObserverBase[T], scheduler: abc.SchedulerBase, window: ByteWindow, max_items: int
    ) -> None:
        self._observer = observer
        self._scheduler = scheduler
        self._window = window
        self._below = current_window()
        self._max_items = max_items
        self._queue: deque[tuple[T, int]] = deque()
        self._terminal: Callable[[], None] | None = None
        self._handed_on = 0  # how far the source had read for the last item
        self._draining = False
        self._over = False
        self._lock = threading.RLock()  # never held while something is delivered
        self._delivering = threading.RLock()  # held while an item is
        self._upstream = SingleAssignmentDisposable()

    def over(self, source: Observable[T], given: abc.SchedulerBase | None) -> abc.DisposableBase:
        self._window.release_all()  # the queue is empty: the first item may be larger than the window
        with offered(self._window):
            self._upstream.disposable = source.subscribe(self, scheduler=given)
        return CompositeDisposable(Disposable(self._leave), self._upstream)

    def on_next(self, value: T) -> None:
        with self._lock:
            if self._over or self._terminal is not None:
                return
            if len(self._queue) >= self._max_items:
                self._overflow(BufferOverflow(self._max_items, "item"))
            elif isinstance(self._window, _Unheeded) and self._window.pending > self._window.limit:
                self._overflow(BufferOverflow(self._window.limit, "byte"))
            else:
                self._queue.append((value, self._window.mark()))
        self._wake()

    def on_error(self, error: Exception) -> None:
        self._end(partial(self._observer.on_error, error))

    def on_completed(self) -> None:
        self._end(self._observer.on_completed)

    def _overflow(self, error: BufferOverflow) -> None:
        self._terminal = partial(self._observer.on_error, error)
        self._upstream.dispose()

    def _end(self, terminal: Callable[[], None]) -> None:
        with self._lock:
            if self._terminal is None:
                self._terminal = terminal
        self._wake()

    def _leave(self) -> None:
        with self._lock:
            self._over = True
            self._queue.clear()
        self._window.release_all()
        if self._below is not None:
            self._below.forget(self._wake)
        # What another thread was just about to deliver it delivers now; but who disposes must not wait for a slow one.
        if self._delivering.acquire(timeout=LEAVE_SECONDS):
            self._delivering.release()

    def _wake(self) -> None:
        with self._lock:
            if self._over or self._draining:
                return
            self._draining = True
        self._scheduler.schedule(self._drain)

    def _drain(self, _: abc.SchedulerBase, __: object = None) -> None:
        """One turn: a few items, so that what else runs on this scheduler has its turns too.

        No turn is ever taken back, since the thread that asked for it may come to know of it after it has run: once
        this is over, a turn does nothing.
        """
        for _n in range(BATCH):
            if not self._deliver():
                return
        self._scheduler.schedule(self._drain)

    def _deliver(self) -> bool:
        """Hand on the next item, or the end. False where there is nothing more to do for now."""
        with self._lock:
            if self._over:
                return False
            if self._queue and self._below is not None and not self._below.when_open(self._wake):
                self._draining = False
                return False
            waiting = self._queue.popleft() if self._queue else None
            end = None if waiting else self._end_or_wait()
        if waiting:
            return self._hand_on(*waiting)
        if end:
            end()
        return False

    def _end_or_wait(self) -> Callable[[], None] | None:
        """The end, where it has come."""
        self._draining = False
        if self._terminal is None:
            self._window.release_all()
        self._over = self._terminal is not None
        return self._terminal

    def _hand_on(self, item: T, mark: int) -> bool:
        if self._below is not None:
            self._below.add(mark - self._handed_on)
        self._handed_on = mark
        try:
            with self._delivering:
                self._observer.on_next(item)
        except Exception as error:  # the subscriber's own: nothing may follow
            self._leave()
            self._upstream.dispose()
            self._observer.on_error(error)
            return False
        with self._lock:
            if not self._queue or self._queue[0][1] != mark:  # the last item of what was read up to the mark
                self._window.release(mark)
        return True
