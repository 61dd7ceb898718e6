"""`run_in_background`: an observable that needs an event loop, for programs that have none."""

from __future__ import annotations

import asyncio
import atexit
import threading
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Generic, Self, TypeAlias, TypeVar

import aiohttp
from reactivex import Observable, abc, throw
from reactivex import operators as ops
from reactivex.disposable import Disposable, SingleAssignmentDisposable
from reactivex.scheduler.eventloop import AsyncIOThreadSafeScheduler

from rillet.operators import ByteWindow
from rillet.operators.errors import BufferOverflow
from rillet.operators.timers import timers_on
from rillet.operators.window import offered

from .pressure import MAX_ITEMS

T = TypeVar("T")

Work: TypeAlias = Observable[T] | Callable[[aiohttp.ClientSession], Observable[T]]
"""An observable, or what makes one with the loop's session: `lambda session: ask(session, "Hello?")`."""

Post: TypeAlias = Callable[[Callable[[], None]], object]
"""Has a function called on another thread, soon, and does not wait for it: a queue's `put`, a Qt signal's `emit`."""

EXIT_SECONDS = 5.0


class BackgroundLoop:
    """An event loop in a thread of its own, with an aiohttp session: for GUI programs, and for scripts.

    The thread starts at the first subscription, or where a `with` block is entered, and ends with `stop` or the block.

    Args:
        make_session: Makes the session, in the loop; by default a plain one.
    """

    def __init__(self, make_session: Callable[[], aiohttp.ClientSession] = aiohttp.ClientSession) -> None:
        self._make_session = make_session
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = False
        self._runs: set[_Run[Any]] = set()

    def run(self, work: Work[T], *, post: Post | None = None) -> Background[T]:
        """What `run_in_background` gives, on this loop instead of one of its own."""
        return Background(work, post=post, loop=self)

    def stop(self) -> None:
        """End the thread, and wait until it has ended; from any thread, and as often as you like.

        What runs is disposed: its subscribers hear nothing more, and a `for` raises `RuntimeError`. The session is
        closed. On the loop's own thread, in an `on_next`, it does not wait. A stopped loop does not start again.
        """
        self.ask_to_stop()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def ask_to_stop(self) -> None:
        """The same without waiting."""
        with self._lock:
            self._stopped = True
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._leave.set)

    def __enter__(self) -> Self:
        with self._lock:
            self._started()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def start(self, run: _Run[Any]) -> None:
        """Start a subscription on the loop; its context variables are the caller's."""
        with self._lock:
            loop = self._started()
            self._runs.add(run)
            loop.call_soon_threadsafe(run.start, self._session, loop)

    def end(self, run: _Run[Any]) -> None:
        """End a subscription: at once on the loop's own thread, soon from any other."""
        if threading.current_thread() is self._thread:
            self._end(run)
            return
        with self._lock:
            if self._loop is not None:  # else the loop has ended it, or is about to
                self._loop.call_soon_threadsafe(self._end, run)

    def _end(self, run: _Run[Any]) -> None:
        self._runs.discard(run)
        run.end()

    def _started(self) -> asyncio.AbstractEventLoop:
        if self._stopped:
            raise RuntimeError("the background loop was stopped")
        if self._loop is None:
            started: Future[asyncio.AbstractEventLoop] = Future()
            # The interpreter waits for other threads before it runs what was registered for its exit; for a daemon it
            # does not. So one that was forgotten is stopped there, with all it has open.
            self._thread = threading.Thread(target=self._main, args=(started,), name="rillet loop", daemon=True)
            self._thread.start()
            self._loop = started.result()
            atexit.register(self._at_exit)
        return self._loop

    def _main(self, started: Future[asyncio.AbstractEventLoop]) -> None:
        asyncio.run(self._serve(started))
        atexit.unregister(self._at_exit)

    async def _serve(self, started: Future[asyncio.AbstractEventLoop]) -> None:
        try:
            self._session = self._make_session()
        except Exception as error:
            started.set_exception(error)
            return
        self._leave = asyncio.Event()
        async with self._session:
            started.set_result(asyncio.get_running_loop())
            await self._leave.wait()
            with self._lock:
                self._loop = None
            for run in tuple(self._runs):
                self._end(run)

    def _at_exit(self) -> None:
        self.ask_to_stop()
        if self._thread is not None:
            self._thread.join(EXIT_SECONDS)  # a subscriber that blocks the loop must not hold the exit for ever


