"""`Timeouts`: each kind of waiting has its limit and its own error. Real servers, short times."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import aiohttp
import pytest
import reactivex
from reactivex import operators as ops

from rillet.operators import (
    ByteWindow,
    Delta,
    Done,
    TextDelta,
    decode_deltas,
    decode_utf8,
    group_events,
    split_lines,
)
from rillet.operators.errors import ConnectTimeout, DeadlineExceeded, IdleTimeout, StreamError, TransportError
from rillet.pipeline import Timeouts, ask, bytes_from, collect_stream, deltas, event_source, iterate
from rillet.pipeline.protocols import OPENAI_CHAT
from rillet.pipeline.sandbox import Fault, Sandbox, Script, Wire

Eventually = Callable[[Callable[[], object]], Awaitable[None]]
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
HI = b'data: {"choices":[{"index":0,"delta":{"content":"Hi"}}]}\n\n'
END = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


@asynccontextmanager
async def talking(talk: Talk) -> AsyncIterator[str]:
    """A server that reads a request's head and then talks as it likes."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            await talk(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            return
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    finally:
        server.close()


async def heard(observable: reactivex.Observable[Delta]) -> tuple[list[Delta], Exception | None]:
    items: list[Delta] = []
    try:
        async with asyncio.timeout(10):
            async for item in iterate(observable):
                items.append(item)  # noqa: PERF401 - those before an error count
    except StreamError as error:
        return items, error
    return items, None


async def silent_before_the_head(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


async def silent_after_one_event(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + HI)
    await reader.read()


async def heartbeats_after_one_event(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + HI)
    while not reader.at_eof():
        writer.write(b": ping\n\ndata: {}\n\n")
        await writer.drain()
        await asyncio.sleep(0.01)


async def a_steady_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD)
    for _ in range(30):
        writer.write(HI)
        await asyncio.sleep(0.01)
    writer.write(END)


@pytest.mark.parametrize(
    ("talk", "items", "bytes_seen"), [(silent_before_the_head, 0, 0), (silent_after_one_event, 1, len(HI))]
)
async def test_silence_is_an_idle_timeout(
    session: aiohttp.ClientSession, talk: Talk, items: int, bytes_seen: int
) -> None:
    async with talking(talk) as url:
        answer = bytes_from(session, "GET", url, timeouts=Timeouts(liveness=0.1))
        seen, error = await heard(deltas(answer, "openai-chat"))
    assert type(error) is IdleTimeout
    assert (error.which, error.seconds, error.bytes_seen or 0) == ("liveness", 0.1, bytes_seen)
    assert (len(seen), error.retry_safe) == (items, items == 0)
    assert isinstance(error, TimeoutError)


async def test_heartbeats_are_not_progress(session: aiohttp.ClientSession) -> None:
    async with talking(heartbeats_after_one_event) as url:
        answer = bytes_from(session, "GET", url, timeouts=Timeouts(liveness=1, progress=0.2))
        seen, error = await heard(deltas(answer, "openai-chat"))
    assert type(error) is IdleTimeout
    assert (error.which, error.seconds, error.retry_safe) == ("progress", 0.2, False)
    assert seen == [TextDelta("Hi")]
    assert error.partial[0].text == "Hi"


async def test_progress_counts_for_operators_piped_by_hand_with_foreign_ones_between(
    session: aiohttp.ClientSession,
) -> None:
    foreign: Any = ops.map(lambda item: item)
    async with talking(heartbeats_after_one_event) as url:
        answer = bytes_from(session, "GET", url, timeouts=Timeouts(progress=0.1))
        chain = answer.pipe(foreign, decode_utf8(), split_lines(), foreign, group_events(), decode_deltas(OPENAI_CHAT))
        seen, error = await heard(chain)
    assert type(error) is IdleTimeout
    assert seen == [TextDelta("Hi")]


async def test_where_nobody_decodes_no_delta_is_missed(session: aiohttp.ClientSession) -> None:
    async with talking(a_steady_answer) as url:
        source = bytes_from(session, "GET", url, timeouts=Timeouts(progress=0.02))
        pieces = [piece async for piece in iterate(source)]
    assert b"".join(pieces) == HI * 30 + END


