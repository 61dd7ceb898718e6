"""Many streams at once, good and bad ones, for consumers of every kind: nothing leaks, and each ends as it must.

    python benchmarks/soak.py [--quick] [--seed N] [--streams N] [--at-once N] [--seconds S]

The sandbox runs in a process of its own, so that what is counted here is the client's alone. Exits with 1 where a
stream ends in another way than its fault calls for, where a task, timer, connection, descriptor, thread or object of a
stream stays, or where memory grows: there are two halves with a rest after each, when nothing runs and what is free was
given back, and at the second rest the process may be 4 MB larger than at the first. Needs Linux with glibc.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import gc
import logging
import multiprocessing
import os
import random
import sys
import threading
import time
import zlib
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import aiohttp
from reactivex import Observable
from reactivex import operators as rxops
from reactivex.scheduler import EventLoopScheduler

from rillet.operators import Delta, TextDelta, bounded, share
from rillet.pipeline import Timeouts, ask, for_each, iterate
from rillet.pipeline.sandbox import Fault, Sandbox, Script, Wire

MEGABYTE = 1_000_000
GROWTH_LIMIT = 4 * MEGABYTE
SILENCE = 3.0
PATIENCE = 10.0
PER_STREAM = (
    "rillet.pipeline.source",
    "rillet.pipeline.body",
    "rillet.pipeline.pressure",
    "rillet.pipeline.for_each",
    "rillet.pipeline.chain",
)
LEFT, WRONG = "left", "another text"

spawn = multiprocessing.get_context("spawn")

Stream: TypeAlias = Observable[Delta]


class Effort(NamedTuple):
    """How much is done."""

    streams: int
    at_once: int
    seconds: float


FULL = Effort(streams=2_000, at_once=100, seconds=60.0)
QUICK = Effort(streams=150, at_once=40, seconds=5.0)


class Way(NamedTuple):
    """How an answer travels: how often of a hundred, what it says, on which wire, and where a fault cuts in."""

    weight: int
    script: Script
    wire: Wire
    after: int


WAYS: Mapping[str, Way] = {
    "slow": Way(65, Script("word " * 40, piece=5), Wire(delay=0.06), after=2_000),
    "in pieces": Way(20, Script("word " * 400, piece=5), Wire(seed=1), after=20_000),
    "a flood": Way(15, Script("word " * 1_200_000, piece=16_000), Wire(), after=3_000_000),
}

ENDINGS: Mapping[str, str] = {
    "well": "completed",
    "cut": "TruncatedStream",
    "end": "TruncatedStream",
    "reset": "TruncatedStream",
    "error": "ProviderError",
    "stall": "IdleTimeout",
    "status": "HttpStatusError",
    "html": "NotAnEventStream",
}
"""What a stream's end must be told as."""

WITHOUT_BODY = ("status", "html")


class Job(NamedTuple):
    """One stream: who consumes it, how it travels and how it ends."""

    consumer: str
    way: str
    ending: str

    @property
    def expected(self) -> str:
        """How it must end for the consumer: who leaves does so at the first item, if there is one."""
        leaves = self.consumer in LEAVING and self.ending not in WITHOUT_BODY
        return LEFT if leaves else ENDINGS[self.ending]


def jobs(seed: int) -> Iterator[Job]:
    """Jobs without end, the same for the same seed."""
    dice = random.Random(seed)
    ways, weights = zip(*((name, way.weight) for name, way in WAYS.items()), strict=True)
    while True:
        consumer = dice.choice([*CONSUMERS])
        (way,), ending = dice.choices(ways, weights), dice.choice(["well", "well", *ENDINGS])
        if consumer == "disposed by another thread" and ending not in WITHOUT_BODY:
            way, ending = "slow", dice.choice(("well", "stall"))  # it must still run when the other thread comes to it
        yield Job(consumer, way, ending)


