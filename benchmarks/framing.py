"""What framing costs: microseconds an event, beside the floor and beside httpx-sse; and that it grows in proportion.

    python benchmarks/framing.py [--quick]

Exits with 1 where twice the input takes more than 2.6 times the time.
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from statistics import median
from time import process_time
from typing import Any, NamedTuple, TypeAlias

import fixtures
import orjson
from reactivex import Observable, abc
from reactivex.disposable import Disposable

from rillet.operators import (
    TextDelta,
    assemble_tools,
    decode_deltas,
    decode_utf8,
    group_events,
    require_done,
    split_lines,
)
from rillet.pipeline import SSEParser, StreamAssembler, find_protocol

PROTOCOL = "openai-chat"
FLOOR = "floor: split, orjson"
CHUNK_SIZES = {"64 B": 64, "300 B": 300, "1.4 KB": 1_400, "16 KB": 16_384}
GROWTH_CHUNK = 1_400
GROWTH_LIMIT = 2.6

GROWING: Mapping[str, Callable[[int], bytes]] = {
    "text events": lambda size: fixtures.text_stream(size // 300),
    "one line": fixtures.line_stream,
    "one event of many lines": fixtures.event_stream,
    "arguments of a tool": fixtures.tool_stream,
}

Chunks: TypeAlias = Sequence[bytes]
Take: TypeAlias = Callable[[Any], None]
Contestant: TypeAlias = Callable[[Chunks, Take], None]
"""Takes the chunks of a stream and hands on, item by item, what it makes of them."""


class Effort(NamedTuple):
    """How much is measured: events and rounds of the contest, the smallest size in bytes and rounds of the growth."""

    events: int
    rounds: int
    size: int
    doublings: int
    growth_rounds: int


FULL = Effort(events=20_000, rounds=9, size=500_000, doublings=3, growth_rounds=11)
QUICK = Effort(events=2_000, rounds=5, size=500_000, doublings=1, growth_rounds=7)


def main() -> int:
    """Run both benchmarks; the exit code."""
    parser = argparse.ArgumentParser(description="What framing costs, beside the floor and beside httpx-sse.")
    parser.add_argument("--quick", action="store_true", help="fewer events and rounds: a few seconds, for CI")
    effort = QUICK if parser.parse_args().quick else FULL
    contest(effort)
    return grow(effort)


def contest(effort: Effort) -> None:
    """Print what an event costs each contestant."""
    contestants = {FLOOR: floor, **OURS, **rivals()}
    body = fixtures.text_stream(effort.events)
    weight = len(body) / effort.events
    print(f"CPU µs an event and times the floor: {effort.events:,} text events of {weight:.0f} bytes, in chunks of")
    print(f"{'':24}" + "".join(f"{label:>16}" for label in CHUNK_SIZES))
    columns = [costs(contestants, fixtures.cut(body, size), effort) for size in CHUNK_SIZES.values()]
    for name in contestants:
        cells = (f"{column[name]:9.2f}{column[name] / column[FLOOR]:6.1f}x" for column in columns)
        print(f"{name:24}" + "".join(cells))


def costs(contestants: Mapping[str, Contestant], chunks: Chunks, effort: Effort) -> dict[str, float]:
    """Microseconds an event for each contestant, the median of rounds in which they take turns."""
    for name, contestant in contestants.items():
        check(name, contestant, chunks, effort.events)
    rounds = [[cpu_seconds(contestant, chunks) for contestant in contestants.values()] for _ in range(effort.rounds)]
    medians = map(median, zip(*rounds, strict=True))
    return {name: seconds / effort.events * 1e6 for name, seconds in zip(contestants, medians, strict=True)}


def check(name: str, contestant: Contestant, chunks: Chunks, events: int) -> None:
    """Exit where a contestant does not give the text of every event."""
    given: list[Any] = []
    contestant(chunks, given.append)
    if [text for item in given if (text := text_of(item))] != fixtures.texts(events):
        sys.exit(f"{name} does not give the text that was sent")


def text_of(item: object) -> str:
    """The text in a delta or in a payload."""
    match item:
        case TextDelta(text) | {"choices": [{"delta": {"content": str(text)}}]}:
            return text
        case _:
            return ""


def cpu_seconds(contestant: Contestant, chunks: Chunks) -> float:
    """The processor time of one run."""
    ignore = deque[Any](maxlen=0).append
    gc.collect()
    start = process_time()
    contestant(chunks, ignore)
    return process_time() - start


def floor(chunks: Chunks, take: Take) -> None:
    """The least that can be done: split at the blank lines, parse."""
    tail = b""
    for chunk in chunks:
        *events, tail = (tail + chunk).split(b"\n\n")
        for event in events:
            if event != b"data: [DONE]":
                take(orjson.loads(event[6:]))


def chain(chunks: Chunks, take: Take) -> None:
    """The whole chain, without Rx."""
    assembler = StreamAssembler(PROTOCOL)
    for chunk in chunks:
        for delta in assembler.feed(chunk):
            take(delta)
    assembler.result()


def rx_operators(chunks: Chunks, take: Take) -> None:
    """The operators, piped one by one behind a source that does nothing but push."""

    def push(observer: abc.ObserverBase[bytes], scheduler: abc.SchedulerBase | None = None) -> abc.DisposableBase:
        for chunk in chunks:
            observer.on_next(chunk)
        observer.on_completed()
        return Disposable()

    framing = (decode_utf8(), split_lines(), group_events())
    meaning = (decode_deltas(find_protocol(PROTOCOL)), assemble_tools(), require_done())
    Observable(push).pipe(*framing).pipe(*meaning).subscribe(take)


def sse_parser(chunks: Chunks, take: Take) -> None:
    """No more than httpx-sse does: payloads, neither typed nor verified."""
    parser = SSEParser()
    for chunk in chunks:
        for _, data in parser.feed(chunk):
            if data != "[DONE]":
                take(orjson.loads(data))


OURS: Mapping[str, Contestant] = {
    "the chain": chain,
    "the operators, in Rx": rx_operators,
    "SSEParser, orjson": sse_parser,
}


def rivals() -> dict[str, Contestant]:
    """httpx-sse, where it is installed."""
    try:
        import httpx
        import httpx_sse
    except ImportError as missing:
        print(f"{missing.name} is not installed: no row for httpx-sse")
        return {}

    def httpx_sse_orjson(chunks: Chunks, take: Take) -> None:
        response = httpx.Response(200, headers={"Content-Type": "text/event-stream"}, content=iter(chunks))
        for event in httpx_sse.EventSource(response).iter_sse():
            if event.data != "[DONE]":
                take(orjson.loads(event.data))

    return {f"httpx-sse {httpx_sse.__version__}, orjson": httpx_sse_orjson}


def grow(effort: Effort) -> int:
    """Print how the chain's time grows where the input doubles; 1 where it grows too fast."""
    sizes = [effort.size << doubling for doubling in range(effort.doublings + 1)]
    labels = (f"{small / 1e6:g} → {large / 1e6:g} MB" for small, large in pairwise(sizes))
    print(f"\nthe chain's time(2n) / time(n), at most {GROWTH_LIMIT}, in chunks of {GROWTH_CHUNK:,} bytes")
    print(f"{'':24}" + "".join(f"{label:>16}" for label in labels))
    rows: dict[str, list[float]] = {}
    for name, make in GROWING.items():
        rows[name] = growth([fixtures.cut(make(size), GROWTH_CHUNK) for size in sizes], effort.growth_rounds)
        print(f"{name:24}" + "".join(f"{ratio:16.2f}" for ratio in rows[name]))
    too_fast = [name for name, ratios in rows.items() if max(ratios) > GROWTH_LIMIT]
    for name in too_fast:
        print(f"{name}: more than {GROWTH_LIMIT} times the time for twice the input", file=sys.stderr)
    return int(bool(too_fast))


def growth(streams: Sequence[Chunks], rounds: int) -> list[float]:
    """By how much the time grows from each stream to the next, the median of rounds."""
    times = [[cpu_seconds(chain, stream) for stream in streams] for _ in range(rounds)]
    ratios = [[large / small for small, large in pairwise(round_)] for round_ in times]
    return [median(column) for column in zip(*ratios, strict=True)]


if __name__ == "__main__":
    sys.exit(main())
