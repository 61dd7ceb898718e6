"""How an asynchronous consumer slows its source: items wait in an `Inbox`, the source in `until_open`."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from reactivex import Observable, abc
from reactivex.disposable import CompositeDisposable, Disposable
from reactivex.scheduler.eventloop import AsyncIOThreadSafeScheduler

from rillet.operators import ByteWindow
from rillet.operators.errors import BufferOverflow
from rillet.operators.timers import timers_on
from rillet.operators.window import offered

T = TypeVar("T")

MAX_ITEMS = 1_000_000


class Inbox(abc.ObserverBase[T], Generic[T]):
    """What waits for a consumer in this event loop: each item with how far the source had read for it.

    Items may come from another thread.

    Args:
        window: What the source waits for.
        max_items: How many items may wait where the source knows no window; then the inbox fails.
    """

    def __init__(self, window: ByteWindow, *, max_items: int = MAX_ITEMS) -> None:
        self._window = window
        self._max_items = max_items
        self._queue: deque[tuple[T, int]] = deque()
        self._error: Exception | None = None
        self._ended = False
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._news = asyncio.Event()
        self.taken = 0

    def fill_from(self, observable: Observable[T]) -> abc.DisposableBase:
        """Subscribe to an observable, whose timers run in this loop. Disposing lets its source go on without it."""
        with offered(self._window), timers_on(AsyncIOThreadSafeScheduler(self._loop)):
            subscription = observable.subscribe(self)
        return CompositeDisposable(subscription, Disposable(self._window.release_all))

    def on_next(self, value: T) -> None:
        if self._ended:
            return
        if len(self._queue) >= self._max_items:
            self.on_error(BufferOverflow(self._max_items, "item"))
            return
        self._queue.append((value, self._window.mark()))
        self._wake()

    def on_error(self, error: Exception) -> None:
        if not self._ended:
            self._error = error
            self.on_completed()

    def on_completed(self) -> None:
        self._ended = True
        self._wake()

    async def filled(self) -> bool:
        """Wait for an item; False at the end, after which the error is raised where there is one."""
        while not self._queue:
            self._news.clear()
            ended = self._ended  # in this order: another thread may put an item, and then end, meanwhile
            if self._queue:
                break
            if ended and self._error is not None:
                raise self._error
            if ended:
                return False
            self._window.release_all()
            await self._news.wait()
        return True

    def take(self) -> T:
        """The next item; `taken` is then how far the source had read for it."""
        item, self.taken = self._queue.popleft()
        if not self._queue or self._queue[0][1] != self.taken:  # the last item of what was read up to there
            self._window.release(self.taken)
        return item

    def _wake(self) -> None:
        if self._news.is_set():
            return
        if threading.get_ident() == self._thread:
            self._news.set()
        else:
            call_in(self._loop, self._news.set)


def call_in(loop: asyncio.AbstractEventLoop, call: Callable[[], object]) -> None:
    """Have a loop call something soon, from any thread; nothing where the loop is closed, or is just being closed."""
    try:
        loop.call_soon_threadsafe(call)
    except RuntimeError:
        if not loop.is_closed():
            raise


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
        call_in(loop, opened.set)

    while not window.when_open(resume):
        waits += 1
        try:
            await opened.wait()
        finally:
            window.forget(resume)
        opened.clear()
    return waits