class Reader:
    """What a consumer has read of an answer."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.items = 0
        self.first = asyncio.Event()
        self._sum = 0
        self._loop = asyncio.get_running_loop()

    def take(self, delta: Delta) -> None:
        """Note an item, on whatever thread."""
        self.items += 1
        if self.items == 1:
            self._loop.call_soon_threadsafe(self.first.set)
        if isinstance(delta, TextDelta):
            self._sum = zlib.crc32(delta.text.encode(), self._sum)

    def check(self) -> None:
        """At the end of a whole answer: is it the one that was sent?"""
        if self._sum != zlib.crc32(WAYS[self.job.way].script.text.encode()):
            raise ValueError(WRONG)


class World(NamedTuple):
    """What the consumers share."""

    threads: ThreadPoolExecutor
    schedulers: tuple[EventLoopScheduler, ...]

    def scheduler(self) -> EventLoopScheduler:
        return random.choice(self.schedulers)


async def iterated(stream: Stream, reader: Reader, world: World) -> None:
    async with aclosing(iterate(stream)) as flow:
        async for delta in flow:
            reader.take(delta)
    reader.check()


async def iterated_sleeping(stream: Stream, reader: Reader, world: World) -> None:
    async with aclosing(iterate(stream)) as flow:
        async for delta in flow:
            reader.take(delta)
            if reader.items % 16 == 1:
                await asyncio.sleep(0.15)
    reader.check()


async def iterated_and_left(stream: Stream, reader: Reader, world: World) -> str | None:
    async with aclosing(iterate(stream)) as flow:
        async for delta in flow:
            reader.take(delta)
            return LEFT
    return None


async def iterated_and_cancelled(stream: Stream, reader: Reader, world: World) -> str | None:
    async def consume() -> None:
        async with aclosing(iterate(stream)) as flow:
            async for delta in flow:
                reader.take(delta)
                await asyncio.Event().wait()

    consuming, first = asyncio.create_task(consume()), asyncio.create_task(reader.first.wait())
    await asyncio.wait((consuming, first), return_when=asyncio.FIRST_COMPLETED)
    for task in (first, consuming):
        task.cancel()
    try:
        await consuming
    except asyncio.CancelledError:
        return LEFT
    return None


async def handled(stream: Stream, reader: Reader, world: World) -> None:
    async def handle(delta: Delta) -> None:
        await asyncio.sleep(0.002)

    await subscribed(stream.pipe(rxops.do_action(reader.take), for_each(handle, concurrency=4)), lambda _: None)
    reader.check()


async def handled_until_one_raises(stream: Stream, reader: Reader, world: World) -> str | None:
    class Enough(Exception):
        pass

    async def handle(delta: Delta) -> None:
        await asyncio.sleep(0)
        raise Enough

    try:
        await subscribed(stream.pipe(for_each(handle, concurrency=4)), lambda _: None)
    except Enough:
        return LEFT
    return None


async def on_another_thread(stream: Stream, reader: Reader, world: World) -> None:
    def take(delta: Delta) -> None:
        reader.take(delta)
        time.sleep(0.0005)

    await subscribed(stream.pipe(bounded(scheduler=world.scheduler())), take)
    reader.check()


async def left_on_another_thread(stream: Stream, reader: Reader, world: World) -> str | None:
    await subscribed(stream.pipe(bounded(scheduler=world.scheduler()), rxops.take(1)), reader.take)
    return LEFT if reader.items else None


async def shared_by_three(stream: Stream, reader: Reader, world: World) -> None:
    three = stream.pipe(share())
    consumers: tuple[Consumer, ...] = (plainly, iterated_sleeping, on_another_thread)
    ends = await asyncio.gather(
        *(outcome(consumer, three, Reader(reader.job), world) for consumer in consumers), return_exceptions=True
    )
    if set(ends) != {reader.job.expected}:
        raise ValueError(", ".join(map(str, ends)))
    raise _Told(reader.job.expected)


class _Told(Exception):
    """An outcome that was found already."""


async def plainly(stream: Stream, reader: Reader, world: World) -> None:
    await subscribed(stream, reader.take)
    reader.check()


async def disposed_by_another_thread(stream: Stream, reader: Reader, world: World) -> str | None:
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()
    subscription = stream.subscribe(reader.take, over.set_exception, lambda: over.set_result(None))
    first = asyncio.create_task(reader.first.wait())
    await asyncio.wait((over, first), return_when=asyncio.FIRST_COMPLETED)
    first.cancel()
    if over.done():
        await over
        return None

    def dispose() -> int:
        subscription.dispose()
        return reader.items

    had = await loop.run_in_executor(world.threads, dispose)
    await asyncio.sleep(0.2)
    if over.done() or reader.items != had:
        raise ValueError("something was delivered after dispose returned")
    return LEFT


async def subscribed(stream: Observable[Any], take: Callable[[Any], None]) -> None:
    """A plain subscription; wait for its end, on whatever thread that comes."""
    loop = asyncio.get_running_loop()
    over: asyncio.Future[Exception | None] = loop.create_future()

    def end(error: Exception | None = None) -> None:
        loop.call_soon_threadsafe(over.set_result, error)

    stream.subscribe(take, end, end)
    error = await over
    if error is not None:
        raise error


Consumer: TypeAlias = Callable[[Stream, Reader, World], Awaitable[str | None]]
"""Consumes a stream; its result is how it left, where it did."""

LEAVING: Mapping[str, Consumer] = {
    "iterate, left": iterated_and_left,
    "iterate, cancelled": iterated_and_cancelled,
    "for_each, raising": handled_until_one_raises,
    "bounded, take(1)": left_on_another_thread,
    "disposed by another thread": disposed_by_another_thread,
}
CONSUMERS: Mapping[str, Consumer] = {
    "iterate": iterated,
    "iterate, sleeping": iterated_sleeping,
    "for_each": handled,
    "bounded": on_another_thread,
    "share, three": shared_by_three,
    "subscribe": plainly,
    **LEAVING,
}


async def outcome(consumer: Consumer, stream: Stream, reader: Reader, world: World) -> str:
    """How a stream ended for a consumer."""
    try:
        return await consumer(stream, reader, world) or "completed"
    except _Told as told:
        return str(told)
    except ValueError as error:
        known = type(error).__name__ in ENDINGS.values()
        return type(error).__name__ if known else f"{type(error).__name__}: {error}"


def main() -> int:
    """Run it; the exit code."""
    effort, seed = arguments()
    print(f"{effort.streams:,} streams or more, {effort.at_once} at once, for {effort.seconds:g} s; seed {seed}")
    here, there = spawn.Pipe()
    server = spawn.Process(target=serve, args=(there,), daemon=True)
    server.start()
    try:
        urls: dict[tuple[str, str], str] = answer(here)
        done, faults = asyncio.run(soak(urls, effort, seed))
        here.send("over?")
        faults += server_faults(done, *answer(here))
    finally:
        server.terminate()
        server.join(PATIENCE)
    for fault in faults:
        print(fault, file=sys.stderr)
    print("nothing leaked, and every stream ended as it must" if not faults else f"{len(faults)} faults")
    return int(bool(faults))


def arguments() -> tuple[Effort, int]:
    """The command line."""
    parser = argparse.ArgumentParser(description="Many streams at once: nothing leaks, each ends as it must.")
    parser.add_argument("--quick", action="store_true", help="fewer streams: a few seconds, for CI")
    parser.add_argument("--seed", type=int, default=1, help="which mix of streams; 1 by default")
    parser.add_argument("--streams", type=int, help="how many at least")
    parser.add_argument("--at-once", type=int, help="how many run at any time")
    parser.add_argument("--seconds", type=float, help="how long at least")
    options = parser.parse_args()
    given = {name: value for name, value in vars(options).items() if name in Effort._fields and value is not None}
    if not Path("/proc/self/fd").exists():
        parser.error("there is no /proc/self here to read descriptors and memory from")
    return (QUICK if options.quick else FULL)._replace(**given), options.seed


def answer(pipe: Connection) -> Any:
    """The server's next answer."""
    if not pipe.poll(PATIENCE):
        sys.exit("the server did not answer")
    return pipe.recv()


