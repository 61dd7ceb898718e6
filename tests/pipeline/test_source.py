"""`bytes_from` against real servers on the loopback interface."""

from __future__ import annotations

import asyncio
import gc
import gzip
import socket
import struct
import threading
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from reactivex import abc
from reactivex import operators as rxops
from subscriber import Seen

from rillet.operators import ByteWindow, Done, TextDelta, decode_utf8
from rillet.operators.errors import (
    DeadlineExceeded,
    HttpStatusError,
    IdleTimeout,
    NotAnEventStream,
    TransportError,
    TruncatedStream,
)
from rillet.operators.window import offered
from rillet.pipeline import Timeouts, bytes_from, deltas, iterate
from rillet.pipeline.sandbox import Fault, Sandbox, Script, Wire

Eventually = Callable[[Callable[[], object]], Awaitable[None]]
LONG = Script(text="a long answer " * 2_000)


def post(session: aiohttp.ClientSession, base_url: str, **options: Any) -> Any:
    return bytes_from(session, "POST", base_url + "/chat/completions", json={"stream": True}, **options)


@asynccontextmanager
async def serving(answer: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_get("/", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def serving_raw(
    answer: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[str]:
    """A server that writes its bytes itself."""
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"


async def test_nothing_is_pushed_inside_subscribe(session: aiohttp.ClientSession) -> None:
    async with Sandbox() as base_url:
        seen = Seen()
        post(session, base_url).subscribe(seen)
        assert seen == []
        assert await seen.outcome() == "completed"
        assert b"".join(seen[:-1]).endswith(b"data: [DONE]\n\n")  # type: ignore[arg-type]


async def test_each_subscription_makes_its_own_request(session: aiohttp.ClientSession) -> None:
    sandbox = Sandbox()
    async with sandbox as base_url:
        source = post(session, base_url)
        assert sandbox.requests == []
        first, second = Seen(), Seen()
        source.subscribe(first)
        source.subscribe(second)
        await first.outcome()
        await second.outcome()
        assert b"".join(first[:-1]) == b"".join(second[:-1])  # type: ignore[arg-type]
        assert len(sandbox.requests) == 2


async def test_it_asks_for_an_event_stream(session: aiohttp.ClientSession) -> None:
    sandbox = Sandbox()
    async with sandbox as base_url:
        for headers in ({}, {"accept": "text/plain"}):
            seen = Seen()
            post(session, base_url, headers=headers).subscribe(seen)
            await seen.outcome()
    assert [request.headers["Accept"] for request in sandbox.requests] == ["text/event-stream", "text/plain"]


async def test_an_http_error_tells_its_status_headers_body_and_wait(session: aiohttp.ClientSession) -> None:
    async def busy(request: web.Request) -> web.Response:
        return web.Response(status=429, headers={"Retry-After": "7"}, text="busy " * 100_000)

    async with serving(busy) as url:
        seen = Seen()
        bytes_from(session, "GET", url).subscribe(seen)
        error = await seen.outcome()
    assert type(error) is HttpStatusError
    assert (error.status, error.retry_after, error.retry_safe, len(seen)) == (429, 7.0, True, 1)
    assert error.headers["Retry-After"] == "7"
    assert error.body.startswith("busy ")
    assert len(error.body) <= 65_536


@pytest.mark.parametrize(
    ("retry_after", "seconds"),
    [
        ("0", 0.0),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0),
        ("Sun Nov  6 08:49:37 1994", 0.0),
        ("7.5", 7.5),
        ("soon", None),
        ("Fri, 31 Dec 9999 23:59:59 -2359", None),
        ("²", None),
        ("-1", None),
        ("", None),
    ],
)
async def test_retry_after_is_seconds_or_a_date(
    session: aiohttp.ClientSession, retry_after: str, seconds: float | None
) -> None:
    async def busy(request: web.Request) -> web.Response:
        return web.Response(status=503, headers={"Retry-After": retry_after})

    async with serving(busy) as url:
        seen = Seen()
        bytes_from(session, "GET", url).subscribe(seen)
        error = await seen.outcome()
    assert isinstance(error, HttpStatusError)
    assert error.retry_after == seconds


@pytest.mark.parametrize("status", [201, 204, 304, 400, 500])
async def test_no_status_but_200_is_a_stream(session: aiohttp.ClientSession, status: int) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(status=status, content_type="text/event-stream")

    async with serving(answer) as url:
        seen = Seen()
        bytes_from(session, "GET", url).subscribe(seen)
        error = await seen.outcome()
    assert isinstance(error, HttpStatusError)
    assert error.status == status


@pytest.mark.parametrize(
    ("content_type", "accepted"),
    [
        ("text/event-stream", True),
        ("text/event-stream;", True),
        ("TEXT/Event-Stream ; charset=windows-1252", True),
        ("text/plain, text/event-stream", True),
        ("text/event-stream, text/plain", False),
        ("text/event-streamx", False),
        ("application/json", False),
        (None, False),
    ],
)
async def test_the_content_type_is_checked(
    session: aiohttp.ClientSession, content_type: str | None, accepted: bool
) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": content_type} if content_type else {})
        response.force_close()
        await response.prepare(request)
        await response.write(b"data: x\n\n")
        return response

    async def without(request: web.Request, response: web.StreamResponse) -> None:
        if content_type is None:
            del response.headers["Content-Type"]

    app = web.Application()
    app.router.add_get("/", answer)
    app.on_response_prepare.append(without)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/"
    seen, any_type = Seen(), Seen()
    bytes_from(session, "GET", url).subscribe(seen)
    bytes_from(session, "GET", url, content_type=None).subscribe(any_type)
    outcome = await seen.outcome()
    assert await any_type.outcome() == "completed"
    await runner.cleanup()
    if accepted:
        assert outcome == "completed"
    else:
        assert type(outcome) is NotAnEventStream
        assert (outcome.content_type, outcome.status, outcome.body) == (content_type or "", 200, "data: x\n\n")


async def test_no_server_is_a_transport_error_with_its_cause(session: aiohttp.ClientSession) -> None:
    seen = Seen()
    post(session, "http://127.0.0.1:1").subscribe(seen)
    error = await seen.outcome()
    assert type(error) is TransportError
    assert isinstance(error.__cause__, aiohttp.ClientConnectorError)
    assert error.retry_safe


@pytest.mark.parametrize(("kind", "cause"), [("cut", aiohttp.ClientPayloadError), ("reset", aiohttp.ClientError)])
async def test_a_broken_body_is_truncation_with_its_cause(
    session: aiohttp.ClientSession, kind: Any, cause: type[Exception]
) -> None:
    async with Sandbox(LONG, fault=Fault(kind, after=900)) as base_url:
        seen = Seen()
        post(session, base_url).subscribe(seen)
        error = await seen.outcome()
    assert type(error) is TruncatedStream
    assert isinstance(error.__cause__, cause)
    assert error.bytes_seen == sum(len(chunk) for chunk in seen[:-1])  # type: ignore[arg-type, misc]


async def test_a_body_that_ends_early_but_properly_completes_here_and_fails_the_verdict(
    session: aiohttp.ClientSession,
) -> None:
    async with Sandbox(LONG, fault=Fault("end", after=900)) as base_url:
        raw, verdict = Seen(), Seen()
        post(session, base_url).subscribe(raw)
        deltas(post(session, base_url), "openai-chat").subscribe(verdict)
        assert await raw.outcome() == "completed"
        assert type(await verdict.outcome()) is TruncatedStream


async def test_silence_fails_when_a_read_timeout_is_given(session: aiohttp.ClientSession) -> None:
    async with Sandbox(LONG, fault=Fault("stall", after=900)) as base_url:
        seen = Seen()
        post(session, base_url, timeout=aiohttp.ClientTimeout(total=None, sock_read=0.05)).subscribe(seen)
        error = await seen.outcome()
    assert type(error) is IdleTimeout
    assert isinstance(error, TimeoutError)


async def test_the_silence_that_is_told_is_the_one_that_ran_out(session: aiohttp.ClientSession) -> None:
    async with Sandbox(LONG, fault=Fault("stall", after=900)) as base_url:
        for options in ({"timeout": aiohttp.ClientTimeout(sock_read=0.05)}, {"timeouts": Timeouts(liveness=0.05)}):
            seen = Seen()
            post(session, base_url, **options).subscribe(seen)
            error = await seen.outcome()
            assert isinstance(error, IdleTimeout)
            assert (error.which, error.seconds) == ("liveness", 0.05)


@pytest.mark.parametrize("after", [0, 900])
async def test_a_total_of_the_request_is_a_deadline(session: aiohttp.ClientSession, after: int) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if after:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + b":" * after)
        await reader.read()
        writer.close()

    async with serving_raw(silent) as url:
        seen = Seen()
        bytes_from(session, "GET", url, timeout=aiohttp.ClientTimeout(total=0.05)).subscribe(seen)
        error = await seen.outcome()
    assert isinstance(error, DeadlineExceeded)
    assert (error.seconds, error.retry_safe) == (0.05, not after)


@pytest.mark.parametrize("end", ["cut", "reset"])
async def test_what_came_before_the_connection_broke_is_not_lost(
    session: aiohttp.ClientSession, end: str, eventually: Eventually
) -> None:
    """A slow consumer: the answer waits whole in aiohttp's reader, its terminal too, when the connection breaks."""
    text = b'data: {"choices":[{"index":0,"delta":{"content":"Hi"}}]}\n\n'
    waits, came = asyncio.Event(), asyncio.Event()

    async def whole_but_unended(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 999\r\n\r\n" + text)
        await waits.wait()
        writer.write(text + b"data: [DONE]\n\n")
        await came.wait()
        if end == "reset":
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.transport.abort()

    window, seen = ByteWindow(1), Seen()
    async with serving_raw(whole_but_unended) as url:
        deltas(bytes_from(session, "GET", url, window=window), "openai-chat").subscribe(seen)
        await eventually(lambda: window.stalls)
        waits.set()
        (connection,) = session.connector._acquired  # type: ignore[union-attr]
        await eventually(lambda: connection._payload.total_bytes == 2 * len(text) + 14)  # type: ignore[union-attr]
        came.set()
        await eventually(lambda: not connection.is_connected())
        window.release_all()
        assert await seen.outcome() == "completed"
    assert seen[:-1] == [TextDelta("Hi"), TextDelta("Hi"), Done()]


async def test_time_that_the_source_waits_for_its_window_is_nobody_s_silence(
    session: aiohttp.ClientSession, eventually: Eventually
) -> None:
    window, seen, taken = ByteWindow(1), Seen(), asyncio.Event()

    async def patient(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 9\r\n\r\nbefore ")
        await taken.wait()
        writer.write(b"it")
        await reader.read()
        writer.close()

    async with serving_raw(patient) as url:
        source = bytes_from(session, "GET", url, window=window, timeouts=Timeouts(liveness=0.1))
        source.subscribe(seen)
        await eventually(lambda: window.stalls)
        await asyncio.sleep(0.15)
        window.release_all()
        taken.set()
        assert await seen.outcome() == "completed"
        await session.close()
    assert b"".join(seen[:-1]) == b"before it"  # type: ignore[arg-type]


async def test_silence_counts_again_once_the_window_is_open(
    session: aiohttp.ClientSession, eventually: Eventually
) -> None:
    window, seen = ByteWindow(1), Seen()
    async with Sandbox(fault=Fault("stall", after=100)) as base_url:
        post(session, base_url, window=window, timeouts=Timeouts(liveness=0.05)).subscribe(seen)
        await eventually(lambda: window.stalls)
        window.release_all()
        assert type(await seen.outcome()) is IdleTimeout


@pytest.mark.parametrize("provisional", [b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\n\r\n"])
async def test_an_answer_that_is_put_off_for_ever_is_no_progress(
    session: aiohttp.ClientSession, provisional: bytes
) -> None:
    async def put_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(provisional)
        await reader.read()
        writer.close()

    async with serving_raw(put_off) as url:
        seen = Seen()
        bytes_from(session, "GET", url, timeouts=Timeouts(liveness=0.05, progress=0.1)).subscribe(seen)
        outcome = await seen.outcome()
    assert isinstance(outcome, IdleTimeout)
    assert outcome.which == "progress"


async def test_a_bomb_does_not_stop_the_loop(session: aiohttp.ClientSession, eventually: Eventually) -> None:
    """One read of the socket unpacks to a hundred megabytes: what else runs here has its turns meanwhile."""
    bomb = gzip.compress(bytes(1 << 22)) * 32

    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=bomb, headers={"Content-Type": "text/event-stream", "Content-Encoding": "gzip"})

    async with serving(answer) as url:
        pieces: list[bytes] = []

        def leave_soon(piece: bytes) -> None:
            pieces.append(piece)
            if len(pieces) == 1:
                asyncio.get_running_loop().call_soon(subscription.dispose)

        subscription = bytes_from(session, "GET", url).subscribe(leave_soon)
        await eventually(lambda: pieces)
        await asyncio.sleep(0)
    assert len(pieces) <= 2


async def test_the_total_timeout_of_the_session_does_not_cut_a_stream() -> None:
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=0.1)) as session,
        Sandbox(Script(text="steady " * 6), Wire(delay=0.02)) as base_url,
    ):
        seen = Seen()
        deltas(post(session, base_url), "openai-chat").subscribe(seen)
        assert await seen.outcome() == "completed"
        assert seen[-2] == Done()


async def test_a_subscriber_that_raises_closes_the_response_and_hears_of_it_once(
    session: aiohttp.ClientSession,
) -> None:
    sandbox = Sandbox(LONG, fault=Fault("stall", after=900))
    async with sandbox as base_url:
        seen, failure = Seen(), RuntimeError("mine")

        def raises(chunk: bytes) -> None:
            raise failure

        post(session, base_url).subscribe(raises, seen.on_error, seen.on_completed)
        assert await seen.outcome() is failure
        await sandbox.requests_over()
        assert seen == [failure]


@pytest.mark.parametrize("operators", [(), (decode_utf8(),), (rxops.map(bytes),)])
async def test_an_error_that_nobody_handles_reaches_the_loop(
    session: aiohttp.ClientSession, operators: tuple[Any, ...], eventually: Eventually
) -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context))
    failure = RuntimeError("mine")

    def raises(chunk: object) -> None:
        raise failure

    async with Sandbox(LONG) as base_url:
        post(session, base_url).pipe(*operators).subscribe(raises)
        await eventually(lambda: reported)
    assert [context["exception"] for context in reported] == [failure]


