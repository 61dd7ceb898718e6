"""`bytes_from`: the body of an HTTP answer as a cold observable, read no faster than it is consumed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Literal, Unpack

import aiohttp
from reactivex import Observable, abc
from reactivex.disposable import Disposable

from rillet.operators import ByteWindow, Stage
from rillet.operators.errors import DeadlineExceeded, TransportError
from rillet.operators.meter import Meter, current_meter, metering
from rillet.operators.progress_timeout import TICKS
from rillet.operators.window import current_window

from .body import Body
from .connect import RequestOptions, connect, decoder, in_force, log, silence
from .loop_timers import call_in, runs_here
from .pressure import until_open
from .timeouts import DEFAULT_TIMEOUTS, Timeouts, checked

LEAVE_SECONDS = 1.0
SESSION_SECONDS = 0.25

OVER = "%d bytes read, %d stalls, then %s"

# The loop itself holds its tasks weakly: one that waits for a window only its consumer knows would be collected.
_reading: set[asyncio.Task[None]] = set()


def bytes_from(
    session: aiohttp.ClientSession,
    method: str,
    url: str,
    *,
    content_type: str | None = "text/event-stream",
    window: ByteWindow | None = None,
    timeouts: Timeouts = DEFAULT_TIMEOUTS,
    **request: Unpack[RequestOptions],
) -> Observable[bytes]:
    """The body of an HTTP answer, in the pieces that the network gives.

    .. marble::

        subscribe---status, type---bytes---bytes---bytes---|

    Cold: each subscription makes its request, from the event loop it is subscribed in, and never pushes inside
    `subscribe`. Everything a subscriber does in `on_next` is done before more is read. Disposing, from any thread,
    stops the reading and closes the connection at once, and nothing is delivered after it; from inside `on_next` what
    is already there is drained first, for 20 ms and 64 KiB at most, so that a connection whose answer is over goes
    back to the pool.

    Args:
        session: The session to use; its timeouts count, but for `total`, which would cut a long answer. That of a
            `timeout` among the request's arguments does.
        method: The HTTP method.
        url: Where to.
        content_type: The content type that the answer must have, parameters aside; None takes any.
        window: The window that slows the reading; by default that of the boundary that subscribes, if there is one.
        timeouts: How long each kind of waiting may last; see `Timeouts` for the defaults. `progress` counts where
            `decode_deltas` or `deltas` reads the bytes; elsewhere up to the answer's start alone, see
            `progress_timeout`.
        request: Further arguments of `aiohttp.ClientSession.request`. Redirects are followed unless
            `allow_redirects=False`; where they lead to another origin, aiohttp drops `Authorization`, and no other
            header that may hold a key.

    Returns:
        An observable of bytes.

        - emits: each piece of the body, decompressed (gzip, deflate; br and zstd with the extra `compress`)
        - buffers up to: the window's limit and one read of the socket; without a window, one read
        - completes: at the clean end of the body; whether the answer is whole is not its to say
        - fails: `HttpStatusError` for any status but 200; `NotAnEventStream` for another content type;
          `TransportError` where no answer came or its compression is damaged, `ConnectTimeout` where no connection
          could be made in time; `TruncatedStream` where the body broke; `IdleTimeout` and `DeadlineExceeded` where a
          time ran out; whatever a subscriber's `on_next` raised

    Raises:
        TypeError: `timeouts` is something else.
        ValueError: One of them is below 0.

    Source: HTML Standard §9.2.3 (status and content type of an event stream).
    """

    waits = checked(timeouts)

    def subscribe(observer: abc.ObserverBase[bytes], scheduler: abc.SchedulerBase | None = None) -> abc.DisposableBase:
        limits = in_force(waits, session, request)
        reading = _Reading(observer, window or current_window(), current_meter() or Meter(), limits, session.connector)
        reading.start(
            session,
            lambda: connect(session, method, url, content_type=content_type, timeouts=limits, request=request),
        )
        return Disposable(reading.dispose)

    return Observable(subscribe)


class _Reading:
    """One subscription: one request, read by one task."""

    def __init__(
        self,
        observer: abc.ObserverBase[bytes],
        window: ByteWindow | None,
        meter: Meter,
        timeouts: Timeouts,
        connector: aiohttp.BaseConnector | None,
    ) -> None:
        self._observer = observer
        self._window = window
        self._meter = meter
        self._timeouts = timeouts
        self._connector = connector
        self._loop = asyncio.get_running_loop()
        self._body: Body | None = None
        self._lock = threading.RLock()  # held while something is delivered
        self._disposed = False
        self._waits = False
        self._fault: Exception | None = None
        self._timers: dict[str, asyncio.TimerHandle] = {}

    @property
    def _bytes_read(self) -> int:
        return 0 if self._body is None else self._body.bytes_read

    def start(self, session: aiohttp.ClientSession, answer: Callable[[], Awaitable[aiohttp.ClientResponse]]) -> None:
        with metering(None):  # what is subscribed to from inside on_next, or after an error, is another stream
            self._task = self._loop.create_task(self._run(answer))
        _reading.add(self._task)
        self._task.add_done_callback(_reading.discard)
        self._timers["session"] = self._loop.call_later(SESSION_SECONDS, self._watch_session, session)
        total, progress = self._timeouts.total, self._timeouts.progress
        if total is not None:
            self._timers["total"] = self._loop.call_later(total, self._expire, total)
        if progress is not None:
            self._watch("progress", progress, self._meter.deltas)

    def dispose(self) -> None:
        self._disposed = True
        if runs_here(self._loop):
            self._stop()
            return
        call_in(self._loop, self._stop)
        # What is being delivered now ends before this returns, unless it waits for this very thread.
        if self._lock.acquire(timeout=LEAVE_SECONDS):
            self._lock.release()

    def _stop(self) -> None:
        if asyncio.current_task(self._loop) is self._task:
            return  # inside on_next: the reading goes no further once that returns
        self._task.cancel()
        self._close()  # a task that is cancelled before its first step does not come to it

    def _fail(self, error: Exception) -> None:
        if self._fault is None and not self._task.done():
            self._fault = error
            self._task.cancel()

    def _expire(self, seconds: float) -> None:
        self._fail(DeadlineExceeded(seconds, bytes_seen=self._bytes_read))

    def _watch_session(self, session: aiohttp.ClientSession) -> None:
        """Look now and then whether it is closed: that wakes nobody who waits for an answer's start."""
        if session.closed:
            self._fail(_session_closed())
        else:
            self._timers["session"] = self._loop.call_later(SESSION_SECONDS, self._watch_session, session)

    def _watch(self, which: Literal["liveness", "progress"], seconds: float, seen: int = 0, idle: int = 0) -> None:
        """One coarse timer a stream, not one a read or a delta: it looks four times, and is late by a quarter at most.

        Time that is spent waiting for a window is nobody's silence.
        """
        if idle == TICKS:
            self._fail(silence(which, seconds, self._bytes_read))
            return
        self._timers[which] = self._loop.call_later(
            seconds / TICKS, self._look, which, seconds, seen, idle, self._waits
        )

    def _look(self, which: Literal["liveness", "progress"], seconds: float, seen: int, idle: int, waited: bool) -> None:
        now = self._bytes_read if which == "liveness" else self._meter.deltas
        moved = self._waits or waited or now != seen
        self._watch(which, seconds, now, 0 if moved else idle + 1)

    async def _run(self, answer: Callable[[], Awaitable[aiohttp.ClientResponse]]) -> None:
        failure: Exception | None = None
        try:
            response = await answer()
            self._body = Body(response, self._connector)
            self._timers["session"].cancel()  # from here on the connection itself is watched
            if self._timeouts.liveness is not None:
                self._watch("liveness", self._timeouts.liveness)
            if "progress" in self._timers and not self._meter.feeds_decoder:
                self._timers["progress"].cancel()  # it was for provisional answers: after one, aiohttp times no silence
            await self._read(self._body, decoder(response))
        except asyncio.CancelledError:
            if self._fault is None and self._task.cancelling():
                log.debug(OVER, self._bytes_read, self._meter.stalls, "disposed")
                raise
            failure = self._fault or _session_closed()  # which cancels the wait for a free connection
        except Exception as error:
            failure = error
        finally:
            self._close()
        log.debug(OVER, self._bytes_read, self._meter.stalls, "disposed" if self._disposed else _word(failure))
        if failure is None:
            self._tell(self._observer.on_completed)
        else:
            self._tell(partial(self._observer.on_error, failure))

    def _close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        if self._body is not None:
            self._body.close()

    async def _read(self, body: Body, unpack: Stage[bytes, bytes] | None) -> None:
        while chunk := await self._next(body):
            for n, piece in enumerate(unpack.feed((chunk,)) if unpack else (chunk,)):
                if n:
                    await asyncio.sleep(0)  # a bomb must not stop the loop, nor its timers
                if piece:
                    await self._hand_on(piece)
                if self._disposed:
                    await body.drain()
                    return
        for piece in unpack.finish() if unpack else ():
            await self._hand_on(piece)

    async def _next(self, body: Body) -> bytes:
        await self._window_open()
        return await body.read()

    async def _hand_on(self, piece: bytes) -> None:
        """Deliver a piece, in as many as the window has room for."""
        window = self._window
        while True:
            await self._window_open()
            size = len(piece) if window is None else min(len(piece), window.room)
            if window is not None:
                window.add(size)
            self._meter.add_bytes(size)
            self._push(piece[:size])
            piece = piece[size:]
            if not piece or self._disposed:
                return
            await asyncio.sleep(0)  # a consumer that keeps up takes what it has, also where nothing makes us wait

    async def _window_open(self) -> None:
        if self._window is None or self._window.room:
            return
        log.debug("waiting for the consumer, after %d bytes", self._bytes_read)
        self._waits = True
        try:
            self._meter.add_stalls(await until_open(self._window))
        finally:
            self._waits = False

    def _push(self, piece: bytes) -> None:
        with self._lock:
            if self._disposed:
                return
            try:
                self._observer.on_next(piece)
            except Exception as error:
                if not self._disposed:
                    raise
                self._report(error)  # the subscriber has left: it can't be told

    def _tell(self, terminal: Callable[[], None]) -> None:
        with self._lock:
            if self._disposed:
                return
            try:
                terminal()
            except Exception as error:
                self._report(error)

    def _report(self, error: Exception) -> None:
        message = "unhandled error in a subscriber of a byte stream"
        self._loop.call_exception_handler({"message": message, "exception": error})


def _session_closed() -> TransportError:
    return TransportError("the session was closed before an answer came", retry_safe=True)


def _word(failure: Exception | None) -> str:
    return "completed" if failure is None else type(failure).__name__