def serve(pipe: Connection) -> None:
    """The server's process: a sandbox for each way and each ending."""
    logging.disable()  # clients that leave are no news here
    asyncio.run(serving(pipe))


async def serving(pipe: Connection) -> None:
    """Answer with the URLs; when asked, with how many requests came, and how many are still open."""
    sandboxes = {(way, ending): sandbox(way, ending) for way in WAYS for ending in ENDINGS}
    async with AsyncExitStack() as running:
        pipe.send({key: await running.enter_async_context(each) for key, each in sandboxes.items()})
        await asyncio.to_thread(pipe.recv)
        requests = [request for each in sandboxes.values() for request in each.requests]
        try:
            async with asyncio.timeout(PATIENCE / 2):
                await asyncio.gather(*(request.over.wait() for request in requests))
        except TimeoutError:
            pass
        pipe.send((len(requests), sum(not request.over.is_set() for request in requests)))
        await asyncio.Event().wait()


def sandbox(way: str, ending: str) -> Sandbox:
    """The sandbox that answers in this way with this ending."""
    _, script, wire, after = WAYS[way]
    return Sandbox(script, wire, None if ending == "well" else Fault(ending, after))  # type: ignore[arg-type]


def server_faults(done: int, requests: int, still_open: int) -> Iterator[str]:
    """What is wrong with what the server saw."""
    print(f"the server saw {requests:,} requests, {still_open} of them still open")
    if requests != done:
        yield f"the server saw {requests:,} requests for {done:,} streams"
    if still_open:
        yield f"the server still has {still_open} open requests"


