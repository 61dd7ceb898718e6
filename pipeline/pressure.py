"""How a consumer that runs apart slows its source: items wait in `Waiting`, the source in `until_open`."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

from reactivex import Observable, abc
from reactivex.disposable import CompositeDisposable, Disposable

from rillet.operators import ByteWindow
from rillet.operators.errors import BufferOverflow
from rillet.operators.stage import BatchObserver, subscribe_in_batches
from rillet.operators.timers import timers_on
from rillet.operators.window import offered

from .loop_timers import LoopTimers, call_in

T = TypeVar("T")

MAX_ITEMS = 1_000_000


class Waiting(BatchObserver[T]):
    """What waits for a consumer, batch by batch, each with how far the source had read for it.

    Items may come from another thread than they are taken on.

    Args:
        window: What the source waits for.
        wake: Called after each batch and after the end, on the thread that brought it.
        max_items: How many items may wait where the source knows no window; then it fails.

    Attributes:
        batches: What waits, each batch with how far the source had read for it; it stays until its last item is taken.
        has_ended: Whether the end has come, though items may wait before it.
        taken: How far the source had read for the item that was taken last.
    """

    def __init__(self, window: ByteWindow, wake: Callable[[], None], *, max_items: int) -> None:
        self.batches: deque[tuple[Sequence[T], int]] = deque()
        self.has_ended = False
        self.taken = 0
        self._window = window
        self._wake = wake
        self._max_items = max_items
        self._mark = 0
        self._count_in = 0  # each of the two is counted on one thread alone
        self._count_out = 0
        self._at = 0
        self._error: Exception | None = None

    def __len__(self) -> int:
        return self._count_in - self._count_out - self._at

    def on_next(self, value: T) -> None:
        self.on_batch((value,))

    def on_batch(self, values: Sequence[T]) -> None:
        """The same for several at once."""
        if self.has_ended:
            return
        room = self._max_items - self._count_in + self._count_out
        if len(values) > room:
            self._put(values[:room])
            self.on_error(BufferOverflow(self._max_items, "item"))
        else:
            self._put(values)

    def on_error(self, error: Exception) -> None:
        if not self.has_ended:
            self._error = error
            self.on_completed()

    def on_completed(self) -> None:
        self.has_ended = True
        self._wake()

    @property
    def batch(self) -> Sequence[T]:
        """The first batch; `drop_batch` is to follow once it was taken."""
        return self.batches[0][0]

    def take(self) -> T:
        """The next item, whatever batch it is in."""
        values, self.taken = self.batches[0]
        item = values[self._at]
        self._at += 1
        if self._at == len(values):
            self._at = 0
            self.drop_batch()
        return item

    def drop_batch(self) -> None:
        """The first batch was taken."""
        values, mark = self.batches.popleft()
        self._count_out += len(values)
        if not self.batches or self.batches[0][1] != mark:  # the last of what was read up to there
            self._window.release(mark)

    def is_over(self) -> bool:
        """Whether nothing waits and nothing will come; raises what the observable failed with."""
        ended = self.has_ended  # in this order: another thread may bring an item, and then the end, meanwhile
        if self.batches or not ended:
            return False
        if self._error is not None:
            raise self._error
        return True

    def _put(self, values: Sequence[T]) -> None:
        if not values:
            return
        if self._window.read != self._mark or self._window.starving:  # else it is that of the batch before
            self._mark = self._window.mark()
        self.batches.append((values, self._mark))
        self._count_in += len(values)  # in this order: what another thread counts, it takes
        self._wake()


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
            subscription = subscribe_in_batches(observable, self)
        return CompositeDisposable(subscription, Disposable(self._window.release_all))

    async def filled(self) -> bool:
        """Wait for an item; False at the end, after which the error is raised where there is one."""
        while not self.batches:
            self._news.clear()
            if self.is_over():
                return False
            if not self.batches:
                self._window.release_all()
                await self._news.wait()
        return True

    def _tell(self) -> None:
        if self._news.is_set():
            return
        if threading.get_ident() == self._thread:
            self._news.set()
        else:
            call_in(self._loop, self._news.set)


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