async def test_deltas_are_progress_and_bytes_are_life(session: aiohttp.ClientSession) -> None:
    async with talking(a_steady_answer) as url:
        answer = bytes_from(session, "GET", url, timeouts=Timeouts(liveness=0.2, progress=0.2))
        seen, error = await heard(deltas(answer, "openai-chat"))
    assert (error, len(seen), seen[-1]) == (None, 32, Done())


@pytest.mark.parametrize("lifted", [None, 0])
async def test_a_limit_that_is_lifted_does_not_count(session: aiohttp.ClientSession, lifted: float | None) -> None:
    async with talking(a_steady_answer) as url:
        answer = bytes_from(session, "GET", url, timeouts=Timeouts(lifted, lifted, lifted, lifted))
        seen, error = await heard(deltas(answer, "openai-chat"))
    assert (error, len(seen)) == (None, 32)


async def test_the_deadline_counts_however_steadily_it_comes(session: aiohttp.ClientSession) -> None:
    async with talking(a_steady_answer) as url:
        answer = bytes_from(session, "GET", url, timeouts=Timeouts(total=0.1))
        seen, error = await heard(deltas(answer, "openai-chat"))
    assert type(error) is DeadlineExceeded
    assert (error.seconds, error.retry_safe, isinstance(error, TimeoutError)) == (0.1, False, True)
    assert 0 < len(seen) < 30
    assert error.partial[0].text == "Hi" * len(seen)


async def test_a_session_s_own_total_never_cuts_a_stream() -> None:
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=0.1)) as session,
        talking(a_steady_answer) as url,
    ):
        seen, error = await heard(deltas(bytes_from(session, "GET", url), "openai-chat"))
    assert (error, len(seen)) == (None, 32)


async def test_a_total_asked_for_with_the_request_does(session: aiohttp.ClientSession) -> None:
    async with talking(a_steady_answer) as url:
        answer = bytes_from(session, "GET", url, timeout=aiohttp.ClientTimeout(total=0.1))
        _, error = await heard(deltas(answer, "openai-chat"))
    assert type(error) is DeadlineExceeded


@pytest.mark.parametrize(("own", "ours"), [(0.05, 5.0), (5.0, 0.05), (None, 0.05), (0.05, None)])
async def test_the_shorter_of_two_limits_wins(own: float | None, ours: float | None) -> None:
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(sock_read=own)) as session,
        talking(silent_after_one_event) as url,
    ):
        answer = bytes_from(session, "GET", url, timeouts=Timeouts(liveness=ours))
        async with asyncio.timeout(2):
            _, error = await heard(deltas(answer, "openai-chat"))
    assert type(error) is IdleTimeout


async def test_a_connection_that_cannot_be_had_is_a_connect_timeout() -> None:
    """The pool has one connection, and it is taken: the second request waits for it."""
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1)) as session,
        talking(silent_after_one_event) as url,
    ):
        first = bytes_from(session, "GET", url).subscribe(on_error=lambda _: None)
        await asyncio.sleep(0)
        seen, error = await heard(deltas(bytes_from(session, "GET", url, timeouts=Timeouts(connect=0.05)), "plain"))
        first.dispose()
    assert type(error) is ConnectTimeout
    assert (isinstance(error, TransportError), isinstance(error, TimeoutError), error.retry_safe) == (True, True, True)
    assert seen == []
    assert error.__cause__ is not None


async def test_while_a_slow_consumer_holds_the_source_nobody_is_silent(session: aiohttp.ClientSession) -> None:
    script = Script(text="0123456789" * 100_000, piece=1_000)
    window = ByteWindow(16 * 1024)
    timeouts = Timeouts(liveness=0.1, progress=0.1)
    async with Sandbox(script) as base_url:
        answer = ask(session, "hi", provider="openai", base_url=base_url, timeouts=timeouts)
        text = ""
        async for delta in iterate(answer, window=window):
            if not text:
                await asyncio.sleep(0.4)  # as a consumer that is busy: longer than both limits
            text += delta.text if isinstance(delta, TextDelta) else ""
    assert text == script.text
    assert window.stalls


