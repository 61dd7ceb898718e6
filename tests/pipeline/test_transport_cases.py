"""What has gone wrong in other clients, against real servers."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reactivex import Observable, Subject
from reactivex import operators as rxops
from reactivex.scheduler import EventLoopScheduler
from reactivex.scheduler.eventloop import AsyncIOThreadSafeScheduler

from rillet.operators import ByteWindow, Delta, Done, Finish, TextDelta, bounded
from rillet.operators.errors import IdleTimeout, LimitExceeded, NotAnEventStream, StreamError
from rillet.pipeline import Limits, Timeouts, bytes_from, deltas, iterate

Eventually = Callable[[Callable[[], object]], Awaitable[None]]
Push = Callable[[Subject[str]], None]
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def event(content: str = "", finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": {"content": content}, "finish_reason": finish}
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


STOP, DONE = event(finish="stop"), b"data: [DONE]\n\n"
ENDING: list[Delta] = [Finish("stop", "stop"), Done()]


class Server:
    """A server that sends an event stream by hand, in chunks, and knows when its clients have gone.

    Attributes:
        requests: How many there were.
        left: Set once the last client has gone.
        writer: The connection of the last client.
    """

    def __init__(self, talk: Talk, content_type: str = "text/event-stream") -> None:
        self._talk = talk
        self._content_type = content_type
        self.requests = 0
        self.left = asyncio.Event()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        async with server, asyncio.timeout(20):
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        self.requests += 1
        self.writer = writer
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Type: {self._content_type}\r\n".encode())
        writer.write(b"Transfer-Encoding: chunked\r\n\r\n")
        talking = asyncio.create_task(self._talk(reader, writer))
        try:
            while await reader.read(1024):
                pass
        except ConnectionError:
            pass
        finally:
            talking.cancel()
            await asyncio.wait([talking])
            writer.close()
            self.left.set()


def send(writer: asyncio.StreamWriter, *pieces: bytes) -> None:
    for piece in pieces:
        writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))


def saying(*pieces: bytes) -> Talk:
    """Send these, and leave the body open."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        send(writer, *pieces)

    return talk


async def collected(flow: Observable[Delta]) -> list[Delta]:
    return [delta async for delta in iterate(flow)]


async def test_an_answer_is_complete_at_its_terminal_not_when_the_socket_closes(
    session: aiohttp.ClientSession,
) -> None:
    server = Server(saying(event("Hi"), STOP, DONE))
    async with server.serving() as url:
        assert await collected(deltas(bytes_from(session, "POST", url), "openai-chat")) == [TextDelta("Hi"), *ENDING]
        await server.left.wait()


async def test_a_page_instead_of_a_stream_gives_no_delta_and_says_what_it_is(session: aiohttp.ClientSession) -> None:
    page = b"<html><title>Sign in</title>" + b"<p>" * 70_000
    server = Server(saying(page), "text/html; charset=utf-8")
    seen: list[Delta] = []
    async with server.serving() as url:
        with pytest.raises(NotAnEventStream) as caught:
            await collected(deltas(bytes_from(session, "POST", url), "openai-chat").pipe(rxops.do_action(seen.append)))
        await server.left.wait()
    assert seen == []
    assert caught.value.content_type.startswith("text/html")
    assert "Sign in" in caught.value.snippet
    assert len(caught.value.body) <= 65_536


async def test_a_line_of_two_megabytes_is_limited_by_our_limits_alone(session: aiohttp.ClientSession) -> None:
    body = event("x" * 2_000_000) + STOP + DONE
    server = Server(saying(*(body[n : n + 8_192] for n in range(0, len(body), 8_192))))
    async with server.serving() as url:
        source = bytes_from(session, "POST", url)
        answer = await collected(deltas(source, "openai-chat", limits=Limits(max_event=4 << 20)))
        assert answer == [TextDelta("x" * 2_000_000), *ENDING]
        with pytest.raises(LimitExceeded):
            await collected(deltas(source, "openai-chat", limits=Limits(max_event=1 << 20)))


