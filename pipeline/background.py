"""`run_in_background`: an observable that needs an event loop, for programs that have none."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator
from types import TracebackType
from typing import Generic, Self, TypeAlias, TypeVar

import aiohttp
from reactivex import Observable, abc, throw
from reactivex import operators as ops
from reactivex.disposable import Disposable, SingleAssignmentDisposable

from rillet.operators import ByteWindow
from rillet.operators.timers import timers_on
from rillet.operators.window import offered

from .loop_thread import LoopThread
from .loop_timers import LoopTimers, loop_here
from .pressure import MAX_ITEMS, Waiting

T = TypeVar("T")

Work: TypeAlias = Observable[T] | Callable[[aiohttp.ClientSession], Observable[T]]
"""An observable, or what makes one with the loop's session: `lambda session: ask(session, "Hello?")`."""

Post: TypeAlias = Callable[[Callable[[], None]], object]
"""Has a function called on another thread, soon, and does not wait for it: a queue's `put`, a Qt signal's `emit`."""


class BackgroundLoop:
    """An event loop in a thread of its own, with an aiohttp session: for GUI programs, and for scripts.

    The thread starts at the first subscription, or where a `with` block is entered, and ends with `stop` or the block.

    Args:
        make_session: Makes the session, in the loop; by default a plain one.
    """

    def __init__(self, make_session: Callable[[], aiohttp.ClientSession] = aiohttp.ClientSession) -> None:
        self._thread = LoopThread(make_session)

    def run(self, work: Work[T], *, post: Post | None = None) -> Background[T]:
        """What `run_in_background` gives, on this loop instead of one of its own."""
        return Background(work, post=post, thread=self._thread)

    def stop(self) -> None:
        """End the thread, and wait until it has ended; from any thread, and as often as you like.

        What runs is disposed: its subscribers hear nothing more, and a `for` raises `RuntimeError`. The session is
        closed. On the loop's own thread, in an `on_next`, it does not wait. A stopped loop does not start again.
        """
        self._thread.stop()

    def __enter__(self) -> Self:
        self._thread.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()


class _Run(Generic[T]):
    """One subscription on a loop.

    Args:
        thread: The loop's thread.
        owns_thread: Whether that ends with it.
        work: What is subscribed to.
        observer: Who subscribes.
        scheduler: The scheduler given at subscribe.
        ended: Called on the loop's thread once it has ended, however it did.
    """

    def __init__(
        self,
        thread: LoopThread,
        owns_thread: bool,
        work: Work[T],
        observer: abc.ObserverBase[T],
        scheduler: abc.SchedulerBase | None,
        ended: Callable[[], None],
    ) -> None:
        self._thread = thread
        self._owns_thread = owns_thread
        self._work = work
        self._observer = observer
        self._scheduler = scheduler
        self._ended = ended
        self._disposed = False
        self._upstream = SingleAssignmentDisposable()

    def dispose(self) -> None:
        """End it, from any thread, without waiting."""
        self._disposed = True
        self._thread.end(self)

    def stop(self) -> None:
        """End it; where its thread ends with it, wait for that."""
        self.dispose()
        if self._owns_thread:
            self._thread.stop()

    def start(self, session: aiohttp.ClientSession, loop: asyncio.AbstractEventLoop) -> None:
        """On the loop's thread: subscribe."""
        if self._disposed:
            return
        try:
            observable = self._work(session) if callable(self._work) else self._work
        except Exception as error:
            observable = throw(error)
        watched = observable.pipe(ops.finally_action(self.dispose))
        with timers_on(LoopTimers(loop)):
            self._upstream.disposable = watched.subscribe(self._observer, scheduler=self._scheduler)

    def end(self) -> None:
        """On the loop's thread: dispose."""
        self._disposed = True
        self._upstream.dispose()
        self._ended()
        if self._owns_thread:
            self._thread.ask_to_stop()


class _Posted(Generic[T]):
    """Brings what one subscription gives to the thread that `post` reaches, with one call there for all that waits."""

    def __init__(self, observer: abc.ObserverBase[T], post: Post) -> None:
        self._observer = observer
        self._post = post
        self._posted = False
        self._disposed = False
        self.window = ByteWindow()
        self.queue = Waiting[T](self.window, self._wake, max_items=MAX_ITEMS)
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
        elif self.queue.batches:
            self._wake()
        else:
            self.window.release_all()


class Background(Observable[T]):
    """An observable that works in another thread: made by `run_in_background` and `BackgroundLoop.run`.

    Subscribe and dispose from any thread, or loop over it with `for`; a coroutine, whose loop that would block, has
    `iterate`. In a `with` block it is stopped at the end.
    """

    def __init__(self, work: Work[T], *, post: Post | None = None, thread: LoopThread | None = None) -> None:
        super().__init__(self._subscribe_here if post is None else self._subscribe_there)
        self._work = work
        self._post = post
        self._thread = thread
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
            RuntimeError: It was stopped; or an event loop runs in this thread, which the waiting would block.
        """
        if loop_here() is not None:
            raise RuntimeError("a `for` over it blocks the event loop that runs here: use iterate")
        window = ByteWindow()
        news = threading.Event()
        queue = Waiting[T](window, news.set, max_items=MAX_ITEMS)

        def ended() -> None:
            queue.on_error(RuntimeError("the background loop was stopped"))

        with offered(window):
            run = self._start(queue, None, ended)
        try:
            while True:
                while queue.batches:
                    yield queue.take()
                news.clear()
                if queue.is_over():
                    return
                if not queue.batches:
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

        thread = self._thread or LoopThread()
        run = _Run(thread, self._thread is None, self._work, observer, scheduler, over)
        self._runs.add(run)
        try:
            thread.start(run)
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
