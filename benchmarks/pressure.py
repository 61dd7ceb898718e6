"""What a slow consumer costs: a flood from a real server against one that takes a few items and falls asleep.

    python benchmarks/pressure.py [--megabytes 300]

Exits with 1 where the consumer grows by more than 64 MB, where the server can go on sending while the consumer sleeps,
or where it does not see the consumer leave. Needs Linux: memory is read from /proc.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import sys
import time
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import aclosing, contextmanager
from multiprocessing.queues import Queue
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Event
from pathlib import Path
from queue import Empty
from typing import Any, NamedTuple, TypeAlias

import aiohttp
import fixtures
from aiohttp import web
from reactivex import Observable

from rillet.operators import Delta
from rillet.pipeline import Limits, bytes_from, deltas, iterate

ITEMS = 3
SLEEP = 2.0
LOOKS = (1.0, 1.8)  # seconds into the sleep
PATIENCE = 5.0
MEGABYTE = 1_000_000
GROWTH_LIMIT = 64 * MEGABYTE
SMALLEST_FLOOD = 32  # less fits into the buffers between a server and a client
STATUS = Path("/proc/self/status")

spawn = multiprocessing.get_context("spawn")

Nap: TypeAlias = Callable[[], Awaitable[None]]
Consumer: TypeAlias = Callable[[aiohttp.ClientSession, str, Nap], Awaitable[None]]
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
    """Measure both consumers; the exit code judges the first."""
    megabytes = arguments().megabytes
    print(f"{megabytes} MB of openai-chat text events; the consumer takes {ITEMS} items, then sleeps {SLEEP:g} s\n")
    titles = ("peak above idle", *(f"pushed at {look:g} s" for look in LOOKS), "seen leaving")
    print(" " * 28 + "".join(f"{title:>18}" for title in titles))
    ours = measured("iterate, a window", windowed, megabytes * MEGABYTE)
    measured("asyncio.Queue, no window", unbounded, megabytes * MEGABYTE)
    faults = list(faults_of(ours, megabytes * MEGABYTE))
    for fault in faults:
        print(f"iterate: {fault}", file=sys.stderr)
    return int(bool(faults))


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="What a slow consumer costs.")
    parser.add_argument("--megabytes", type=int, default=300, help="the size of the flood; 300 by default")
    options = parser.parse_args()
    if options.megabytes < SMALLEST_FLOOD:
        parser.error(f"--megabytes must be at least {SMALLEST_FLOOD}: less fits into the buffers on the way")
    if not STATUS.exists():
        parser.error(f"there is no {STATUS} here to read the memory from")
    return options


def measured(name: str, consumer: Consumer, size: int) -> Reading:
    """Measure a consumer in a process of its own, against a server in another, and print the row."""
    shared = Shared(spawn.Value("q", 0), spawn.Event(), spawn.Event())
    with running(serve, size, shared) as server:
        url = answer_of(server)
        with running(consume, consumer, url, shared) as client:
            reading = observe(shared, client)
    sizes = (reading.growth, reading.halfway, reading.pushed)
    cells = "".join(f"{size / MEGABYTE:15.1f} MB" for size in sizes)
    print(f"{name:28}{cells}{'yes' if reading.seen_leaving else 'no':>18}")
    return reading


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


def faults_of(reading: Reading, size: int) -> Iterator[str]:
    """What is wrong with a reading."""
    if reading.growth > GROWTH_LIMIT:
        yield f"grew by {reading.growth:,} bytes, over {GROWTH_LIMIT:,}"
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

    app = web.Application()
    app.router.add_get("/", flood)
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
    """Run the consumer, then stay: a process that ends closes everything, whether the consumer did or not."""

    async def nap() -> None:
        shared.asleep.set()
        await asyncio.sleep(SLEEP)

    async with aiohttp.ClientSession() as session:
        idle = memory("VmRSS")
        await consumer(session, url, nap)
        answers.put(memory("VmHWM") - idle)
        await asyncio.Event().wait()


def memory(field: str) -> int:
    """A figure of this process in bytes: VmRSS is its size now, VmHWM its peak."""
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024


async def windowed(session: aiohttp.ClientSession, url: str, nap: Nap) -> None:
    """As a user would: `iterate`, which has a window."""
    async with aclosing(iterate(answer_deltas(session, url))) as answer:
        for _ in range(ITEMS):
            await anext(answer)
        await nap()


async def unbounded(session: aiohttp.ClientSession, url: str, nap: Nap) -> None:
    """The contrast: a subscriber that puts everything into a queue without a bound."""
    queue = asyncio.Queue[Delta]()
    subscription = answer_deltas(session, url).subscribe(queue.put_nowait)
    for _ in range(ITEMS):
        await queue.get()
    await nap()
    subscription.dispose()


def answer_deltas(session: aiohttp.ClientSession, url: str) -> Observable[Delta]:
    """The flood as deltas, with no limit to its length."""
    return deltas(bytes_from(session, "GET", url), "openai-chat", limits=Limits(max_bytes=None))


if __name__ == "__main__":
    sys.exit(main())
