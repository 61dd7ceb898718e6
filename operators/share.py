"""`share`: one stream for several subscribers, with back-pressure."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Generic, Literal, TypeVar, get_args

from reactivex import Observable, abc
from reactivex.disposable import Disposable, SingleAssignmentDisposable

from .errors import BufferOverflow
from .window import ByteWindow, current_window, offered

T = TypeVar("T")

SlowPolicy = Literal["pause", "drop_subscriber"]


def share(*, on_slow: SlowPolicy = "pause") -> Callable[[Observable[T]], Observable[T]]:
    """Let several subscribers share one subscription to the source, as reactivex's `share` does, with back-pressure.

    .. marble::

        ---a---b---c---|
        [   share()    ]
        ---a---b---c---|      the first subscriber
              -b---c---|      one that came later

    The first subscriber subscribes to the source, the last that leaves disposes it. Each may have a boundary of its
    own behind it (`iterate`, `for_each`, `bounded`), whose window counts for the source. A subscriber that raises is
    told so by its own `on_error` and leaves; the others go on.

    Who comes late gets only what comes after that: of an answer, what it hears is not the whole, although it ends with
    `Done`. `examples/relay.py` gives such a one what it missed. Who comes after the end asks anew.

    Args:
        on_slow: What happens where one subscriber's window is full: "pause" (the default) makes the source wait for the
            slowest, "drop_subscriber" ends that one with `BufferOverflow` and goes on for the others.

    Returns:
        An operator that passes on all it gets, to each subscriber what comes while it is there.

        - emits: the same items, at once
        - holds back: nothing
        - completes and fails: with the source; who subscribes after that subscribes to the source anew
        - fails: `BufferOverflow`, for a slow subscriber alone

    Raises:
        ValueError: `on_slow` is something else.
    """
    if on_slow not in get_args(SlowPolicy):
        raise ValueError(f'on_slow must be "pause" or "drop_subscriber", not {on_slow!r}')

    def operator(source: Observable[T]) -> Observable[T]:
        lock = threading.RLock()  # of all that is shared: nobody joins what its last subscriber is just leaving
        current: list[_Shared[T]] = []

        def subscribe(observer: abc.ObserverBase[T], scheduler: abc.SchedulerBase | None = None) -> abc.DisposableBase:
            with lock:
                if not current or current[0].over:
                    current[:] = [_Shared[T](on_slow, lock)]
                shared = current[0]
                member = shared.join(observer, current_window())
            shared.connect(source, scheduler)
            return Disposable(lambda: shared.leave(member))

        return Observable(subscribe)

    return operator


class _Member(Generic[T]):
    """One subscriber, and the window of the boundary behind it."""

    def __init__(self, observer: abc.ObserverBase[T], window: ByteWindow | None) -> None:
        self.observer = observer
        self.window = window

    @property
    def is_slow(self) -> bool:
        return self.window is not None and self.window.pending > self.window.limit


class _Shared(abc.ObserverBase[T]):
    """One subscription to the source, from its first subscriber to its last."""

    def __init__(self, on_slow: SlowPolicy, lock: threading.RLock) -> None:
        self.over = False
        self._drops = on_slow == "drop_subscriber"
        self._members: list[_Member[T]] = []
        self._windows = _Windows(waits=not self._drops)
        self._connected = False
        self._upstream = SingleAssignmentDisposable()
        self._lock = lock

    def join(self, observer: abc.ObserverBase[T], window: ByteWindow | None) -> _Member[T]:
        member = _Member(observer, window)
        with self._lock:
            self._members.append(member)
            self._count_windows()
        return member

    def leave(self, member: _Member[T]) -> None:
        with self._lock:
            if member not in self._members:
                return
            self._members.remove(member)
            self._count_windows()
            self.over = self.over or not self._members
        if self.over:
            self._upstream.dispose()
        self._windows.look()

    def connect(self, source: Observable[T], scheduler: abc.SchedulerBase | None) -> None:
        with self._lock:
            if self._connected:
                return
            self._connected = True
        with offered(self._windows):
            self._upstream.disposable = source.subscribe(self, scheduler=scheduler)

    def on_next(self, value: T) -> None:
        for member in tuple(self._members):
            if self._drops and member.is_slow and member.window is not None:
                self._end(member, BufferOverflow(member.window.limit, "byte"))
                continue
            try:
                member.observer.on_next(value)
            except Exception as error:  # this subscriber's own: the others hear nothing of it
                self._end(member, error)

    def on_error(self, error: Exception) -> None:
        self._tell_all(lambda member: member.observer.on_error(error))

    def on_completed(self) -> None:
        self._tell_all(lambda member: member.observer.on_completed())

    def _end(self, member: _Member[T], error: Exception) -> None:
        self.leave(member)
        member.observer.on_error(error)

    def _tell_all(self, tell: Callable[[_Member[T]], None]) -> None:
        with self._lock:
            self.over = True
            members, self._members = self._members, []
        with ExitStack() as each:  # all are told, even where one raises
            for member in reversed(members):
                each.callback(tell, member)

    def _count_windows(self) -> None:
        self._windows.windows = tuple({id(m.window): m.window for m in self._members if m.window is not None}.values())


class _Windows(ByteWindow):
    """The windows of all the subscribers as one: where it waits, the fullest makes the source wait."""

    def __init__(self, *, waits: bool) -> None:
        super().__init__()
        self.windows: tuple[ByteWindow, ...] = ()
        self._waits = waits
        self.release_all()  # its own counts are those of what waits before the sharing, see `coalesce`

    @property
    def room(self) -> int:
        return min((super().room, *(window.room if self._waits else window.limit for window in self.windows)))

    def add(self, count: int) -> None:
        super().add(count)
        for window in self.windows:
            window.add(count)

    def when_open(self, resume: Callable[[], None]) -> bool:
        if not super().when_open(resume):
            return False
        if not self._waits:
            return True
        with self._lock:
            self._waiting.append(resume)  # before looking: a window may open meanwhile, on another thread
        if all(window.when_open(self.look) for window in self.windows):
            self.forget(resume)
            return True
        self.stalls += 1
        return False

    def look(self) -> None:
        """One of the windows has opened, or its subscriber has left: whoever waits asks again."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for resume in waiting:
            resume()