class _Run(Generic[T]):
    """One subscription on a loop.

    Args:
        loop: The loop.
        owns_loop: Whether the loop ends with it.
        work: What is subscribed to.
        observer: Who subscribes.
        scheduler: The scheduler given at subscribe.
        ended: Called on the loop's thread once it has ended, however it did.
    """

    def __init__(
        self,
        loop: BackgroundLoop,
        owns_loop: bool,
        work: Work[T],
        observer: abc.ObserverBase[T],
        scheduler: abc.SchedulerBase | None,
        ended: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._owns_loop = owns_loop
        self._work = work
        self._observer = observer
        self._scheduler = scheduler
        self._ended = ended
        self._disposed = False
        self._upstream = SingleAssignmentDisposable()

    def dispose(self) -> None:
        """End it, from any thread, without waiting."""
        self._disposed = True
        self._loop.end(self)

    def stop(self) -> None:
        """End it; where the loop ends with it, wait for that."""
        self.dispose()
        if self._owns_loop:
            self._loop.stop()

    def start(self, session: aiohttp.ClientSession, loop: asyncio.AbstractEventLoop) -> None:
        """On the loop's thread: subscribe."""
        if self._disposed:
            return
        try:
            observable = self._work(session) if callable(self._work) else self._work
        except Exception as error:
            observable = throw(error)
        watched = observable.pipe(ops.finally_action(self.dispose))
        with timers_on(AsyncIOThreadSafeScheduler(loop)):
            self._upstream.disposable = watched.subscribe(self._observer, scheduler=self._scheduler)

    def end(self) -> None:
        """On the loop's thread: dispose."""
        self._upstream.dispose()
        self._ended()
        if self._owns_loop:
            self._loop.ask_to_stop()


class _Queue(abc.ObserverBase[T]):
    """What waits for a consumer on another thread: each item with how far the source had read for it.

    Args:
        window: What the source waits for.
        wake: Called after each item and after the end, on the thread that brought it.
    """

    def __init__(self, window: ByteWindow, wake: Callable[[], None]) -> None:
        self._window = window
        self._wake = wake
        self._items: deque[tuple[T, int]] = deque()
        self._error: Exception | None = None
        self._ended = False

    def __len__(self) -> int:
        return len(self._items)

    @property
    def has_ended(self) -> bool:
        """Whether the end has come, though items may wait before it."""
        return self._ended

    def on_next(self, value: T) -> None:
        if self._ended:
            return
        if len(self._items) >= MAX_ITEMS:
            self.on_error(BufferOverflow(MAX_ITEMS, "item"))
            return
        self._items.append((value, self._window.mark()))
        self._wake()

    def on_error(self, error: Exception) -> None:
        if not self._ended:
            self._error = error
            self.on_completed()

    def on_completed(self) -> None:
        self._ended = True
        self._wake()

    def take(self) -> T:
        """The next item."""
        item, mark = self._items.popleft()
        if not self._items or self._items[0][1] != mark:  # the last item of what was read up to the mark
            self._window.release(mark)
        return item

    def is_over(self) -> bool:
        """Whether nothing waits and nothing will come; raises what the observable failed with."""
        ended = self._ended  # in this order: another thread may bring an item, and then the end, meanwhile
        if self._items or not ended:
            return False
        if self._error is not None:
            raise self._error
        return True


class _Posted(Generic[T]):
    """Brings what one subscription gives to the thread that `post` reaches, with one call there for all that waits."""

    def __init__(self, observer: abc.ObserverBase[T], post: Post) -> None:
        self._observer = observer
        self._post = post
        self._posted = False
        self._disposed = False
        self.window = ByteWindow()
        self.queue = _Queue[T](self.window, self._wake)
        self.upstream = SingleAssignmentDisposable()

    def dispose(self) -> None:
        self._disposed = True
        self.upstream.dispose()
        self.window.release_all()  # a source that others share must not wait for this subscriber any more

    def stopped(self) -> None:
        """The subscription has ended on the loop; where nothing had ended it there, nothing more is delivered."""
        if not self.queue.has_ended:
            self._disposed = True

    def _wake(self) -> None:
        if self._posted or self._disposed:
            return
        self._posted = True
        try:
            self._post(self._deliver)
        except Exception:
            self._posted = False
            raise

    def _deliver(self) -> None:
        self._posted = False
        try:
            for _ in range(len(self.queue)):  # what comes meanwhile waits for the next call: the thread has other work
                if self._disposed:
                    return
                self._observer.on_next(self.queue.take())
            is_over = self.queue.is_over()
        except Exception as error:  # the observable's, or the subscriber's own
            self.dispose()
            self._observer.on_error(error)
            return
        if is_over:
            self._observer.on_completed()
        elif self.queue:
            self._wake()
        else:
            self.window.release_all()


class Background(Observable[T]):
    """An observable that works in another thread: made by `run_in_background` and `BackgroundLoop.run`.

    Subscribe and dispose from any thread, or loop over it with `for`. In a `with` block it is stopped at the end.
    """

    def __init__(self, work: Work[T], *, post: Post | None = None, loop: BackgroundLoop | None = None) -> None:
        super().__init__(self._subscribe_here if post is None else self._subscribe_there)
        self._work = work
        self._post = post
        self._loop = loop
        self._runs: set[_Run[T]] = set()

    def stop(self) -> None:
        """Dispose all its subscriptions; where they have loops of their own, wait until their threads have ended.

        From any thread, and as often as you like. Subscribers hear nothing more; a `for` raises `RuntimeError`.
        """
        for run in tuple(self._runs):
            run.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def __iter__(self) -> Generator[T]:
        """Loop over the items; it subscribes at the first step and disposes on any exit, as `iterate` does.

        While the body of the loop is busy, the source reads no further than a window of 128 KiB.

        Yields:
            Each item, in order.

        Raises:
            Exception: Whatever the observable failed with, after the items before it.
            BufferOverflow: A source that can't be made to wait ran away, after the million items that waited.
            RuntimeError: It was stopped.
        """
        window = ByteWindow()
        news = threading.Event()
        queue = _Queue[T](window, news.set)

        def ended() -> None:
            queue.on_error(RuntimeError("the background loop was stopped"))

        with offered(window):
            run = self._start(queue, None, ended)
        try:
            while True:
                while queue:
                    yield queue.take()
                news.clear()
                if queue.is_over():
                    return
                if not queue:
                    window.release_all()
                    news.wait()
        finally:
            run.stop()
            window.release_all()

    def _subscribe_here(
        self, observer: abc.ObserverBase[T], scheduler: abc.SchedulerBase | None = None
    ) -> abc.DisposableBase:
        return Disposable(self._start(observer, scheduler).dispose)

    def _subscribe_there(
        self, observer: abc.ObserverBase[T], scheduler: abc.SchedulerBase | None = None
    ) -> abc.DisposableBase:
        assert self._post is not None
        posted = _Posted(observer, self._post)
        posted.window.release_all()  # its queue is empty: the first item may be larger than the window
        with offered(posted.window):
            run = self._start(posted.queue, scheduler, posted.stopped)
        posted.upstream.disposable = Disposable(run.dispose)
        return Disposable(posted.dispose)

    def _start(
        self,
        observer: abc.ObserverBase[T],
        scheduler: abc.SchedulerBase | None,
        ended: Callable[[], None] = lambda: None,
    ) -> _Run[T]:
        def over() -> None:
            self._runs.discard(run)
            ended()

        loop = self._loop or BackgroundLoop()
        run = _Run(loop, self._loop is None, self._work, observer, scheduler, over)
        self._runs.add(run)
        try:
            loop.start(run)
        except Exception:
            self._runs.discard(run)
            raise
        return run


def run_in_background(work: Work[T], *, post: Post | None = None) -> Background[T]:
    """Let an observable that needs an event loop work in a thread that has one: for GUI programs, and for scripts.

    A script loops over it:

        for delta in run_in_background(lambda session: ask(session, "Hello?")):
            ...

    A GUI program subscribes, and has what comes brought to its own thread, at most once a frame:

        run_in_background(lambda session: ask(session, "Hello?").pipe(coalesce(1 / 30)), post=calls.put).subscribe(show)

    Cold: each subscription starts a loop in a thread of its own, with its own session, and its end, or `dispose` from
    any thread, ends them. A program that asks more than once keeps one loop and session: `BackgroundLoop`, whose `run`
    does the same. A daemon thread does the work, so the interpreter does not wait for it; one that nobody stopped is
    stopped at exit.

    Args:
        work: The observable; or a function that makes it with an `aiohttp.ClientSession` of the loop, which is closed
            when the loop ends.
        post: Has a function called on the thread that is to get the items, from another thread and without waiting for
            it; by default they are delivered on the loop's thread. All that waits there is delivered in one call, and
            the source reads no further ahead than a window of 128 KiB.

    Returns:
        The observable.

        - emits: what `work` emits, on the loop's thread or the one that `post` reaches
        - buffers up to: with `post` and in a `for`, a `ByteWindow`; else nothing
        - completes: with `work`
        - fails: with `work`; with what it raises; with `post`, with whatever a subscriber's `on_next` raised, and with
          `BufferOverflow` where a source that knows no window lets a million items wait

        The timers of this library's operators run on the loop, where they were given no other.
    """
    return Background(work, post=post)
