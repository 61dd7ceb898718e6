"""What a slow consumer costs: a flood from a real server against one that takes a few items and falls asleep.

    python benchmarks/pressure.py [--megabytes 300] [--rounds 3]

Every kind of consumer that Rillet has, beside raw aiohttp, httpx and the openai client, which read only when asked, and
beside a queue without a bound. Each runs in a process of its own against a server in another, once a round; the median
counts. Exits with 1 where one of ours lets the server push, or grows by, more than the best of the others and the
tolerance (half as much again and 1 MB, since the kernel sizes its buffers as it likes), where the server can go on
sending while the consumer sleeps, or where it does not see the consumer leave. Needs Linux: memory is read from /proc.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import multiprocessing
import sys
import time
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping
from contextlib import aclosing, contextmanager
from importlib.util import find_spec
from multiprocessing.queues import Queue
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Event
from pathlib import Path
from queue import Empty
from statistics import median
from typing import Any, NamedTuple, TypeAlias

import aiohttp
import fixtures
from aiohttp import web
from reactivex import Observable
from reactivex.scheduler import EventLoopScheduler

from rillet.operators import Delta, bounded, share
from rillet.pipeline import Limits, bytes_from, deltas, for_each, iterate

ITEMS = 3
SLEEP = 2.0
LOOKS = (1.0, 1.8)  # seconds into the sleep
PATIENCE = 15.0
MEGABYTE = 1_000_000
TIMES, SLACK = 1.5, MEGABYTE
WARMING = MEGABYTE // 2
SMALLEST_FLOOD = 32  # less fits into the buffers between a server and a client
STATUS = Path("/proc/self/status")
CLEAR = Path("/proc/self/clear_refs")

spawn = multiprocessing.get_context("spawn")


class Bed:
    """Where a consumer sleeps: `nap` in its event loop, `nap_here` where it blocks its thread. At first, not at all."""

    def __init__(self, asleep: Event) -> None:
        self.seconds = 0.0
        self._asleep = asleep

    async def nap(self) -> None:
        self._fall_asleep()
        await asyncio.sleep(self.seconds)

    def nap_here(self) -> None:
        self._fall_asleep()
        time.sleep(self.seconds)

    def _fall_asleep(self) -> None:
        if self.seconds:
            self._asleep.set()


Consumer: TypeAlias = Callable[[str, Bed], Awaitable[None]]
"""Takes a few items of the stream at the URL, naps, and leaves."""


class Shared(NamedTuple):
    """What the three processes can all see."""

    pushed: Synchronized[int]
    asleep: Event
    gone: Event


class Reading(NamedTuple):
    """What was measured of a consumer, in bytes: its growth, and what had been pushed at two moments of its sleep."""

    growth: int
    halfway: int
    pushed: int
    seen_leaving: bool


def main() -> int:
    """Measure all the consumers; the exit code judges ours."""
    options = arguments()
    size = options.megabytes * MEGABYTE
    print(
        f"{options.megabytes} MB of openai-chat text events; the consumer takes {ITEMS} items, then sleeps {SLEEP:g} s"
    )
    print(f"the median of {options.rounds} rounds\n")
    titles = ("peak above idle", *(f"pushed at {look:g} s" for look in LOOKS), "seen leaving")
    print(" " * 28 + "".join(f"{title:>18}" for title in titles))
    rivals = {name: measured(name, rival, size, options.rounds) for name, rival in RIVALS.items() if is_here(name)}
    ours = {name: measured(name, consumer, size, options.rounds) for name, consumer in OURS.items()}
    measured("asyncio.Queue, no window", unbounded, size, 1)
    faults = [
        f"{name}: {fault}" for name, reading in ours.items() for fault in faults_of(reading, [*rivals.values()], size)
    ]
    for fault in faults:
        print(fault, file=sys.stderr)
    return int(bool(faults))


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="What a slow consumer costs.")
    parser.add_argument("--megabytes", type=int, default=300, help="the size of the flood; 300 by default")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is measured; 3 by default")
    options = parser.parse_args()
    if options.megabytes < SMALLEST_FLOOD:
        parser.error(f"--megabytes must be at least {SMALLEST_FLOOD}: less fits into the buffers on the way")
    if not STATUS.exists():
        parser.error(f"there is no {STATUS} here to read the memory from")
    return options


def is_here(name: str) -> bool:
    """Whether the package that a rival is named after is installed."""
    package = name.partition(",")[0]
    if find_spec(package) is not None:
        return True
    print(f"{package} is not installed: no row for it")
    return False


def measured(name: str, consumer: Consumer, size: int, rounds: int) -> Reading:
    """Measure a consumer so many times, and print the row of the medians."""
    readings = [measure(consumer, size) for _ in range(rounds)]
    growth, halfway, pushed, seen_leaving = zip(*readings, strict=True)
    reading = Reading(int(median(growth)), int(median(halfway)), int(median(pushed)), all(seen_leaving))
    cells = "".join(f"{size / MEGABYTE:15.1f} MB" for size in reading[:3])
    print(f"{name:28}{cells}{'yes' if reading.seen_leaving else 'no':>18}", flush=True)
    return reading


def measure(consumer: Consumer, size: int) -> Reading:
    """Measure a consumer in a process of its own, against a server in another."""
    shared = Shared(spawn.Value("q", 0), spawn.Event(), spawn.Event())
    with running(serve, size, shared) as server:
        url = answer_of(server)
        with running(consume, consumer, url, shared) as client:
            return observe(shared, client)


def observe(shared: Shared, client: Queue[Any]) -> Reading:
    """Read the server's meter while the consumer sleeps; then what the consumer says of itself."""
    if not shared.asleep.wait(PATIENCE):
        sys.exit("the consumer did not come to its sleep")
    first, second = LOOKS
    time.sleep(first)
    if shared.gone.is_set():
        sys.exit("the connection ended while the consumer slept")
    halfway = shared.pushed.value
    time.sleep(second - first)
    pushed = shared.pushed.value
    return Reading(answer_of(client), halfway, pushed, shared.gone.wait(PATIENCE))


