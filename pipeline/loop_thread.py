"""`LoopThread`: an event loop in a thread of its own, with an aiohttp session, and what runs on it."""

from __future__ import annotations

import asyncio
import atexit
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol

import aiohttp

EXIT_SECONDS = 5.0


class Run(Protocol):
    """What runs on the loop; both are called on its thread."""

    def start(self, session: aiohttp.ClientSession, loop: asyncio.AbstractEventLoop) -> None:
        """Begin; its context variables are those of whoever had it started."""

    def end(self) -> None:
        """End, once."""


class LoopThread:
    """An event loop in a thread, which starts at the first run, or before.

    Args:
        make_session: Makes the session, in the loop.
    """

    def __init__(self, make_session: Callable[[], aiohttp.ClientSession] = aiohttp.ClientSession) -> None:
        self._make_session = make_session
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = False
        self._runs: set[Run] = set()

    def begin(self) -> None:
        """Start the thread, where it has not started."""
        with self._lock:
            self._started()

    def start(self, run: Run) -> None:
        """Have something start on the loop."""
        with self._lock:
            loop = self._started()
            self._runs.add(run)
            loop.call_soon_threadsafe(run.start, self._session, loop)

    def end(self, run: Run) -> None:
        """Have it end: at once on the loop's own thread, soon from any other."""
        if threading.current_thread() is self._thread:
            self._end(run)
            return
        with self._lock:
            if self._loop is not None:  # else the loop has ended it, or is about to
                self._loop.call_soon_threadsafe(self._end, run)

    def stop(self) -> None:
        """End what runs, and the thread, and wait until it has ended; on the thread itself, without waiting."""
        self.ask_to_stop()
        if self._thread is threading.current_thread():
            self._end_all()
        elif self._thread is not None:
            self._thread.join()

    def ask_to_stop(self) -> None:
        """The same without waiting."""
        with self._lock:
            self._stopped = True
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._leave.set)

    def _end(self, run: Run) -> None:
        self._runs.discard(run)
        run.end()

    def _end_all(self) -> None:
        for run in tuple(self._runs):
            self._end(run)

    def _started(self) -> asyncio.AbstractEventLoop:
        if self._stopped:
            raise RuntimeError("the background loop was stopped")
        if self._loop is None:
            started: Future[asyncio.AbstractEventLoop] = Future()
            # The interpreter waits for other threads before it runs what was registered for its exit; for a daemon it
            # does not. So one that was forgotten is stopped there, with all it has open.
            self._thread = threading.Thread(target=self._main, args=(started,), name="rillet loop", daemon=True)
            self._thread.start()
            try:
                self._loop = started.result()
            except Exception:
                self._thread.join()
                raise
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
            self._end_all()

    def _at_exit(self) -> None:
        self.ask_to_stop()
        if self._thread is not None:
            self._thread.join(EXIT_SECONDS)  # a subscriber that blocks the loop must not hold the exit for ever