async def test_pings_keep_no_answer_alive(session: aiohttp.ClientSession) -> None:
    async def pings(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        send(writer, event("Hi"))
        while True:
            send(writer, b": ping\n\n")
            await asyncio.sleep(0.02)

    server = Server(pings)
    async with server.serving() as url:
        source = bytes_from(session, "POST", url, timeouts=Timeouts(liveness=1, progress=0.1))
        with pytest.raises(IdleTimeout) as caught:
            await collected(deltas(source, "openai-chat"))
        await server.left.wait()
    assert (caught.value.which, caught.value.seconds, caught.value.retry_safe) == ("progress", 0.1, False)
    assert caught.value.partial[0].text == "Hi"


async def test_who_leaves_while_nothing_comes_is_gone_at_once(session: aiohttp.ClientSession) -> None:
    server = Server(saying(event("Hi")))
    seen: list[object] = []
    first = asyncio.Event()

    def note(item: object) -> None:
        seen.append(item)
        first.set()

    async with server.serving() as url:
        flow = deltas(bytes_from(session, "POST", url), "openai-chat")
        subscription = flow.subscribe(note, note, lambda: note("completed"))
        await first.wait()
        subscription.dispose()
        await server.left.wait()
        assert session.connector is not None
        assert not session.connector._acquired
    assert seen == [TextDelta("Hi")]


async def test_a_clean_end_is_not_asked_for_again(session: aiohttp.ClientSession) -> None:
    """Ids, and a wish to be asked again after a millisecond, are for event sources: an answer can't be resumed."""
    events = (b"id: 0\nretry: 1\n" + event("Hel"), b"id: 1\n" + event("lo"), b"id: 2\n" + STOP, DONE)
    server = Server(saying(*events, b""))
    async with server.serving() as url:
        answer = await collected(deltas(bytes_from(session, "POST", url), "openai-chat"))
        assert answer == [TextDelta("Hel"), TextDelta("lo"), *ENDING]
        await asyncio.sleep(0.05)
        assert server.requests == 1


# Whatever comes


PLAIN = event("Hi") + STOP + DONE
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
ANSWERS = [
    HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"%x\r\n%s\r\n0\r\n\r\n" % (len(PLAIN), PLAIN),
    HEAD + b"Content-Length: %d\r\n\r\n" % len(PLAIN) + PLAIN,
    HEAD + b"Content-Encoding: gzip, deflate\r\n\r\n" + zlib.compress(gzip.compress(PLAIN)),
    b"HTTP/1.1 302 Found\r\nLocation: /x\r\nSet-Cookie: a=b\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 429 No\r\nRetry-After: 7\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
]


async def outcome_of(answer: bytes) -> list[Delta] | StreamError:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with server, asyncio.timeout(10), aiohttp.ClientSession() as session:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        try:
            return await collected(deltas(bytes_from(session, "POST", url), "openai-chat"))
        except StreamError as error:
            return error


@given(st.sampled_from(ANSWERS), st.integers(0, 999), st.binary(max_size=3), st.integers(0, 3), st.booleans())
def test_whatever_a_server_sends_only_stream_errors_leave(
    answer: bytes, place: int, put: bytes, instead_of: int, cut: bool
) -> None:
    place %= len(answer)
    hurt = answer[:place] + put + (b"" if cut else answer[place + instead_of :])
    outcome = asyncio.run(outcome_of(hurt))
    assert isinstance(outcome, StreamError) or outcome[-1] == Done()


# Pressure


FLOOD = 20_000
CAPACITY = 64
WINDOW = CAPACITY // 2 * 1_024  # what a starving consumer is given comes on top: one window more


async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    for n in range(FLOOD):
        send(writer, event(f"{n:05}" + "x" * 1_000))
        await writer.drain()
    send(writer, STOP, DONE)


class Ahead:
    """How many items have come to the boundary and not gone on from it."""

    def __init__(self) -> None:
        self.most = 0
        self._now = 0

    def came(self, _: object) -> None:
        self._now += 1
        self.most = max(self.most, self._now)

    def went(self, delta: Delta, texts: list[str]) -> None:
        self._now -= 1
        if isinstance(delta, TextDelta):
            texts.append(delta.text[:5])


async def until_it_waits(server: Server, window: Callable[[], int], eventually: Eventually) -> None:
    """The source waits for the consumer, and the server for the source: its own buffer stays full."""
    await eventually(lambda: window() and server.writer.transport.get_write_buffer_size() > 64 * 1024)


async def test_a_flood_waits_in_the_server_while_the_consumer_of_an_iterator_is_slow(
    session: aiohttp.ClientSession, eventually: Eventually
) -> None:
    server, ahead, texts = Server(flood), Ahead(), list[str]()
    window = ByteWindow(WINDOW)
    async with server.serving() as url:
        flow = deltas(bytes_from(session, "POST", url), "openai-chat").pipe(rxops.do_action(ahead.came))
        async for delta in iterate(flow, window=window):
            if not texts:
                await until_it_waits(server, lambda: window.stalls, eventually)
            ahead.went(delta, texts)
    assert texts == [f"{n:05}" for n in range(FLOOD)]
    assert ahead.most <= CAPACITY


async def test_a_flood_waits_in_the_server_while_the_consumer_on_another_thread_is_slow(
    session: aiohttp.ClientSession, eventually: Eventually
) -> None:
    server, ahead, texts = Server(flood), Ahead(), list[str]()
    go_on, over, here = threading.Event(), asyncio.Event(), asyncio.get_running_loop()
    scheduler = EventLoopScheduler()
    ends: list[object] = []

    def slow(delta: Delta) -> None:
        go_on.wait()
        ahead.went(delta, texts)

    def end(how: object) -> None:
        ends.append(how)
        here.call_soon_threadsafe(over.set)

    async with server.serving() as url:
        flow = deltas(bytes_from(session, "POST", url), "openai-chat").pipe(
            rxops.do_action(ahead.came),
            bounded(WINDOW, max_items=CAPACITY, scheduler=scheduler),
        )
        flow.subscribe(slow, end, lambda: end("completed"))
        try:
            await until_it_waits(server, lambda: ahead.most, eventually)
        finally:
            go_on.set()
        await over.wait()
    scheduler.dispose()
    assert ends == ["completed"]
    assert texts == [f"{n:05}" for n in range(FLOOD)]


@pytest.mark.parametrize("boundary", [False, True])
async def test_a_subscriber_that_raises_hears_of_it_once_and_nothing_after(
    session: aiohttp.ClientSession, boundary: bool
) -> None:
    server = Server(saying(event("one"), event("two"), event("three")))
    failure, errors, calls, over = ValueError("mine"), list[Exception](), list[Delta](), asyncio.Event()

    def raises(delta: Delta) -> None:
        calls.append(delta)
        raise failure

    def note(error: Exception) -> None:
        errors.append(error)
        over.set()

    async with server.serving() as url:
        flow = deltas(bytes_from(session, "POST", url), "openai-chat")
        if boundary:
            flow = flow.pipe(bounded(scheduler=AsyncIOThreadSafeScheduler(asyncio.get_running_loop())))
        flow.subscribe(raises, note)
        await over.wait()
        await server.left.wait()
    assert errors == [failure]
    assert calls == [TextDelta("one")]


# Threads


@pytest.fixture
def push_later() -> Iterator[Callable[[Subject[str]], None]]:
    """Push from another thread, once the loop is idle: were the item not to wake it, it would never come."""
    threads: list[threading.Thread] = []

    def push(subject: Subject[str]) -> None:
        idle = threading.Event()
        asyncio.get_running_loop().call_soon(idle.set)
        threads.append(threading.Thread(target=lambda: idle.wait() and subject.on_next("item")))
        threads[-1].start()

    yield push
    for thread in threads:
        thread.join()


async def test_an_item_of_another_thread_wakes_an_idle_loop_and_comes_on_its_thread(push_later: Push) -> None:
    subject, came = Subject[str](), asyncio.get_running_loop().create_future()
    scheduler = AsyncIOThreadSafeScheduler(asyncio.get_running_loop())
    subject.pipe(bounded(scheduler=scheduler)).subscribe(lambda item: came.set_result((item, threading.get_ident())))
    push_later(subject)
    async with asyncio.timeout(5):
        assert await came == ("item", threading.get_ident())


async def test_an_item_of_another_thread_wakes_an_idle_iterator(push_later: Push) -> None:
    subject: Subject[str] = Subject()
    flow = iterate(subject)
    async with asyncio.timeout(5):
        waiting = asyncio.ensure_future(anext(flow))
        push_later(subject)
        assert await waiting == "item"
    await flow.aclose()
