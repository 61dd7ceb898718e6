"""Leaving, in every way, at every moment, for every kind of consumer: the server sees it, and nothing stays behind."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import Any, NamedTuple

import aiohttp
import pytest
from reactivex import Observable
from reactivex import operators as rxops
from reactivex.scheduler import EventLoopScheduler

from rillet.operators import ByteWindow, Done, bounded, share
from rillet.operators.errors import StreamError
from rillet.operators.window import offered
from rillet.pipeline import Limits, bytes_from, deltas, for_each, iterate
from rillet.pipeline.sandbox import Sandbox

WINDOW = 64 * 1024
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
EVENT = b'data: {"choices":[{"index":0,"delta":{"content":"so"}}]}\n\n'
FEW, MANY = 5, 2_000

NO_CONNECTION = ("waiting for a connection", "connecting")
SILENT = ("before the answer", "in the body")
FLOODED = ("burst", "full window")


class Server:
    """A provider that answers as far as the moment wants it, and says what it sees of its one client."""

    def __init__(self, moment: str) -> None:
        self.asked = asyncio.Event()
        self.gone = asyncio.Event()
        self.stuck = False
        self._moment = moment

    async def __aenter__(self) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        return f"http://{host}:{port}/"

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if await reader.read(WINDOW):
                self.asked.set()
                await self._answer_until_gone(reader, writer)
        finally:
            writer.transport.abort()

    async def _answer_until_gone(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answering = asyncio.create_task(self._answer(writer))
        with suppress(ConnectionError):
            await reader.read()
        self.gone.set()
        answering.cancel()
        with suppress(ConnectionError, asyncio.CancelledError):
            await answering

    async def _answer(self, writer: asyncio.StreamWriter) -> None:
        if self._moment in NO_CONNECTION or self._moment == "before the answer":
            return
        writer.write(HEAD + EVENT * FEW)
        while self._moment in FLOODED:
            writer.write(EVENT * 100)
            self.stuck = writer.transport.get_write_buffer_size() > WINDOW
            await writer.drain()
            await asyncio.sleep(0)


class Seen:
    """What a consumer got; at the item that is due it leaves, or raises."""

    def __init__(self, *, due: int = 0, raises: bool = False) -> None:
        self.items: list[object] = []
        self.ends: list[Exception | None] = []
        self.let_go = threading.Event()  # for those that block a thread
        self._due = due
        self._raises = raises

    def take(self, item: object) -> bool:
        """Whether to leave."""
        self.items.append(item)
        return len(self.items) == self._due and not self._raises

    def stays(self, item: object) -> bool:
        return not self.take(item)

    def react(self, _: object = None) -> None:
        if len(self.items) == self._due and self._raises:
            raise RuntimeError("mine")

    def another(self) -> Seen:
        return Seen(due=self._due, raises=self._raises)

    def complete(self) -> None:
        self.ends.append(None)


class Leave(NamedTuple):
    """How a consumer is made to leave, in its loop's thread and from another."""

    here: Callable[[], object]
    elsewhere: Callable[[], object]


Consumer = Callable[[Observable[Any], Seen, bool], Leave]


def subscribe(source: Observable[Any], seen: Seen, holds: bool) -> Leave:
    with offered(ByteWindow(WINDOW) if holds else None):
        subscription = source.pipe(rxops.take_while(seen.stays)).subscribe(seen.react, seen.ends.append, seen.complete)
    return Leave(subscription.dispose, subscription.dispose)


async def _iterate(source: Observable[Any], seen: Seen, holds: bool) -> None:
    async with aclosing(iterate(source, window=ByteWindow(WINDOW))) as flow:
        async for item in flow:
            if seen.take(item):
                break
            seen.react()
            if holds:
                await asyncio.Event().wait()


def _in_task(work: Awaitable[Any], seen: Seen) -> Leave:
    async def told() -> None:
        try:
            await work
        except Exception as error:
            seen.ends.append(error)
        else:
            seen.complete()

    task = asyncio.create_task(told())
    return Leave(task.cancel, partial(asyncio.get_running_loop().call_soon_threadsafe, task.cancel))


def iterating(source: Observable[Any], seen: Seen, holds: bool) -> Leave:
    return _in_task(_iterate(source, seen, holds), seen)


def _each(source: Observable[Any], seen: Seen, holds: bool) -> Observable[bool]:
    async def handle(item: object) -> bool:
        leaves = seen.take(item)
        seen.react()
        if holds:
            await asyncio.Event().wait()
        return leaves

    return source.pipe(for_each(handle, concurrency=2, window=ByteWindow(WINDOW)), rxops.take_while(lambda it: not it))