class Tally:
    """What has happened so far."""

    def __init__(self) -> None:
        self.seen: Counter[tuple[Job, str]] = Counter()
        self.open = 0
        self.peak = 0
        self.rests: list[int] = []
        self.start = time.monotonic()

    @property
    def done(self) -> int:
        return self.seen.total()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.start

    @property
    def surprises(self) -> int:
        return sum(count for (job, seen), count in self.seen.items() if seen != job.expected)


async def soak(urls: Mapping[tuple[str, str], str], effort: Effort, seed: int) -> tuple[int, list[str]]:
    """Run the streams; how many there were, and what is wrong with what was seen."""
    complaints: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: complaints.append(f"the loop complains: {context}"))
    idle = Left.now()
    tally, mix = Tally(), jobs(seed)
    async with world() as shared, session() as asking:
        stream_of = streams(asking, urls)
        watching = asyncio.create_task(watch(tally))

        async def work(half: float) -> None:
            while tally.done + tally.open < effort.streams * half or tally.seconds < effort.seconds * half:
                job = next(mix)
                tally.open += 1
                seen = await outcome(CONSUMERS[job.consumer], stream_of(job), Reader(job), shared)
                tally.open -= 1
                tally.seen[job, seen] += 1

        for half in (0.5, 1.0):
            await asyncio.gather(*(work(half) for _ in range(effort.at_once)))
            await asyncio.sleep(0.1)  # what drains after its end drains for 20 ms
            tally.rests.append(memory_at_rest())
        watching.cancel()
        taken = len(asking.connector._acquired) if asking.connector else 0
    await asyncio.sleep(0.1)
    left = Left.now()
    table(tally)
    return tally.done, [
        *complaints,
        *wrong_ends(tally),
        *([f"{taken} connections are still in use"] if taken else []),
        *left.beyond(idle),
        *growth(tally),
    ]


def streams(asking: aiohttp.ClientSession, urls: Mapping[tuple[str, str], str]) -> Callable[[Job], Stream]:
    """The stream for each job."""
    timeouts = Timeouts(liveness=SILENCE)

    def stream(job: Job) -> Stream:
        return ask(asking, "hi", provider="openai", base_url=urls[job.way, job.ending], timeouts=timeouts)

    return stream