async def test_disposing_inside_on_next_delivers_nothing_more_and_closes(session: aiohttp.ClientSession) -> None:
    sandbox = Sandbox(LONG, fault=Fault("stall", after=900))
    async with sandbox as base_url:
        seen = Seen()
        post(session, base_url).pipe(rxops.take(1)).subscribe(seen)
        await seen.outcome()
        await sandbox.requests_over()
        assert len(seen) == 2
        assert seen[1] == "completed"


@pytest.mark.parametrize("when", ["connecting", "silent"])
@pytest.mark.parametrize("where", ["here", "another thread"])
async def test_disposing_stops_and_closes_at_once(
    session: aiohttp.ClientSession, when: str, where: str, eventually: Eventually
) -> None:
    sandbox = Sandbox(LONG, fault=Fault("stall", after=900))
    async with sandbox as base_url:
        seen = Seen()
        subscription: abc.DisposableBase = post(session, base_url).subscribe(seen)
        if when == "silent":
            await eventually(lambda: sum(map(len, seen)) == 900)  # type: ignore[arg-type]
        before = list(seen)
        if where == "here":
            subscription.dispose()
        else:
            thread = threading.Thread(target=subscription.dispose)
            thread.start()
            thread.join()
        await sandbox.requests_over()
        assert seen == before