def handling(source: Observable[Any], seen: Seen, holds: bool) -> Leave:
    subscription = _each(source, seen, holds).subscribe(None, seen.ends.append, seen.complete)
    return Leave(subscription.dispose, subscription.dispose)


def awaiting(source: Observable[Any], seen: Seen, holds: bool) -> Leave:
    return _in_task(_last(_each(source, seen, holds).pipe(rxops.default_if_empty(None))), seen)


async def _last(source: Observable[Any]) -> Any:
    return await source


def on_a_thread(source: Observable[Any], seen: Seen, holds: bool) -> Leave:
    scheduler = EventLoopScheduler(exit_if_empty=True)

    def stays(item: object) -> bool:
        stays = seen.stays(item)
        if holds:
            seen.let_go.wait()
        return stays

    subscription = source.pipe(bounded(WINDOW, scheduler=scheduler), rxops.take_while(stays)).subscribe(
        seen.react, seen.ends.append, seen.complete
    )
    return Leave(subscription.dispose, subscription.dispose)


def sharing(source: Observable[Any], seen: Seen, holds: bool) -> Leave:
    """Two of one stream: each leaves by itself."""
    both = source.pipe(share())
    leaves = [handling(both, seen, holds), subscribe(both, seen.another(), False)]
    return Leave(lambda: [leave.here() for leave in leaves], lambda: [leave.elsewhere() for leave in leaves])


CONSUMERS: tuple[Consumer, ...] = (subscribe, iterating, handling, awaiting, on_a_thread, sharing)
EVERY_CONSUMER = pytest.mark.parametrize("consumer", CONSUMERS, ids=lambda consumer: consumer.__name__)


def fill_backlog(stack: list[socket.socket]) -> str:
    """A place that takes no connection: it listens, accepts nobody, and its queue is full."""
    listening = socket.socket()
    stack.append(listening)
    listening.bind(("127.0.0.1", 0))
    listening.listen(0)
    for _ in range(4):
        waiting = socket.socket()
        stack.append(waiting)
        waiting.setblocking(False)
        waiting.connect_ex(listening.getsockname())
    host, port = listening.getsockname()
    return f"http://{host}:{port}/"


async def until(condition: Callable[[], object]) -> None:
    """Wait without a timer, since timers are counted here."""
    while not condition():
        await asyncio.sleep(0)


def descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


@asynccontextmanager
async def nothing_stays() -> AsyncIterator[None]:
    """No task, timer or descriptor is there after the block that was not before, and nothing was complained of."""
    loop = asyncio.get_running_loop()
    complaints: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    tasks, open_before = asyncio.all_tasks(), descriptors()
    yield
    await until(lambda: not asyncio.all_tasks() - tasks)
    await until(lambda: descriptors() <= open_before)
    gc.collect()
    await asyncio.sleep(0)
    assert complaints == []


def timers() -> list[asyncio.TimerHandle]:
    return [timer for timer in asyncio.get_running_loop()._scheduled if not timer.cancelled()]  # type: ignore[attr-defined]


@asynccontextmanager
async def place(moment: str, server: Server, session: aiohttp.ClientSession) -> AsyncIterator[str]:
    """Where to ask, so that the moment comes."""
    if moment == "connecting":
        sockets: list[socket.socket] = []
        try:
            yield fill_backlog(sockets)
        finally:
            for each in sockets:
                each.close()
        return
    async with server as url:
        if moment != "waiting for a connection":
            yield url
            return
        taken = asyncio.create_task(session.post(url))  # type: ignore[arg-type]  # the only one of the pool
        await server.asked.wait()
        yield url
        taken.cancel()
        with suppress(asyncio.CancelledError, aiohttp.ClientError):
            await taken


async def the_moment(moment: str, server: Server, seen: Seen, session: aiohttp.ClientSession) -> None:
    assert isinstance(session.connector, aiohttp.TCPConnector)
    if moment == "waiting for a connection":
        await until(lambda: session.connector._waiters)  # type: ignore[union-attr]
    elif moment == "connecting":
        await until(lambda: session.connector._acquired)  # type: ignore[union-attr]
        await asyncio.sleep(0.01)  # nobody else sees a connection that does not come about
    elif moment == "before the answer":
        await server.asked.wait()
    elif moment == "in the body":
        await until(lambda: len(seen.items) == FEW)
    elif moment == "burst":
        await until(lambda: len(seen.items) > MANY)
    else:
        await until(lambda: server.stuck)


def asking(session: aiohttp.ClientSession, url: str) -> Observable[Any]:
    return deltas(bytes_from(session, "POST", url), "openai-chat", limits=Limits(max_bytes=None))


