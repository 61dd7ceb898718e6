"""`iterate`: an observable as an asynchronous iterator, with back-pressure to the socket."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncGenerator
from typing import TypeVar

from reactivex import Observable

from rillet.operators import ByteWindow
from rillet.operators.window import offered

T = TypeVar("T")


async def iterate(observable: Observable[T], *, window: ByteWindow | None = None) -> AsyncGenerator[T, None]:
    """Iterate over an observable; while the consumer is busy, its source reads no further than the window.

    It subscribes at the first step and disposes on any exit: the end, an error, `break`, cancellation. Items may come
    from another thread.

    Args:
        observable: What to iterate over.
        window: How many wire bytes may wait for the consumer; a new `ByteWindow`, of 1 MiB, by default.

    Yields:
        Each item, in order. A source that knows no window (one that is not `bytes_from`) can't be slowed: what it
        pushes waits here.

    Raises:
        Exception: Whatever the observable failed with, after the items before it.
    """
    window = window or ByteWindow()
    inbox = _Inbox[T](window)
    with offered(window):
        subscription = observable.subscribe(inbox.put, inbox.fail, inbox.end)
    try:
        while await inbox.filled():
            yield inbox.take()
    finally:
        subscription.dispose()
        window.release_all()  # a source that others share must not wait for this consumer any more


class _Inbox(deque[tuple[T, int]]):
    """What waits for the consumer: each item with how far the source had read for it."""

    def __init__(self, window: ByteWindow) -> None:
        super().__init__()
        self._window = window
        self._error: Exception | None = None
        self._ended = False
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._news = asyncio.Event()

    def put(self, item: T) -> None:
        self.append((item, self._window.mark()))
        self._wake()

    def fail(self, error: Exception) -> None:
        self._error = error
        self.end()

    def end(self) -> None:
        self._ended = True
        self._wake()

    async def filled(self) -> bool:
        """Wait for an item; False at the end."""
        while not self:
            self._news.clear()
            ended = self._ended  # in this order: another thread may put an item, and then end, meanwhile
            if self:
                break
            if ended and self._error is not None:
                raise self._error
            if ended:
                return False
            self._window.release_all()
            await self._news.wait()
        return True

    def take(self) -> T:
        item, mark = self.popleft()
        if not self or self[0][1] != mark:  # the last item of what was read up to the mark
            self._window.release(mark)
        return item

    def _wake(self) -> None:
        if self._news.is_set():
            return
        if threading.get_ident() == self._thread:
            self._news.set()
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._news.set)