async def test_disposed_before_it_began_it_leaves_no_timer_behind(
    session: aiohttp.ClientSession, eventually: Eventually
) -> None:
    seen = Seen()
    flow = deltas(post(session, "http://127.0.0.1:1", timeouts=Timeouts(total=1_000)), "openai-chat")
    flow.subscribe(seen).dispose()
    gone = weakref.ref(seen)
    del seen
    await eventually(lambda: [gc.collect(), gone()][1] is None)


async def test_after_done_the_connection_is_reused(session: aiohttp.ClientSession, eventually: Eventually) -> None:
    sandbox = Sandbox()
    ports = set()
    async with sandbox as base_url:
        for _ in range(3):
            seen = Seen()
            deltas(post(session, base_url), "openai-chat").subscribe(seen)
            assert await seen.outcome() == "completed"
            await sandbox.requests_over()
            await eventually(lambda: session.connector and any(session.connector._conns.values()))
        ports = {request.port for request in sandbox.requests}
    assert len(ports) == 1


async def test_without_a_running_loop_the_subscriber_is_told() -> None:
    errors: list[Exception] = []
    async with aiohttp.ClientSession() as session:
        source = bytes_from(session, "GET", "http://127.0.0.1:1")
        await asyncio.to_thread(source.subscribe, None, errors.append)
    assert type(errors[0]) is RuntimeError