def at_rest(session: aiohttp.ClientSession, idle: list[asyncio.TimerHandle], *, taken: int = 0) -> bool:
    """Whether no connection is in use, but for those taken, and no timer runs that did not before."""
    in_use = 0 if session.connector is None else len(session.connector._acquired)
    return in_use <= taken and set(timers()) <= set(idle)


@pytest.mark.parametrize("way", ["here", "another thread", "closing the session"])
@pytest.mark.parametrize("moment", [*NO_CONNECTION, *SILENT, *FLOODED])
@EVERY_CONSUMER
async def test_leaving_closes_the_connection_and_leaves_nothing(consumer: Consumer, moment: str, way: str) -> None:
    server, seen = Server(moment), Seen()
    holds = moment == "full window"
    async with (
        asyncio.timeout(5),
        nothing_stays(),
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1)) as session,
        place(moment, server, session) as url,
    ):
        idle = timers()
        leave = consumer(asking(session, url), seen, holds)
        await the_moment(moment, server, seen, session)
        if way == "here":
            leave.here()
        elif way == "another thread":
            await asyncio.to_thread(leave.elsewhere)
        else:
            await session.close()
        had = list(seen.items)
        if moment not in NO_CONNECTION:
            await server.gone.wait()
        if way == "closing the session" and not holds:
            await until(lambda: seen.ends)
            assert len(seen.ends) == 1
            assert isinstance(seen.ends[0], StreamError)
        else:
            assert (seen.items == had, seen.ends) == (True, [])
        leave.here()
        seen.let_go.set()
        await until(lambda: at_rest(session, idle, taken=moment == "waiting for a connection"))


@pytest.mark.parametrize("raises", [False, True], ids=["leaves", "raises"])
@pytest.mark.parametrize(("moment", "due"), [("in the body", FEW), ("burst", MANY)])
@EVERY_CONSUMER
async def test_a_consumer_that_leaves_or_raises_closes_the_connection(
    consumer: Consumer, moment: str, due: int, raises: bool
) -> None:
    server, seen = Server(moment), Seen(due=due, raises=raises)
    async with asyncio.timeout(5), nothing_stays(), aiohttp.ClientSession() as session, server as url:
        idle = timers()
        consumer(asking(session, url), seen, False)
        await server.gone.wait()
        await until(lambda: seen.ends and at_rest(session, idle))
    assert [type(end) for end in seen.ends] == [RuntimeError if raises else type(None)]
    # What already runs beside the handler that leaves has had its item.
    assert due <= len(seen.items) <= due + (consumer in (handling, awaiting, sharing))


@EVERY_CONSUMER
async def test_after_a_whole_answer_the_connection_is_used_again(consumer: Consumer) -> None:
    sandbox = Sandbox()
    async with asyncio.timeout(5), nothing_stays(), aiohttp.ClientSession() as session, sandbox as base_url:
        idle = timers()
        for _ in range(3):
            seen = Seen()
            consumer(asking(session, f"{base_url}/chat/completions"), seen, False)
            await until(lambda seen=seen: seen.ends and session.connector and not session.connector._acquired)
            assert (seen.ends, seen.items[-1]) == ([None], Done())
        await until(lambda: len(timers()) <= len(idle) + 2)  # the client's and the server's, for what they keep alive
    assert len({request.port for request in sandbox.requests}) == 1


@contextmanager
def threads_change_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


@pytest.mark.parametrize("consumer", [subscribe, handling, on_a_thread, sharing], ids=lambda it: it.__name__)
async def test_nothing_is_delivered_after_dispose_returned_in_another_thread(consumer: Consumer) -> None:
    late: list[int] = []
    with threads_change_often():
        async with asyncio.timeout(30), nothing_stays(), aiohttp.ClientSession() as session:
            for attempt in range(100):
                server, seen = Server("burst"), Seen()
                async with server as url:
                    leave = consumer(asking(session, url), seen, False)
                    await until(lambda seen=seen, attempt=attempt: len(seen.items) > attempt)

                    def dispose(leave: Leave = leave, seen: Seen = seen) -> int:
                        leave.elsewhere()
                        return len(seen.items)

                    had = await asyncio.to_thread(dispose)
                    await server.gone.wait()
                late.append(len(seen.items) - had)
    assert not any(late)


async def test_disposed_before_its_first_step_no_timer_stays(session: aiohttp.ClientSession) -> None:
    idle = timers()
    asking(session, "http://127.0.0.1:1/").subscribe(Seen().react).dispose()
    assert timers() == idle
