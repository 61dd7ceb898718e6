"""What framing costs: microseconds an event, beside the floor and beside httpx-sse; and that it grows in proportion.

    python benchmarks/framing.py [--quick]

Needs no more than the extra `dev`; `make bench` compares with everybody. Exits with 1 where growth.py does.
"""

from __future__ import annotations

import argparse
import gc
import subprocess
import sys
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any, NamedTuple

import fixtures
from fixtures import Stream
from peers import Chunks, Contestant
from peers import rillet as ours
from peers.rillet import FLOOR

CHUNK_SIZES = {"64 B": 64, "300 B": 300, "1.4 KB": 1_400, "16 KB": 16_384}
GROWTH = Path(__file__).with_name("growth.py")


class Effort(NamedTuple):
    """How much is measured: events, and rounds of the contest."""

    events: int
    rounds: int


FULL = Effort(events=20_000, rounds=9)
QUICK = Effort(events=2_000, rounds=5)


def main() -> int:
    """Run both benchmarks; the exit code."""
    parser = argparse.ArgumentParser(description="What framing costs, beside the floor and beside httpx-sse.")
    parser.add_argument("--quick", action="store_true", help="fewer events and rounds: a few seconds, for CI")
    quick = parser.parse_args().quick
    contest(QUICK if quick else FULL)
    print(flush=True)
    return subprocess.run([sys.executable, str(GROWTH), *(["--quick"] if quick else [])]).returncode


def contest(effort: Effort) -> None:
    """Print what an event costs each contestant."""
    contestants = {**ours.CONTESTANTS, **rivals()}
    stream = fixtures.text(effort.events)
    weight = len(stream.body) / effort.events
    print(f"CPU µs an event and times the floor: {effort.events:,} text events of {weight:.0f} bytes, in chunks of")
    print(f"{'':32}" + "".join(f"{label:>16}" for label in CHUNK_SIZES))
    columns = [costs(contestants, stream, stream.cut(size), effort.rounds) for size in CHUNK_SIZES.values()]
    for name in contestants:
        cells = (f"{column[name]:9.2f}{column[name] / column[FLOOR]:6.1f}x" for column in columns)
        print(f"{name:32}" + "".join(cells))


def costs(contestants: Mapping[str, Contestant], stream: Stream, chunks: Chunks, rounds: int) -> dict[str, float]:
    """Microseconds an event for each contestant, the median of rounds in which they take turns."""
    for name, contestant in contestants.items():
        check(name, contestant, stream, chunks)
    times = [[cpu_seconds(contestant, stream, chunks) for contestant in contestants.values()] for _ in range(rounds)]
    medians = map(median, zip(*times, strict=True))
    return {name: seconds / stream.events * 1e6 for name, seconds in zip(contestants, medians, strict=True)}


def check(name: str, contestant: Contestant, stream: Stream, chunks: Chunks) -> None:
    """Exit where a contestant does not give the text of every event."""
    given: list[Any] = []
    contestant.run(stream, chunks, given.append)
    if "".join(piece for item in given for _, piece in contestant.hear(item)) != stream.answer["text 0"]:
        sys.exit(f"{name} does not give the text that was sent")


def cpu_seconds(contestant: Contestant, stream: Stream, chunks: Chunks) -> float:
    """The processor time of one run."""
    ignore = deque[Any](maxlen=0).append
    gc.collect()
    start = process_time()
    contestant.run(stream, chunks, ignore)
    return process_time() - start


def rivals() -> Mapping[str, Contestant]:
    """httpx-sse, where it is installed."""
    try:
        from peers import httpx_sse
    except ImportError as missing:
        print(f"{missing.name} is not installed: no row for httpx-sse")
        return {}
    return httpx_sse.CONTESTANTS


if __name__ == "__main__":
    sys.exit(main())