async def test_the_source_waits_while_the_window_is_full_and_reads_on_when_it_opens(
    session: aiohttp.ClientSession, eventually: Eventually
) -> None:
    window, seen = ByteWindow(100), Seen()
    async with Sandbox(LONG) as base_url:
        with offered(window):
            post(session, base_url).subscribe(seen)
        for stalls in range(1, 4):
            await eventually(lambda stalls=stalls: window.stalls == stalls)
            assert window.pending == window.read - sum(map(len, seen[:-1]))  # type: ignore[arg-type]
            window.release(window.read)
        window.release_all()
        assert await seen.outcome() == "completed"


async def test_a_window_passed_counts_instead_of_the_offered_one(session: aiohttp.ClientSession) -> None:
    mine, offers, seen = ByteWindow(), ByteWindow(), Seen()
    async with Sandbox() as base_url:
        with offered(offers):
            post(session, base_url, window=mine).subscribe(seen)
        await seen.outcome()
    assert (mine.read > 0, offers.read) == (True, 0)


async def test_reactivex_retry_asks_again(session: aiohttp.ClientSession) -> None:
    sandbox = Sandbox(LONG, fault=Fault("end", after=900))
    async with sandbox as base_url:
        seen = Seen()
        deltas(post(session, base_url), "openai-chat").pipe(rxops.retry(3)).subscribe(seen)
        assert type(await seen.outcome()) is TruncatedStream
    assert len(sandbox.requests) == 3
    assert sum(isinstance(item, TextDelta) for item in seen) % 3 == 0


