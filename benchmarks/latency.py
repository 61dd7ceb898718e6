"""How long the first delta takes, beside raw aiohttp's first chunk: what Rillet adds to the wait for an answer.

    python benchmarks/latency.py [--quick]

The server runs in a process of its own and sends the first event at once. Each request is timed from its start, on a
connection that is already there: one after another, ours and raw in turn, and in crowds of 200 at once, a crowd of
ours and a raw one in turn. What a request costs this process in CPU time is printed too: on a busy machine a crowd
waits for the processor more than for anything else. It only prints: a timing on a shared machine is no verdict.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import multiprocessing
import sys
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from multiprocessing.connection import Connection
from statistics import median, quantiles
from time import perf_counter, process_time
from typing import NamedTuple, TypeAlias

import aiohttp
import fixtures
from aiohttp import web

from rillet.pipeline import bytes_from, deltas, iterate

PATIENCE = 15.0
EVENTS = 3
CROWD = 200

spawn = multiprocessing.get_context("spawn")

Contestant: TypeAlias = Callable[[aiohttp.ClientSession, str], Awaitable[float]]
"""Asks, and reads to the end; its result is when the first of the answer came."""


class Times(NamedTuple):
    """When the first of each answer came, and what a request cost in each turn, in milliseconds."""

    first: list[float]
    cpu: list[float]


class Effort(NamedTuple):
    """How many requests each makes one after another, and in how many crowds."""

    alone: int
    crowds: int


FULL = Effort(alone=1_000, crowds=10)
QUICK = Effort(alone=100, crowds=2)


def main() -> int:
    """Measure both; the exit code is 0."""
    parser = argparse.ArgumentParser(description="What Rillet adds to the time to the first delta.")
    parser.add_argument("--quick", action="store_true", help="fewer requests: a few seconds, for CI")
    effort = QUICK if parser.parse_args().quick else FULL
    here, there = spawn.Pipe()
    server = spawn.Process(target=serve, args=(there,), daemon=True)
    server.start()
    try:
        if not here.poll(PATIENCE):
            sys.exit("the server did not answer")
        asyncio.run(measure(here.recv(), effort))
    finally:
        server.terminate()
        server.join(PATIENCE)
    return 0


def serve(pipe: Connection) -> None:
    """The server's process."""
    logging.disable()
    asyncio.run(serving(pipe))


async def serving(pipe: Connection) -> None:
    """Answer with the URL, then serve a short answer until terminated."""
    body = fixtures.text_stream(EVENTS)

    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=body, content_type="text/event-stream")

    app = web.Application()
    app.router.add_post("/", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=CROWD).start()
    host, port = runner.addresses[0][:2]
    pipe.send(f"http://{host}:{port}/")
    await asyncio.Event().wait()


async def measure(url: str, effort: Effort) -> None:
    """Print the times of both, and what is added to them."""
    print(
        f"time to the first of an answer, in ms: {effort.alone:,} requests each, then {effort.crowds} crowds of {CROWD}"
    )
    print(f"{'':24}{'raw aiohttp':>24}{'rillet':>24}{'added':>24}")
    print(f"{'at once':24}" + "     p50     p99     CPU" * 3)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        await in_turn(session, url, CROWD, 1)  # makes the connections
        print_row(1, await in_turn(session, url, 1, effort.alone))
        print_row(CROWD, await in_turn(session, url, CROWD, effort.crowds))


async def in_turn(session: aiohttp.ClientSession, url: str, crowd: int, turns: int) -> tuple[Times, Times]:
    """The times of raw requests and of ours, so many at once, in turn."""
    times = {raw: Times([], []), ours: Times([], [])}
    gc.collect()
    for _ in range(turns):
        for contestant, so_far in times.items():
            start = process_time()
            so_far.first.extend(await asyncio.gather(*(timed(contestant, session, url) for _ in range(crowd))))
            so_far.cpu.append((process_time() - start) / crowd * 1e3)
    return times[raw], times[ours]


async def timed(contestant: Contestant, session: aiohttp.ClientSession, url: str) -> float:
    """From the start of the request to the first of its answer, in milliseconds."""
    start = perf_counter()
    return (await contestant(session, url) - start) * 1e3


async def raw(session: aiohttp.ClientSession, url: str) -> float:
    """aiohttp alone: the first chunk, undecoded."""
    first = 0.0
    async with session.post(url) as response:
        async for _ in response.content.iter_any():
            first = first or perf_counter()
    return first


async def ours(session: aiohttp.ClientSession, url: str) -> float:
    """The first delta, typed."""
    first = 0.0
    async with aclosing(iterate(deltas(bytes_from(session, "POST", url), "openai-chat"))) as flow:
        async for _ in flow:
            first = first or perf_counter()
    return first


def print_row(at_once: int, times: tuple[Times, Times]) -> None:
    """The median and the 99th percentile of both, the median CPU time, and the differences."""
    theirs, mine = ((*percentiles(each.first), median(each.cpu)) for each in times)
    added = [ours - raw for raw, ours in zip(theirs, mine, strict=True)]
    print(f"{at_once:<24}" + "".join(f"{time:8.2f}" for time in (*theirs, *mine, *added)))


def percentiles(times: list[float]) -> tuple[float, float]:
    """The 50th and the 99th."""
    hundredths = quantiles(times, n=100)
    return hundredths[49], hundredths[98]


if __name__ == "__main__":
    sys.exit(main())