def faults_of(reading: Reading, rivals: list[Reading], size: int) -> Iterator[str]:
    """What is wrong with a reading."""
    for what, mine, best in (
        ("grew by", reading.growth, min((rival.growth for rival in rivals), default=reading.growth)),
        ("let the server push", reading.pushed, min((rival.pushed for rival in rivals), default=reading.pushed)),
    ):
        if mine > best * TIMES + SLACK:
            yield f"{what} {mine:,} bytes, the best of the others {best:,}"
    if reading.pushed >= size:
        yield "the server could push everything"
    if reading.pushed > reading.halfway:
        yield f"the server pushed {reading.pushed - reading.halfway:,} bytes more in the second half of the sleep"
    if not reading.seen_leaving:
        yield "the server did not see the consumer leave"


@contextmanager
def running(target: Callable[..., None], *args: object) -> Generator[Queue[Any]]:
    """A process for the time of the block; gives the queue on which it answers."""
    answers: Queue[Any] = spawn.Queue()
    process = spawn.Process(target=target, args=(answers, *args), daemon=True)
    process.start()
    try:
        yield answers
    finally:
        process.terminate()
        process.join(PATIENCE)


def answer_of(answers: Queue[Any]) -> Any:
    """The next answer of a process."""
    try:
        return answers.get(timeout=PATIENCE)
    except Empty:
        sys.exit("a process did not answer")


def serve(answers: Queue[str], size: int, shared: Shared) -> None:
    """The server's process: answers with its URL, then serves until it is terminated."""
    asyncio.run(serving(answers, size, shared))


