"""How a consumer that runs apart slows its source: items wait in `Waiting`, the source in `until_open`."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from reactivex import Observable, abc
from reactivex.disposable import CompositeDisposable, Disposable

from rillet.operators import ByteWindow
from rillet.operators.errors import BufferOverflow
from rillet.operators.timers import timers_on
from rillet.operators.window import offered

from .loop_timers import LoopTimers

T = TypeVar("T")

MAX_ITEMS = 1_000_000


class Waiting(abc.ObserverBase[T], Generic[T]):
    """What waits for a consumer: each item with how far the source had read for it.

    Items may come from another thread than they are taken on.

    Args:
        window: What the source waits for.
        wake: Called after each item and after the end, on the thread that brought it.
        max_items: How many items may wait where the source knows no window; then it fails.

    Attributes:
        has_ended: Whether the end has come, though items may wait before it.
        taken: How far the source had read for the item that was taken last.
    """

    def __init__(self, window: ByteWindow, wake: Callable[[], None], *, max_items: int) -> None:
        self.has_ended = False
        self.taken = 0
        self._window = window
        self._wake = wake
        self._max_items = max_items
        self._items: deque[tuple[T, int]] = deque()
        self._error: Exception | None = None

    def __len__(self) -> int:
        return len(self._items)

    def on_next(self, value: T) -> None:
        if self.has_ended:
            return
        if len(self._items) >= self._max_items:
            self.on_error(BufferOverflow(self._max_items, "item"))
            return
        self._items.append((value, self._window.mark()))
        self._wake()

    def on_error(self, error: Exception) -> None:
        if not self.has_ended:
            self._error = error
            self.on_completed()

    def on_completed(self) -> None:
        self.has_ended = True
        self._wake()

    def take(self) -> T:
        """The next item."""
        item, self.taken = self._items.popleft()
        if not self._items or self._items[0][1] != self.taken:  # the last item of what was read up to there
            self._window.release(self.taken)
        return item

    def is_over(self) -> bool:
        """Whether nothing waits and nothing will come; raises what the observable failed with."""
        ended = self.has_ended  # in this order: another thread may bring an item, and then the end, meanwhile
        if self._items or not ended:
            return False
        if self._error is not None:
            raise self._error
        return True


class Inbox(Waiting[T]):
    """What waits for a consumer in this event loop.

    Args:
        window: What the source waits for.
        max_items: How many items may wait where the source knows no window; then the inbox fails.
    """

    def __init__(self, window: ByteWindow, *, max_items: int = MAX_ITEMS) -> None:
        super().__init__(window, self._tell, max_items=max_items)
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._news = asyncio.Event()

    def fill_from(self, observable: Observable[T]) -> abc.DisposableBase:
        """Subscribe to an observable, whose timers run in this loop. Disposing lets its source go on without it."""
        with offered(self._window), timers_on(LoopTimers(self._loop)):
            subscription = observable.subscribe(self)
        return CompositeDisposable(subscription, Disposable(self._window.release_all))

    async def filled(self) -> bool:
        """Wait for an item; False at the end, after which the error is raised where there is one."""
        while not self:
            self._news.clear()
            if self.is_over():
                return False
            if not self:
                self._window.release_all()
                await self._news.wait()
        return True

    def _tell(self) -> None:
        if self._news.is_set():
            return
        if threading.get_ident() == self._thread:
            self._news.set()
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._news.set)


async def until_open(window: ByteWindow) -> int:
    """Wait until the source may read on; how often it had to.

    Args:
        window: The window of the boundary behind the source.
    """
    if window.room:
        return 0
    loop = asyncio.get_running_loop()
    opened = asyncio.Event()
    waits = 0

    def resume() -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(opened.set)

    while not window.when_open(resume):
        waits += 1
        try:
            await opened.wait()
        finally:
            window.forget(resume)
        opened.clear()
    return waits
