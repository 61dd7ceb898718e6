"""In process: from bytes that are there to payloads, to objects, or to typed and verified deltas."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple, TypeAlias

import fixtures
from fixtures import Stream
from peers.rillet import CHAIN, FLOOR, IN_RX
from workers import Crew, Missing, Worker, written

CHUNKS = {"one event": 0, "1.4 KB": 1_400, "16 KB": 16_384, "64 KB": 65_536}
PEER_CHUNKS = ("one event", "1.4 KB")
PEER_STREAMS = (
    "openai-chat, text",
    "anthropic, thinking and tools",
    "openai-responses, text and a tool",
    "gemini, text and tools",
)

Say: TypeAlias = Callable[[str], None]
Rounds: TypeAlias = list[float]
Table: TypeAlias = dict[str, dict[str, dict[str, Rounds]]]
"""Microseconds an event, round by round: by stream, chunks and contestant."""


class Effort(NamedTuple):
    """How many events a stream has, how many rounds there are, and how many seconds each takes at least."""

    events: int
    rounds: int
    least: float = 0.05


def chains(crew: Crew, effort: Effort, folder: Path, say: Say) -> Table:
    """What the chain costs beside the floor: every stream, in chunks of every size."""
    return contest(crew, fixtures.STREAMS, CHUNKS, effort, folder, say, names=(FLOOR, CHAIN, IN_RX))


def peers(crew: Crew, effort: Effort, folder: Path, say: Say) -> Table:
    """What everybody costs: a stream of each dialect that others read, in chunks as they come from a network."""
    return contest(crew, PEER_STREAMS, PEER_CHUNKS, effort, folder, say)


def contest(
    crew: Crew,
    streams: Iterable[str],
    chunks: Iterable[str],
    effort: Effort,
    folder: Path,
    say: Say,
    names: Container[str] | None = None,
) -> Table:
    """What an event costs each contestant; they take turns, so that a busy moment hits all of them."""
    table: Table = {}
    for name in streams:
        stream = fixtures.STREAMS[name](effort.events)
        say(f"{name}: {stream.events:,} events")
        path = written(stream, folder, f"{slug(name)}-{effort.events}")
        workers = crew.contestants(stream.dialect)
        if names is not None:
            workers = {name: worker for name, worker in workers.items() if name in names}
        verify(crew, workers, stream, path)
        table[name] = {label: timed(workers, stream, path, CHUNKS[label], effort) for label in chunks}
    return table


def slug(name: str) -> str:
    """A name for a file."""
    return "".join(filter(str.isalnum, name))


def verify(crew: Crew, workers: dict[str, Worker], stream: Stream, path: str) -> None:
    """Let each say what it reads, and leave out whoever says something else."""
    for name, worker in list(workers.items()):
        for size in (0, CHUNKS["1.4 KB"]):
            try:
                fault = difference(worker.ask("check", contestant=name, stream=path, size=size)["heard"], stream)
            except Missing as reason:
                fault = str(reason)
            if fault:
                crew.missing[f"{name} ({stream.dialect})"] = fault
                workers.pop(name, None)


def difference(heard: Mapping[str, str], stream: Stream) -> str:
    """How what was heard differs from what was sent; "" where it does not."""
    wrong = [key for key in {*heard, *stream.answer} if heard.get(key) != stream.answer.get(key)]
    return f"does not give what was sent: {', '.join(sorted(wrong))}" if wrong else ""


def timed(workers: Mapping[str, Worker], stream: Stream, path: str, size: int, effort: Effort) -> dict[str, Rounds]:
    """Microseconds an event, round by round, after one round that does not count."""
    costs: dict[str, Rounds] = {name: [] for name in workers}
    for round_ in range(effort.rounds + 1):
        for name, worker in turned(workers, round_):
            seconds = worker.ask("time", contestant=name, stream=path, size=size, least=effort.least)["seconds"]
            if round_:
                costs[name].append(round(seconds / stream.events * 1e6, 4))
    return costs


def turned(workers: Mapping[str, Worker], by: int) -> list[tuple[str, Worker]]:
    """The workers in another order each round."""
    order = list(workers.items())
    at = by % len(order) if order else 0
    return order[at:] + order[:at]


def cuts(crew: Crew, folder: Path) -> dict[str, dict[str, str]]:
    """What each contestant fails with where a stream is cut in the middle, between two events; "" where it does not."""
    table: dict[str, dict[str, str]] = {}
    for name in PEER_STREAMS:
        whole = fixtures.STREAMS[name](100)
        half = b"".join(whole.cut(0)[: whole.events // 2])
        path = written(whole._replace(body=half), folder, f"{slug(name)}-cut")
        contestants = crew.contestants(whole.dialect).items()
        table[name] = {contestant: fault(worker, contestant, path) for contestant, worker in contestants}
    return table


def fault(worker: Worker, contestant: str, path: str) -> str:
    """What a contestant fails with; "" where it does not."""
    try:
        worker.ask("check", contestant=contestant, stream=path, size=CHUNKS["1.4 KB"])
    except Missing as reason:
        return str(reason)
    return ""


def memory(crew: Crew, events: int, folder: Path) -> dict[str, dict[str, dict[str, float]]]:
    """The peak in kilobytes while a stream is read and dropped, and the memory blocks an event's items hold."""
    table: dict[str, dict[str, dict[str, float]]] = {}
    for name in PEER_STREAMS:
        stream = fixtures.STREAMS[name](events)
        path = written(stream, folder, f"{slug(name)}-memory")
        table[name] = {}
        for contestant, worker in crew.contestants(stream.dialect).items():
            try:
                figures = worker.ask("memory", contestant=contestant, stream=path, size=CHUNKS["1.4 KB"])
            except Missing:
                continue  # on Node there is no such count
            blocks = figures["blocks"] / stream.events
            table[name][contestant] = {"peak_kb": figures["peak"] / 1000, "blocks_per_event": round(blocks, 2)}
    return table
