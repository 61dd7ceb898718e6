"""Over HTTP: many streams at once from a server on a core of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import quantiles
from typing import Any, NamedTuple

import fixtures
from fixtures import Stream
from inprocess import Rounds, Say, difference, turned
from workers import HERE, OURS, Cores, Crew, Missing, Worker, python_worker, running_on, written

STREAM = "openai-chat, text"
STREAMS_OF = {1: 20, 50: 100, 500: 500}
"""How many streams are read, by how many at once."""
PATIENCE = 60.0
MEMORY_SECONDS = 8.0

Load = dict[str, Rounds]


class Effort(NamedTuple):
    """Events a stream, rounds, seconds that a run may take, how many streams at once."""

    events: int
    rounds: int
    seconds: float
    at_once: tuple[int, ...] = tuple(STREAMS_OF)


class Server:
    """The server's process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self._pid = process.pid
        self.url = process.stdout.readline().strip()

    def cpu(self) -> float:
        """The processor time that it has had, in seconds: proc(5), schedstat."""
        return int(Path(f"/proc/{self._pid}/schedstat").read_text().split()[0]) / 1e9


@contextmanager
def serving(path: str, core: int) -> Generator[Server]:
    """A server of the stream at a path."""
    pipe = subprocess.PIPE
    with running_on(core):
        process = subprocess.Popen((sys.executable, "server.py", path), cwd=HERE, stdin=pipe, stdout=pipe, text=True)
    with process:
        try:
            yield Server(process)
        finally:
            process.kill()


def contest(crew: Crew, cores: Cores, effort: Effort, folder: Path, say: Say) -> dict[str, Any]:
    """What each client makes of it; they take turns."""
    stream = fixtures.STREAMS[STREAM](effort.events)
    path = written(stream, folder, "http")
    with serving(path, cores.rest) as server:
        clients = crew.clients()
        verify(crew, clients, stream, server.url)
        loads = {str(n): loaded(clients, server, n, effort, say) for n in effort.at_once}
        say("memory of each stream")
        modules = {name: module for module, it in crew.workers.items() for name in clients if it is clients[name]}
        memory = {name: memory_of(modules[name], name, server.url, max(effort.at_once), cores) for name in clients}
        solo = [drained(crew.workers[OURS], server, stream) for _ in range(effort.rounds)]
    return {
        "events": effort.events,
        "seconds": effort.seconds,
        "at_once": loads,
        "memory_kb": memory,
        "server_alone": solo,
    }


def verify(crew: Crew, clients: dict[str, Worker], stream: Stream, url: str) -> None:
    """Leave out whoever does not say what was sent."""
    for name, worker in list(clients.items()):
        try:
            fault = difference(worker.ask("check_client", client=name, url=url)["heard"], stream)
        except Missing as reason:
            fault = str(reason)
        if fault:
            crew.missing[f"{name} (over HTTP)"] = fault
            clients.pop(name)


def loaded(clients: Mapping[str, Worker], server: Server, at_once: int, effort: Effort, say: Say) -> dict[str, Load]:
    """The figures of each client, round by round."""
    loads: dict[str, Load] = {name: {} for name in clients}
    for round_ in range(effort.rounds):
        say(f"{at_once} at once, round {round_ + 1} of {effort.rounds}")
        for name, worker in turned(clients, round_):
            for figure, value in load(worker, name, server, at_once, effort.seconds).items():
                loads[name].setdefault(figure, []).append(value)
    return loads


def load(worker: Worker, client: str, server: Server, at_once: int, seconds: float) -> dict[str, float]:
    """One run of one client."""
    before = server.cpu()
    streams = STREAMS_OF[at_once]
    took = worker.ask("load", client=client, url=server.url, streams=streams, at_once=at_once, seconds=seconds)
    share = (server.cpu() - before) / took["wall"]
    cuts = quantiles(took["firsts"], n=100, method="inclusive")
    return {
        "deltas_per_cpu_second": took["deltas"] / took["cpu"],
        "deltas_per_second": took["deltas"] / took["wall"],
        "cpu_seconds_per_million": took["cpu"] / took["deltas"] * 1e6,
        "first_p50_ms": cuts[49] * 1e3,
        "first_p99_ms": cuts[98] * 1e3,
        "unanswered": took["unanswered"],
        "unfinished": took["unfinished"],
        "server_share": share,
    }


def memory_of(module: str, client: str, url: str, streams: int, cores: Cores) -> float:
    """Kilobytes a stream, in a process that has read one stream before."""
    worker = python_worker(module, cores.work)
    try:
        worker.ask("load", client=client, url=url, streams=1, at_once=1, seconds=PATIENCE)
        grown = worker.ask("load", client=client, url=url, streams=streams, at_once=streams, seconds=MEMORY_SECONDS)
    finally:
        worker.close()
    return float(grown["growth"]) / streams / 1000


def drained(worker: Worker, server: Server, stream: Stream) -> dict[str, float]:
    """Events that the server writes in a second of its core, where nobody does anything with them."""
    before, streams = server.cpu(), 50
    took = worker.ask("drain", url=server.url, streams=streams)
    cpu, events = server.cpu() - before, stream.events * streams
    return {"events_per_cpu_second": events / cpu, "events_per_second": events / took["wall"]}