async def serving(answers: Queue[str], size: int, shared: Shared) -> None:
    """Serve the flood, counting the bytes that the connection took."""

    async def flood(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        try:
            for block in fixtures.flood(size):
                await response.write(block)
                shared.pushed.value += len(block)
            await asyncio.Event().wait()  # until the client has gone
        finally:
            shared.gone.set()
        return response

    async def warming(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for block in fixtures.flood(WARMING):
            await response.write(block)
        return response

    logging.disable()  # clients that leave are no news here
    app = web.Application()
    app.router.add_post("/warming/chat/completions", warming)
    app.router.add_post("/chat/completions", flood)
    runner = web.AppRunner(app, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    answers.put(f"http://{host}:{port}/")
    await asyncio.Event().wait()


def consume(answers: Queue[int], consumer: Consumer, url: str, shared: Shared) -> None:
    """The consumer's process: answers with its growth in bytes, then waits to be terminated."""
    asyncio.run(consuming(answers, consumer, url, shared))


async def consuming(answers: Queue[int], consumer: Consumer, url: str, shared: Shared) -> None:
    """Run the consumer, then stay: a process that ends closes everything, whether the consumer did or not.

    It runs once before, on a short stream, so that what it needs is loaded when it counts.
    """
    bed = Bed(shared.asleep)
    await consumer(f"{url}warming/", bed)
    bed.seconds = SLEEP
    gc.collect()
    idle = forget_peak()
    await consumer(url, bed)
    answers.put(memory("VmHWM") - idle)
    await asyncio.Event().wait()


def forget_peak() -> int:
    """Have the peak start anew, from the size of now."""
    CLEAR.write_text("5")
    return memory("VmRSS")


def memory(field: str) -> int:
    """A figure of this process in bytes: VmRSS is its size now, VmHWM its peak."""
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024


async def iterated(url: str, bed: Bed) -> None:
    """Asynchronous iteration."""
    async with aiohttp.ClientSession() as session, aclosing(iterate(answer_deltas(session, url))) as answer:
        for _ in range(ITEMS):
            await anext(answer)
        await bed.nap()


async def handled(url: str, bed: Bed) -> None:
    """An awaiting handler."""
    taken, woken = 0, asyncio.Event()

    async def handle(delta: Delta) -> None:
        nonlocal taken
        taken += 1
        if taken >= ITEMS:
            await bed.nap()
            woken.set()

    async with aiohttp.ClientSession() as session:
        subscription = answer_deltas(session, url).pipe(for_each(handle)).subscribe()
        await woken.wait()
        subscription.dispose()


async def on_a_thread(url: str, bed: Bed) -> None:
    """A subscriber on another thread, which blocks it."""
    scheduler = EventLoopScheduler()
    async with aiohttp.ClientSession() as session:
        await until_woken(answer_deltas(session, url).pipe(bounded(scheduler=scheduler)), bed)
    scheduler.dispose()


async def shared_by_three(url: str, bed: Bed) -> None:
    """Three iterate over one stream; one sleeps."""
    async with aiohttp.ClientSession() as session:
        stream = answer_deltas(session, url).pipe(share())
        others = [asyncio.create_task(read_all(stream)) for _ in range(2)]
        async with aclosing(iterate(stream)) as answer:
            for _ in range(ITEMS):
                await anext(answer)
            await bed.nap()
        for other in others:
            other.cancel()
        await asyncio.wait(others)


async def read_all(stream: Observable[Delta]) -> None:
    async with aclosing(iterate(stream)) as answer:
        async for _ in answer:
            pass


async def synchronous(url: str, bed: Bed) -> None:
    """A plain subscriber, which blocks the event loop."""
    async with aiohttp.ClientSession() as session:
        await until_woken(answer_deltas(session, url), bed)


async def until_woken(stream: Observable[Delta], bed: Bed) -> None:
    """Subscribe, nap at the item that is due, wherever that is, and leave."""
    loop, woken, taken = asyncio.get_running_loop(), asyncio.Event(), 0

    def take(delta: Delta) -> None:
        nonlocal taken
        taken += 1
        if taken == ITEMS:
            bed.nap_here()
            loop.call_soon_threadsafe(woken.set)

    subscription = stream.subscribe(take)
    await woken.wait()
    subscription.dispose()


async def raw_aiohttp(url: str, bed: Bed) -> None:
    """aiohttp alone."""
    async with aiohttp.ClientSession() as session, session.post(f"{url}chat/completions") as response:
        chunks = response.content.iter_any()
        for _ in range(ITEMS):
            await anext(chunks)
        await bed.nap()


async def raw_httpx(url: str, bed: Bed) -> None:
    """httpx alone."""
    import httpx

    async with (
        httpx.AsyncClient() as client,
        client.stream("POST", f"{url}chat/completions") as response,
    ):
        chunks = response.aiter_bytes()
        for _ in range(ITEMS):
            await anext(chunks)
        await bed.nap()


async def the_openai_client(url: str, bed: Bed) -> None:
    """The openai client's asynchronous stream."""
    import openai

    async with (
        openai.AsyncOpenAI(base_url=url, api_key="none") as client,
        await client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "hi"}], stream=True
        ) as answer,
    ):
        for _ in range(ITEMS):
            await anext(answer)
        await bed.nap()


async def unbounded(url: str, bed: Bed) -> None:
    """The contrast: a subscriber that puts everything into a queue without a bound."""
    queue = asyncio.Queue[Delta]()
    async with aiohttp.ClientSession() as session:
        subscription = answer_deltas(session, url).subscribe(queue.put_nowait, lambda _: None)
        for _ in range(ITEMS):
            await queue.get()
        await bed.nap()
        subscription.dispose()


def answer_deltas(session: aiohttp.ClientSession, url: str) -> Observable[Delta]:
    """The flood as deltas, with no limit to its length."""
    source = bytes_from(session, "POST", f"{url}chat/completions")
    return deltas(source, "openai-chat", limits=Limits(max_bytes=None))


RIVALS: Mapping[str, Consumer] = {
    "aiohttp, iter_any": raw_aiohttp,
    "httpx, aiter_bytes": raw_httpx,
    "openai, its stream": the_openai_client,
}
OURS: Mapping[str, Consumer] = {
    "iterate": iterated,
    "for_each": handled,
    "bounded, on a thread": on_a_thread,
    "share, three iterate": shared_by_three,
    "subscribe, blocking": synchronous,
}


if __name__ == "__main__":
    sys.exit(main())