@pytest.mark.parametrize(
    "location",
    [
        "http://",
        "http:///x",
        "http://[::1",
        "http://127.0.0.1:99999/",
        "http://a..b/",
        "http://1.2.3.4.5/",
        "ftp://a/b",
    ],
)
async def test_a_redirect_to_no_url_is_a_transport_error(session: aiohttp.ClientSession, location: str) -> None:
    async def redirect(request: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": location})

    async with serving(redirect) as url:
        seen = Seen()
        bytes_from(session, "GET", url).subscribe(seen)
        assert type(await seen.outcome()) is TransportError


async def test_the_session_s_own_read_timeout_counts() -> None:
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(sock_read=0.05)) as session,
        Sandbox(LONG, fault=Fault("stall", after=900)) as base_url,
    ):
        seen = Seen()
        post(session, base_url).subscribe(seen)
        assert type(await seen.outcome()) is IdleTimeout


async def test_a_session_that_raises_for_status_still_gives_the_status() -> None:
    async with (
        aiohttp.ClientSession(raise_for_status=True) as session,
        Sandbox(fault=Fault("status", status=429)) as base_url,
    ):
        seen = Seen()
        post(session, base_url).subscribe(seen)
        error = await seen.outcome()
    assert isinstance(error, HttpStatusError)
    assert error.status == 429


async def test_no_answer_is_told_without_the_rest_of_the_url(session: aiohttp.ClientSession) -> None:
    seen = Seen()
    bytes_from(session, "GET", "http://127.0.0.1:1/v1?key=SECRET").subscribe(seen)
    error = await seen.outcome()
    assert "127.0.0.1" in str(error)
    assert "SECRET" not in str(error)


async def test_the_wait_for_a_slow_consumer_is_nobody_s_silence(session: aiohttp.ClientSession) -> None:
    text = "0123456789" * 300_000
    timeouts, pieces = Timeouts(liveness=0.05), 0
    async with Sandbox(Script(text=text, piece=16_000)) as base_url:
        source = deltas(post(session, base_url, timeouts=timeouts), "openai-chat")
        async for delta in iterate(source, window=ByteWindow(64 * 1024)):
            pieces += len(delta.text) if isinstance(delta, TextDelta) else 0
            if pieces % 512_000 == 0:
                await asyncio.sleep(0.1)  # longer than the server may be silent
    assert pieces == len(text)


async def test_a_connection_that_was_slowed_may_be_used_again_later(session: aiohttp.ClientSession) -> None:
    sandbox, liveness = Sandbox(Script(text="0123456789" * 300_000, piece=16_000)), 0.2
    async with sandbox as base_url:
        for _ in range(2):
            source = deltas(post(session, base_url, timeouts=Timeouts(liveness=liveness)), "openai-chat")
            async for _ in iterate(source, window=ByteWindow(64 * 1024)):
                await asyncio.sleep(0.001)
            await asyncio.sleep(liveness * 1.5)  # what was left running must have run out
    assert len({request.port for request in sandbox.requests}) == 1
