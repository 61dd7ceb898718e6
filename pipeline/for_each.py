"""`for_each`: an awaiting handler for each item, with back-pressure to the socket."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from reactivex import Observable, abc
from reactivex.disposable import Disposable

from rillet.operators import ByteWindow
from rillet.operators.window import current_window

from .loop_timers import call_in
from .pressure import Inbox, until_open

T = TypeVar("T")
R = TypeVar("R")

LEAVE_SECONDS = 1.0

# The loop itself holds its tasks weakly.
_running: set[asyncio.Task[None]] = set()


def for_each(
    handle: Callable[[T], Awaitable[R]], *, concurrency: int = 1, window: ByteWindow | None = None
) -> Callable[[Observable[T]], Observable[R]]:
    """Await a handler for each item; while all of them are busy, the source reads no further than the window.

    .. marble::

        ---a-b-----------c|
        [  for_each(f)    ]
        -----f(a)---f(b)--f(c)|

    It is subscribed to in an event loop, where the handlers run; `await stream.pipe(for_each(f))` waits for them all.

    Args:
        handle: An asynchronous function of one item.
        concurrency: How many may run at once; 1 by default.
        window: How many wire bytes may wait for a handler; a new `ByteWindow`, of 128 KiB, by default.

    Returns:
        An operator from items to the handlers' results.

        - emits: each result, in the order of the items
        - holds back: results whose turn has not come; `concurrency` at most
        - completes: after the last result
        - fails: as the source does, after the results of the items before it; with what a handler raised, after the
          results before that one: the source is disposed then, and the other handlers are cancelled

    Raises:
        ValueError: `concurrency` is less than 1.
    """
    if concurrency < 1:
        raise ValueError(f"concurrency must be at least 1, not {concurrency}")

    def operator(source: Observable[T]) -> Observable[R]:
        def subscribe(observer: abc.ObserverBase[R], scheduler: abc.SchedulerBase | None = None) -> abc.DisposableBase:
            handling = _Handling(observer, handle, concurrency, Inbox[T](window or ByteWindow()))
            return handling.start(source)

        return Observable(subscribe)

    return operator


class _Handling(Generic[T, R]):
    """One subscription: a task that starts the handlers, and one that hands on their results."""

    def __init__(
        self,
        observer: abc.ObserverBase[R],
        handle: Callable[[T], Awaitable[R]],
        concurrency: int,
        inbox: Inbox[T],
    ) -> None:
        self._observer = observer
        self._handle = handle
        self._inbox = inbox
        self._below = current_window()
        self._free = asyncio.Semaphore(concurrency)
        self._started: asyncio.Queue[tuple[asyncio.Task[R], int] | None] = asyncio.Queue()
        self._handlers: set[asyncio.Task[R]] = set()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._disposed = False

    def start(self, source: Observable[T]) -> abc.DisposableBase:
        """Subscribe to the source, and start; disposing stops it, from any thread."""
        self._upstream = self._inbox.fill_from(source)
        self._task = self._loop.create_task(self._run())
        _running.add(self._task)
        self._task.add_done_callback(_running.discard)
        return Disposable(self._stop)

    def _stop(self) -> None:
        self._disposed = True
        self._upstream.dispose()
        call_in(self._loop, self._task.cancel)
        if threading.get_ident() != self._thread and self._loop.is_running():
            # The step that a handler is in ends before this returns, unless it waits for this very thread.
            passed = threading.Event()
            call_in(self._loop, passed.set)
            passed.wait(LEAVE_SECONDS)

    async def _run(self) -> None:
        starting = self._loop.create_task(self._start_all())
        try:
            await self._hand_on_all()
            await starting
        except Exception as error:
            failure: Exception | None = error
        else:
            failure = None
        finally:
            self._upstream.dispose()
            for task in (starting, *self._handlers):
                task.cancel()
            await asyncio.gather(starting, *self._handlers, return_exceptions=True)
        if self._disposed:
            return
        if failure is None:
            self._observer.on_completed()
        else:
            self._observer.on_error(failure)

    async def _start_all(self) -> None:
        try:
            await self._free.acquire()  # before an item is taken: until then the window counts it
            while await self._inbox.filled():
                task = self._loop.create_task(self._handled(self._inbox.take()))
                self._handlers.add(task)
                self._started.put_nowait((task, self._inbox.taken))
                await self._free.acquire()
        finally:
            self._started.put_nowait(None)

    async def _handled(self, item: T) -> R:
        if self._disposed:  # between its start and its first step
            raise asyncio.CancelledError
        return await self._handle(item)

    async def _hand_on_all(self) -> None:
        handed_on = 0
        while (next_one := await self._started.get()) is not None:
            task, mark = next_one
            await asyncio.wait((task,))
            self._handlers.discard(task)
            if task.cancelled():
                raise RuntimeError("a handler was cancelled")
            if self._below is not None:
                await until_open(self._below)
                self._below.add(mark - handed_on)
                handed_on = mark
            self._observer.on_next(task.result())
            self._free.release()