async def test_a_consumer_that_blocks_the_loop_is_not_the_server_s_silence(session: aiohttp.ClientSession) -> None:
    import time

    async with talking(a_steady_answer) as url:
        answer = bytes_from(session, "GET", url, timeouts=Timeouts(progress=0.1))
        count = 0
        async for _ in iterate(deltas(answer, "openai-chat")):
            count += 1
            if count == 1:
                time.sleep(0.3)  # noqa: ASYNC251 - the very thing that is tested
    assert count == 32


async def test_facades_take_them() -> None:
    async with Sandbox(fault=Fault("stall", after=600)) as base_url:
        with pytest.raises(IdleTimeout) as raised:
            await collect_stream("hi", provider="openai", base_url=base_url, timeouts=Timeouts(liveness=0.05))
    assert raised.value.partial


async def test_comments_in_a_compressed_body_are_life_and_not_progress(session: aiohttp.ClientSession) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        import zlib

        writer.write(HEAD.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n"))
        packer = zlib.compressobj(wbits=31)
        while not reader.at_eof():
            writer.write(packer.compress(b": ping\n\n") + packer.flush(zlib.Z_SYNC_FLUSH))
            await writer.drain()
            await asyncio.sleep(0.01)

    async with talking(talk) as url:
        answer = bytes_from(session, "GET", url, timeouts=Timeouts(liveness=1, progress=0.1))
        _, error = await heard(deltas(answer, "openai-chat"))
    assert isinstance(error, IdleTimeout)
    assert error.which == "progress"


@pytest.mark.parametrize("field", ["connect", "liveness", "progress", "total"])
@pytest.mark.parametrize("seconds", [-1, float("nan")])
async def test_one_below_0_is_told_at_once(session: aiohttp.ClientSession, field: str, seconds: float) -> None:
    with pytest.raises(ValueError, match=f"{field} must be 0 or more seconds, not {seconds}"):
        bytes_from(session, "GET", "http://127.0.0.1:1", timeouts=Timeouts(**{field: seconds}))


async def test_a_number_in_their_place_is_told_at_once(session: aiohttp.ClientSession) -> None:
    number: Any = 5
    for make in (partial(bytes_from, session, "GET"), partial(event_source, session)):
        with pytest.raises(TypeError, match=r"timeouts= wants Timeouts\(…\)"):
            make("http://127.0.0.1:1", timeouts=number)


async def test_no_timer_outlives_its_stream(session: aiohttp.ClientSession, eventually: Eventually) -> None:
    loop: Any = asyncio.get_running_loop()
    timeouts = Timeouts(connect=77, liveness=78, progress=79 * 4, total=80)

    def ours() -> list[Any]:
        now = loop.time()
        return [timer for timer in loop._scheduled if not timer.cancelled() and 70 < timer.when() - now < 90]

    async with Sandbox(wire=Wire(delay=0.001)) as base_url:
        async for _ in iterate(ask(session, "hi", provider="openai", base_url=base_url, timeouts=timeouts)):
            assert len(ours()) <= 4
        await eventually(lambda: ours() == [])
        flow = iterate(ask(session, "hi", provider="openai", base_url=base_url, timeouts=timeouts))
        await anext(flow)
        await flow.aclose()
        await eventually(lambda: ours() == [])


def test_the_defaults_bound_everything_but_the_whole() -> None:
    assert Timeouts() == Timeouts(connect=30, liveness=300, progress=900, total=None)


async def test_gzip_is_asked_for_and_read(session: aiohttp.ClientSession) -> None:
    asked: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        body = gzip.compress(HI + END)
        writer.write(HEAD.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n") + body)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    async with server:
        seen, error = await heard(deltas(bytes_from(session, "GET", url), "openai-chat"))
    assert (seen[0], seen[-1], error) == (TextDelta("Hi"), Done(), None)
    assert b"gzip" in asked[0]
