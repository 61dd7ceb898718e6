"""`bytes_from`: the body of an HTTP answer as a cold observable, read no faster than it is consumed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from ssl import SSLContext
from typing import TypedDict, Unpack
from urllib.parse import urlsplit

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError
from reactivex import Observable, abc
from reactivex.disposable import Disposable

from rillet.operators import ByteWindow
from rillet.operators.errors import HttpStatusError, IdleTimeout, NotAnEventStream, TransportError, TruncatedStream
from rillet.operators.window import current_window

READ_BUFFER = 64 * 1024
BODY_SHOWN = 64 * 1024
BODY_SECONDS = 5.0
DRAIN_BYTES = 64 * 1024
DRAIN_SECONDS = 0.02

FAILURES = (aiohttp.ClientError, HttpProcessingError, OSError, TimeoutError)

# The loop itself holds its tasks weakly: one that waits for a window only its consumer knows would be collected.
_reading: set[asyncio.Task[None]] = set()


class RequestOptions(TypedDict, total=False):
    """What `bytes_from` hands to `aiohttp.ClientSession.request`, which says what each means."""

    params: Mapping[str, str | int | float] | str
    data: bytes | str | Mapping[str, str] | aiohttp.FormData | None
    json: object
    headers: Mapping[str, str]
    cookies: Mapping[str, str]
    auth: aiohttp.BasicAuth
    skip_auto_headers: Iterable[str]
    allow_redirects: bool
    max_redirects: int
    compress: str | bool
    proxy: str
    proxy_auth: aiohttp.BasicAuth
    proxy_headers: Mapping[str, str]
    ssl: SSLContext | bool | aiohttp.Fingerprint
    server_hostname: str
    timeout: aiohttp.ClientTimeout
    trace_request_ctx: object
    read_bufsize: int


def bytes_from(
    session: aiohttp.ClientSession,
    method: str,
    url: str,
    *,
    content_type: str | None = "text/event-stream",
    window: ByteWindow | None = None,
    **request: Unpack[RequestOptions],
) -> Observable[bytes]:
    """The body of an HTTP answer, in the pieces that the network gives.

    .. marble::

        subscribe---status, type---bytes---bytes---bytes---|

    Cold: each subscription makes its request, from the event loop it is subscribed in, and never pushes inside
    `subscribe`. Everything a subscriber does in `on_next` is done before more is read. Disposing, from any thread,
    stops the reading and closes the connection at once; from inside `on_next` what is already there is drained first,
    for 20 ms and 64 KiB at most, so that a connection whose answer is over goes back to the pool.

    Args:
        session: The session to use; its timeouts count, but for `total`, which would cut a long answer.
        method: The HTTP method.
        url: Where to.
        content_type: The content type that the answer must have, parameters aside; None takes any.
        window: The window that slows the reading; by default that of the boundary that subscribes, if there is one.
        request: Further arguments of `aiohttp.ClientSession.request`.

    Returns:
        An observable of bytes.

        - emits: each piece of the body, decompressed
        - buffers up to: the window's limit and one piece; without a window, one piece
        - completes: at the clean end of the body; whether the answer is whole is not its to say
        - fails: `HttpStatusError` for any status but 200; `NotAnEventStream` for another content type;
          `TransportError` where no answer came; `TruncatedStream` where its body broke; `IdleTimeout` where the
          `sock_read` of the session or the request ran out; whatever a subscriber's `on_next` raised

    Source: HTML Standard §9.2.3 (status and content type of an event stream).
    """

    def subscribe(observer: abc.ObserverBase[bytes], scheduler: abc.SchedulerBase | None = None) -> abc.DisposableBase:
        reading = _Reading(observer, window or current_window())
        reading.start(session, method, url, content_type, request)
        return Disposable(reading.dispose)

    return Observable(subscribe)


class _Reading:
    """One subscription: one request, read by one task."""

    def __init__(self, observer: abc.ObserverBase[bytes], window: ByteWindow | None) -> None:
        self._observer = observer
        self._window = window
        self._loop = asyncio.get_running_loop()
        self._response: aiohttp.ClientResponse | None = None
        self._disposed = False
        self._bytes_seen = 0

    def start(
        self,
        session: aiohttp.ClientSession,
        method: str,
        url: str,
        content_type: str | None,
        request: RequestOptions,
    ) -> None:
        self._task = self._loop.create_task(self._run(session, method, url, content_type, request))
        _reading.add(self._task)
        self._task.add_done_callback(_reading.discard)

    def dispose(self) -> None:
        self._disposed = True
        if self._loop.is_closed():
            return
        try:
            here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            here = False
        if here:
            self._stop()
        else:
            self._loop.call_soon_threadsafe(self._stop)

    def _stop(self) -> None:
        if asyncio.current_task(self._loop) is self._task:
            return  # inside on_next: the reading goes no further once that returns
        self._task.cancel()
        if self._response is not None:
            self._response.close()

    async def _run(
        self,
        session: aiohttp.ClientSession,
        method: str,
        url: str,
        content_type: str | None,
        request: RequestOptions,
    ) -> None:
        try:
            try:
                self._response = await _request(session, method, url, content_type, request)
                await _check(self._response, content_type)
                await self._read(self._response)
            finally:
                if self._response is not None:
                    self._response.close()
        except Exception as error:
            failure = error
            self._tell(lambda: self._observer.on_error(failure))
        else:
            self._tell(self._observer.on_completed)

    async def _read(self, response: aiohttp.ClientResponse) -> None:
        while chunk := await self._next(response):
            if self._window is not None:
                self._window.add(len(chunk))
            self._push(chunk)
            if self._disposed:
                await _drain(response)
                return
            await self._window_open()

    async def _next(self, response: aiohttp.ClientResponse) -> bytes:
        try:
            chunk = await response.content.readany()
        except aiohttp.SocketTimeoutError as error:
            raise IdleTimeout(f"no byte came within sock_read, after {self._bytes_seen:,} bytes of the body") from error
        except FAILURES as error:
            raise TruncatedStream(
                f"the connection broke after {self._bytes_seen:,} bytes of the body: {type(error).__name__}",
                bytes_seen=self._bytes_seen,
                retry_safe=self._bytes_seen == 0,
            ) from error
        self._bytes_seen += len(chunk)
        return chunk

    async def _window_open(self) -> None:
        if self._window is None:
            return
        opened = asyncio.Event()

        def resume() -> None:
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(opened.set)

        if not self._window.when_open(resume):
            await opened.wait()

    def _push(self, chunk: bytes) -> None:
        try:
            self._observer.on_next(chunk)
        except Exception as error:
            if not self._disposed:
                raise
            self._report(error)  # the subscriber has left: it can't be told

    def _tell(self, terminal: Callable[[], None]) -> None:
        if self._disposed:
            return
        try:
            terminal()
        except Exception as error:
            self._report(error)

    def _report(self, error: Exception) -> None:
        message = "unhandled error in a subscriber of a byte stream"
        self._loop.call_exception_handler({"message": message, "exception": error})


async def _request(
    session: aiohttp.ClientSession, method: str, url: str, content_type: str | None, request: RequestOptions
) -> aiohttp.ClientResponse:
    own = session.timeout
    timeout = aiohttp.ClientTimeout(
        total=None, connect=own.connect, sock_connect=own.sock_connect, sock_read=own.sock_read
    )
    options: RequestOptions = {"timeout": timeout, "read_bufsize": READ_BUFFER, **request}
    headers = dict(options.get("headers", {}))
    if content_type is not None and "accept" not in map(str.lower, headers):
        headers["Accept"] = content_type
    options["headers"] = headers
    try:
        return await session.request(method, url, raise_for_status=False, **options)
    except aiohttp.InvalidUrlRedirectClientError as error:
        raise TransportError("the server redirects to no URL", retry_safe=True) from error
    except aiohttp.InvalidURL:
        raise
    except (*FAILURES, UnicodeError) as error:
        reason = (isinstance(error, OSError) and error.strerror) or type(error).__name__
        raise TransportError(f"no answer from {urlsplit(url).hostname}: {reason}", retry_safe=True) from error


async def _check(response: aiohttp.ClientResponse, content_type: str | None) -> None:
    if response.status != HTTPStatus.OK:
        raise HttpStatusError(
            response.status, response.headers.copy(), await _body(response), retry_after=_retry_after(response.headers)
        )
    came = response.headers.get("Content-Type", "")
    if content_type is not None and _essence(came) != content_type:
        raise NotAnEventStream(came, await _body(response), status=response.status, expected=content_type)


async def _body(response: aiohttp.ClientResponse) -> str:
    """The start of a body that is not what was asked for; what can't be read of it does not matter."""
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while len(body) < BODY_SHOWN and (chunk := await response.content.readany()):
                body += chunk
    except FAILURES:
        body += b" (the body broke off here)"
    return body[:BODY_SHOWN].decode("utf-8", "replace")


async def _drain(response: aiohttp.ClientResponse) -> None:
    room = DRAIN_BYTES
    try:
        async with asyncio.timeout(DRAIN_SECONDS):
            while room > 0 and (chunk := await response.content.readany()):
                room -= len(chunk)
    except FAILURES:
        return  # the answer was over: how its connection ends is nobody's business


def _essence(content_type: str) -> str:
    """The media type without its parameters; of several headers in one, the last counts (Fetch §2.2.5)."""
    return content_type.rpartition(",")[2].partition(";")[0].strip().lower()


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait (RFC 9110 §10.2.3): a number of them, or a date."""
    wanted = headers.get("Retry-After", "").strip()
    if wanted.isascii() and wanted.isdigit() and len(wanted) < 10:
        return float(wanted)
    try:
        wait = parsedate_to_datetime(wanted).astimezone(UTC) - datetime.now(UTC)
    except (ValueError, OverflowError):
        return None
    return max(0.0, wait.total_seconds())
