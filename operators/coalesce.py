"""`coalesce`: at most one batch a frame, for whoever draws."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any, Generic, TypeVar

from reactivex import Observable, abc
from reactivex.disposable import Disposable, SerialDisposable, SingleAssignmentDisposable

from .deltas import ReasoningDelta, RefusalDelta, TextDelta, ToolCallDelta
from .previews import JsonPreview, ToolCallPreview
from .timers import timer_scheduler
from .window import ByteWindow, current_window, offered

T = TypeVar("T")

_TEXTS = (TextDelta, ReasoningDelta, RefusalDelta)


def coalesce(seconds: float, *, scheduler: abc.SchedulerBase | None = None) -> Callable[[Observable[T]], Observable[T]]:
    """The same stream in at most one batch a frame, so that a screen is drawn no oftener than it can show.

    .. marble::

        --a-b-c-----------d-e|
        [    coalesce(4)     ]
        --a---(bc)--------d-e|

    The first item goes on at once and opens a frame. What comes until the frame ends goes on then, as one batch of
    items back to back, and opens the next. A frame in which nothing came is the last; the next item goes on at once
    again. Nothing is scheduled while nothing flows.

    In a batch, neighbouring text is one delta (`TextDelta`, `ReasoningDelta` and `RefusalDelta` of one choice, the
    fragments of one call's arguments), and of the previews of one call, or of one choice's JSON, the latest is there.
    Everything else stands as it came. Nothing is lost, and the order is kept.

    The waiting frame is a small asynchronous boundary, emptied by time and not by demand. So it frees nothing that
    waits at the boundary behind it, but holds its own bytes in that window, even where that consumer starves. Where
    there is no boundary behind it, it gives the source a window of its own, freed with each frame.

    Args:
        seconds: The length of a frame, from the end of one batch to the start of the next; 1/30 suits most screens.
        scheduler: What times the frames: by default the scheduler given at subscription; else the event loop of
            `iterate`, `for_each` or a `BackgroundLoop` behind it; else threads of reactivex's `TimeoutScheduler`.
            Deliveries never overlap, on whatever threads they are. Only relative times are used, so the wall clock
            may move.

    Returns:
        An operator from any items to the same.

        - emits: the first item at once, then at most one batch a frame
        - holds back: one frame, and of a source with a window no more than that is wide (128 KiB, where it is its own)
        - completes: with the source, after what waited
        - fails: with the source, after what waited; with whatever a subscriber's `on_next` raised

    Raises:
        ValueError: `seconds` is not above 0.
    """
    if not seconds > 0:
        raise ValueError(f"seconds must be above 0, not {seconds}")

    def operator(source: Observable[T]) -> Observable[T]:
        def subscribe(observer: abc.ObserverBase[T], given: abc.SchedulerBase | None = None) -> abc.DisposableBase:
            frames = _Frames(observer, seconds, timer_scheduler(scheduler, given))
            frames.start(source, given)
            return Disposable(frames.dispose)

        return Observable(subscribe)

    return operator


class _Frames(Generic[T]):
    """One subscription: what waits for the next frame, and the timer that ends it."""

    def __init__(self, observer: abc.ObserverBase[T], seconds: float, scheduler: abc.SchedulerBase) -> None:
        self._observer = observer
        self._seconds = seconds
        self._scheduler = scheduler
        self._lock = threading.RLock()  # the timer may fire on another thread than the source pushes on
        self._open = False
        self._waiting: list[T] = []
        self._leaving: deque[T] = deque()
        self._timer = SerialDisposable()
        self._upstream = SingleAssignmentDisposable()
        behind = current_window()
        self._window = behind or ByteWindow()
        if behind is None:
            self._window.release_all()  # there is no consumer to wait for: only the frame holds

    def start(self, source: Observable[T], scheduler: abc.SchedulerBase | None) -> None:
        with offered(self._window):
            self._upstream.disposable = source.subscribe(
                self.on_next, self.on_error, self.on_completed, scheduler=scheduler
            )

    def dispose(self) -> None:
        self._timer.dispose()
        self._upstream.dispose()
        self._free()

    def on_next(self, item: T) -> None:
        with self._lock:
            if self._open:
                if not self._waiting:
                    self._window.hold(self)
                self._waiting.append(item)
                self._free()
            else:
                self._open = True
                self._leaving.append(item)
                self._deliver()
                self._schedule()

    def on_error(self, error: Exception) -> None:
        self._end(lambda: self._observer.on_error(error))

    def on_completed(self) -> None:
        self._end(self._observer.on_completed)

    def _end(self, terminal: Callable[[], None]) -> None:
        with self._lock:
            if self._flush():
                self._timer.dispose()
                terminal()

    def _tick(self, _scheduler: abc.SchedulerBase, _state: object = None) -> None:
        with self._lock:
            if self._waiting and not self._timer.is_disposed:
                self._flush()
                self._schedule()
            else:
                self._open = False

    def _schedule(self) -> None:
        # From here on, not from when the batch began: whoever is slow to draw has a whole frame for other things.
        if not self._timer.is_disposed:
            self._timer.disposable = self._scheduler.schedule_relative(self._seconds, self._tick)

    def _flush(self) -> bool:
        self._leaving.extend(_joined(self._waiting))
        self._waiting.clear()
        return self._deliver()

    def _deliver(self) -> bool:
        """Hand the batch on. False where the subscription ended meanwhile."""
        try:
            # What the observer itself makes the source push waits for the next frame, but a terminal takes all along.
            while self._leaving and not self._timer.is_disposed:
                self._observer.on_next(self._leaving.popleft())
        except Exception as error:  # on the timer's thread nobody else would hear of it
            self.dispose()
            self._observer.on_error(error)
        self._free()
        return not self._timer.is_disposed

    def _free(self) -> None:
        # Also after a frame of which nothing came to the boundary: it would never release what it has not seen.
        if not self._waiting or self._timer.is_disposed:
            self._window.let_go(self)


def _joined(waiting: Sequence[T]) -> Iterator[T]:
    """The batch: of the previews of one thing the latest, and neighbours that continue each other as one."""
    latest = {_previewed(item): n for n, item in enumerate(waiting)}
    items = (item for n, item in enumerate(waiting) if latest[_previewed(item)] == n or _previewed(item) is None)
    for kind, run in groupby(items, _kind):
        if kind is None:
            yield from run
        else:
            yield _as_one(list(run))


def _previewed(item: object) -> tuple[object, ...] | None:
    """What a preview shows; None for anything else."""
    if isinstance(item, ToolCallPreview):
        return item.choice, item.index
    if isinstance(item, JsonPreview):
        return (item.choice,)
    return None


def _kind(item: object) -> tuple[object, ...] | None:
    """What an item must have in common with its neighbour to be joined to it; None for what stands alone."""
    if isinstance(item, _TEXTS):
        return type(item), item.choice
    if isinstance(item, ToolCallDelta):
        return ToolCallDelta, item.choice, item.index
    return None


def _as_one(run: Sequence[Any]) -> Any:
    first = run[0]
    if len(run) == 1:
        return first
    if isinstance(first, ToolCallDelta):
        return ToolCallDelta(first.index, "".join(item.args for item in run), first.choice)
    return type(first)("".join(item.text for item in run), first.choice)