@asynccontextmanager
async def world() -> AsyncGenerator[World]:
    """Threads and schedulers, for the time of the block."""
    threads = [*threading.enumerate()]
    schedulers = tuple(EventLoopScheduler() for _ in range(4))
    with ThreadPoolExecutor(2) as pool:
        yield World(pool, schedulers)
    for scheduler in schedulers:
        scheduler.dispose()
    for thread in {*threading.enumerate()} - {*threads}:
        thread.join(PATIENCE)


@asynccontextmanager
async def session() -> AsyncGenerator[aiohttp.ClientSession]:
    """A session that lets as many connections be as there are streams."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        yield session


async def watch(tally: Tally) -> None:
    """Note the size of this process, and say how it goes."""
    said = 0.0
    every = 1.0 if sys.stdout.isatty() else 5.0
    while True:
        tally.peak = max(tally.peak, memory())
        if tally.seconds - said >= every:
            said = tally.seconds
            line = f"{said:4.0f} s: {tally.done:5,} done, {tally.open} open, {memory() / MEGABYTE:.1f} MB"
            print(f"{line}, {tally.surprises} surprises", end="\r" if sys.stdout.isatty() else "\n", flush=True)
        await asyncio.sleep(0.1)


def memory() -> int:
    """The size of this process in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def memory_at_rest() -> int:
    """The same, without what is garbage, and what is free and was kept by malloc."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return memory()


class Left(NamedTuple):
    """What a leak shows in."""

    tasks: int
    timers: int
    descriptors: int
    threads: int
    objects: int

    @classmethod
    def now(cls) -> Left:
        gc.collect()
        loop: Any = asyncio.get_running_loop()
        return cls(
            tasks=len(asyncio.all_tasks()),
            timers=sum(not timer.cancelled() for timer in loop._scheduled),
            descriptors=len(os.listdir("/proc/self/fd")),
            threads=threading.active_count(),
            objects=sum(type(each).__module__ in PER_STREAM for each in gc.get_objects()),
        )

    def beyond(self, idle: Left) -> list[str]:
        """What is there that was not when nothing had been done yet."""
        pairs = {name: (before, after) for name, before, after in zip(self._fields, idle, self, strict=True)}
        print(", ".join(f"{name} {before} → {after}" for name, (before, after) in pairs.items()))
        return [f"{after - before} {name} stay" for name, (before, after) in pairs.items() if after > before]


def table(tally: Tally) -> None:
    """What was expected, and what was seen."""
    print(f"\n{tally.done:,} streams in {tally.seconds:.1f} s")
    print(f"{'consumer':28}{'ending':10}{'expected':20}{'streams':>8}  seen")
    rows: dict[tuple[str, str, str], Counter[str]] = {}
    for (job, seen), count in tally.seen.items():
        rows.setdefault((job.consumer, job.ending, job.expected), Counter())[seen] += count
    for (consumer, ending, expected), ends in sorted(rows.items()):
        others = ", ".join(f"{count} {end}" for end, count in ends.items() if end != expected)
        print(f"{consumer:28}{ending:10}{expected:20}{ends.total():8}  {others or 'as expected'}")


def wrong_ends(tally: Tally) -> list[str]:
    """The streams that ended in another way than they must."""
    return [
        f"{count} times {job.consumer}, {job.way}, {job.ending}: {seen} instead of {job.expected}"
        for (job, seen), count in tally.seen.items()
        if seen != job.expected
    ]


def growth(tally: Tally) -> list[str]:
    """Whether the second half left memory behind."""
    first, second = tally.rests
    print(f"memory at rest: {first / MEGABYTE:.1f} MB, then {second / MEGABYTE:.1f} MB", end="")
    print(f"; at most {tally.peak / MEGABYTE:.1f} MB")
    return [f"the second half left {second - first:,} bytes behind"] if second - first > GROWTH_LIMIT else []


if __name__ == "__main__":
    sys.exit(main())
