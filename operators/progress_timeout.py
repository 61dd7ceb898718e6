"""`progress_timeout`: heartbeats are not progress."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from reactivex import Observable, abc
from reactivex.disposable import CompositeDisposable, SerialDisposable, SingleAssignmentDisposable

from .errors import IdleTimeout
from .heartbeat import is_heartbeat
from .timers import timer_scheduler
from .window import current_window

T = TypeVar("T")

TICKS = 4


def progress_timeout(
    seconds: float, *, scheduler: abc.SchedulerBase | None = None
) -> Callable[[Observable[T]], Observable[T]]:
    """Fail where nothing but heartbeats came for too long.

    .. marble::

        ---Text---Text---ping---ping---ping---
        [        progress_timeout(60)        ]
        ---Text---Text---ping---ping---#

    Any item is progress, but an event whose type or kind is a heartbeat's (ping, keepalive, heartbeat), or whose data
    is blank. Time that the source waits for a full window does not count. There is one timer a stream, which looks four
    times in `seconds`, so that it fails up to a quarter of them late and never early.

    Args:
        seconds: How long to wait for progress, before the first item too.
        scheduler: Where the timer runs; by default the scheduler given at subscription; else the event loop of
            `iterate`, `for_each` or a `BackgroundLoop` behind it; else a thread of reactivex's `TimeoutScheduler`.

    Returns:
        An operator that passes on all it gets.

        - emits: the same items, at once
        - holds back: nothing
        - completes: with the source
        - fails: `IdleTimeout`, having disposed the source

    Raises:
        ValueError: `seconds` is not positive.
    """
    if not seconds > 0:
        raise ValueError(f"seconds must be positive, not {seconds}")

    def operator(source: Observable[T]) -> Observable[T]:
        def subscribe(observer: abc.ObserverBase[T], given: abc.SchedulerBase | None = None) -> abc.DisposableBase:
            watch = _Watch(observer, seconds, timer_scheduler(scheduler, given))
            return watch.over(source, given)

        return Observable(subscribe)

    return operator


class _Watch(abc.ObserverBase[T]):
    """One subscription. The lock keeps the timer's thread from failing it while an item is delivered."""

    def __init__(self, observer: abc.ObserverBase[T], seconds: float, scheduler: abc.SchedulerBase) -> None:
        self._observer = observer
        self._seconds = seconds
        self._scheduler = scheduler
        self._window = current_window()
        self._lock = threading.RLock()
        self._upstream = SingleAssignmentDisposable()
        self._timer = SerialDisposable()
        self._moved = False
        self._was_full = False
        self._idle = 0
        self._over = False

    def over(self, source: Observable[T], given: abc.SchedulerBase | None) -> abc.DisposableBase:
        with self._lock:  # a timer that fires at once must not find its place taken by itself
            self._look_later()
        self._upstream.disposable = source.subscribe(self, scheduler=given)
        return CompositeDisposable(self._timer, self._upstream)

    def on_next(self, value: T) -> None:
        with self._lock:
            if self._over:
                return
            if not is_heartbeat(value):
                self._moved = True
            try:
                self._observer.on_next(value)
            except Exception as error:  # the subscriber's own: nothing may follow
                self._fail(error)

    def on_error(self, error: Exception) -> None:
        self._end(lambda: self._observer.on_error(error))

    def on_completed(self) -> None:
        self._end(self._observer.on_completed)

    def _fail(self, error: Exception) -> None:
        self._upstream.dispose()
        self.on_error(error)

    def _end(self, tell: Callable[[], None]) -> None:
        with self._lock:
            if not self._over:
                self._over = True
                self._timer.dispose()
                tell()

    def _look_later(self) -> None:
        self._timer.disposable = self._scheduler.schedule_relative(self._seconds / TICKS, self._look)

    def _look(self, _: abc.SchedulerBase, __: object = None) -> None:
        with self._lock:
            is_full = self._window is not None and self._window.room == 0
            self._idle = 0 if self._moved or is_full or self._was_full else self._idle + 1
            self._moved, self._was_full = False, is_full
            if self._over:
                return
            if self._idle < TICKS:
                self._look_later()
                return
            self._over = True
        self._upstream.dispose()  # without the lock: it may wait for a delivery that waits for that
        message = f"nothing but heartbeats came for {self._seconds:g} s"
        self._observer.on_error(IdleTimeout(message, which="progress", seconds=self._seconds))
