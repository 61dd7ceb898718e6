"""Growth: twice of anything takes twice the time, and no more.

    python benchmarks/growth.py [--quick] [--json FILE]

Exits with 1 where twice takes more than 2.6 times as long: by the median of several rounds, and again in each of two
measurements more, so that a busy machine alone is no fault.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise, zip_longest
from pathlib import Path
from statistics import median
from time import process_time
from typing import NamedTuple, TypeAlias

import fixtures
from peers.rillet import pushed
from reactivex import operators

from rillet.pipeline import Limits, StreamAssembler, deltas

LIMIT = 2.6
ATTEMPTS = 3
PACKET, BLOCK = 1_400, 65_536
CHAT = "openai-chat"
MEGABYTE = 1_000_000
UNLIMITED = Limits(max_bytes=None, max_line=None, max_event=None, max_args=None)

# Above 32 MiB, glibc takes memory from the kernel anew each time: a step that has nothing to do with the work done.
KEEP_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 33)}

Run: TypeAlias = Callable[[], None]


class Growing(NamedTuple):
    """Something that can grow: the largest size that is measured, what one is, and what makes a run of a size."""

    largest: int
    unit: str
    make: Callable[[int], Run]


class Effort(NamedTuple):
    """How often the size doubles up to the largest, how many rounds, and what part of the largest size is taken."""

    doublings: int
    rounds: int
    part: int


FULL = Effort(doublings=3, rounds=7, part=1)
QUICK = Effort(doublings=1, rounds=5, part=8)


def read(dialect: str, chunks: Sequence[bytes]) -> None:
    """One stream, whatever its size."""
    assembler = StreamAssembler(dialect, limits=UNLIMITED)
    for chunk in chunks:
        assembler.feed(chunk)
    assembler.result()


def reading(body: bytes, chunk: int, dialect: str = CHAT) -> Run:
    """A run that reads one stream."""
    chunks = fixtures.cut(body, chunk)
    return lambda: read(dialect, chunks)


def streams_at_once(count: int) -> Run:
    """A run that reads many streams, which take turns."""
    chunks = fixtures.text(100).cut(PACKET)

    def run() -> None:
        assemblers = [StreamAssembler(CHAT) for _ in range(count)]
        for chunk in chunks:
            for assembler in assemblers:
                assembler.feed(chunk)
        for assembler in assemblers:
            assembler.result()

    return run


def subscribers(count: int) -> Run:
    """A run in which many subscribers share one stream."""
    chunks = fixtures.text(200).cut(PACKET)

    def run() -> None:
        shared = deltas(pushed(chunks), CHAT).pipe(operators.publish())
        for _ in range(count):
            shared.subscribe(lambda _: None)
        shared.connect()

    return run


GROWING: Mapping[str, Growing] = {
    "events of a stream": Growing(40_000, "events", lambda n: reading(fixtures.text_stream(n), PACKET)),
    "size of an event, on one line": Growing(64 * MEGABYTE, "B", lambda n: reading(fixtures.line_stream(n), BLOCK)),
    "size of an event, on many lines": Growing(64 * MEGABYTE, "B", lambda n: reading(fixtures.event_stream(n), BLOCK)),
    "length of arguments": Growing(8 * MEGABYTE, "B", lambda n: reading(fixtures.tool_stream(n), PACKET)),
    "calls open at once": Growing(
        1_000, "calls", lambda n: reading(fixtures.interleaved_calls(n).body, PACKET, "plain")
    ),
    "streams at once": Growing(512, "streams", streams_at_once),
    "subscribers of a shared stream": Growing(1_024, "subscribers", subscribers),
}


class Grown(NamedTuple):
    """What was measured of one thing: its sizes, and the median of time(2n) / time(n) from each to the next."""

    unit: str
    sizes: list[int]
    seconds: list[float]
    ratios: list[float]

    @property
    def linear(self) -> bool:
        return max(self.ratios) < LIMIT


def measured(growing: Growing, effort: Effort) -> Grown:
    """Measure; again, where the growth seems too fast."""
    largest = growing.largest // effort.part
    sizes = [largest >> doubling for doubling in range(effort.doublings, -1, -1)]
    runs = [growing.make(size) for size in sizes]
    for _ in range(ATTEMPTS):
        rounds = [[cpu_seconds(run) for run in runs] for _ in range(effort.rounds)]
        ratios = [[large / small for small, large in pairwise(round_)] for round_ in rounds]
        seconds = [median(column) for column in zip(*rounds, strict=True)]
        grown = Grown(growing.unit, sizes, seconds, [median(column) for column in zip(*ratios, strict=True)])
        if grown.linear:
            break
    return grown


def cpu_seconds(run: Run) -> float:
    """The processor time of a run."""
    gc.collect()
    start = process_time()
    run()
    return process_time() - start


def main() -> int:
    """Measure everything that can grow; 1 where something grows too fast."""
    parser = argparse.ArgumentParser(description="Twice of anything takes twice the time.")
    parser.add_argument("--quick", action="store_true", help="one doubling, of an eighth of the sizes: some seconds")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to leave the figures, too")
    options = parser.parse_args()
    if not KEEP_MEMORY.keys() <= os.environ.keys():
        os.execve(sys.executable, (sys.executable, *sys.argv), os.environ | KEEP_MEMORY)
    effort = QUICK if options.quick else FULL
    print(f"time(2n) / time(n), at most {LIMIT}")
    results = {name: shown(name, measured(growing, effort)) for name, growing in GROWING.items()}
    if options.json:
        options.json.write_text(json.dumps({name: grown._asdict() for name, grown in results.items()}))
    too_fast = [name for name, grown in results.items() if not grown.linear]
    for name in too_fast:
        print(f"{name}: more than {LIMIT} times the time for twice as much", file=sys.stderr)
    return int(bool(too_fast))


def shown(name: str, grown: Grown) -> Grown:
    """Print a row as soon as it is there."""
    steps = zip_longest(grown.sizes[1:], grown.ratios)
    cells = "".join(f"{f'to {size:,} {grown.unit}':>24}{ratio:6.2f}" for size, ratio in steps)
    print(f"{name:32}{cells}", flush=True)
    return grown


if __name__ == "__main__":
    sys.exit(main())
