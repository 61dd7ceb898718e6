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
PATIENCE = 60.0
MEMORY_SECONDS = 8.0

Load = dict[str, Rounds]


class Run(NamedTuple):
    """How many streams are read, of how many events, for how many seconds, and in how many rounds at most.

    The time is looked at when what is at hand was read, and the slowest clients take long for that: the more streams,
    the shorter.
    """

    streams: int
    events: int
    seconds: float
    rounds: int


RUNS = {1: Run(20, 500, 2, 5), 50: Run(100, 250, 2, 5), 500: Run(500, 100, 6, 2)}
"""By how many streams are read at once."""


class Effort(NamedTuple):
    """How many rounds, and how many streams at once."""

    rounds: int
    at_once: tuple[int, ...] = tuple(RUNS)


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
    clients = crew.clients()
    modules = {name: module for module, it in crew.workers.items() for name in clients if it is clients[name]}
    loads: dict[str, dict[str, Load]] = {}
    for at_once in effort.at_once:
        stream = fixtures.STREAMS[STREAM](RUNS[at_once].events)
        with serving(written(stream, folder, f"http-{at_once}"), cores.rest) as server:
            verify(crew, clients, stream, server.url)
            loads[str(at_once)] = loaded(crew, clients, server, at_once, effort.rounds, say)
            if at_once == max(effort.at_once):
                say("memory of each stream")
                memory = memories(crew, {name: modules[name] for name in clients}, server.url, at_once, cores)
                alone = [drained(crew.workers[OURS], server, stream) for _ in range(effort.rounds)]
    return {"at_once": loads, "memory_kb": memory, "server_alone": alone}


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


def loaded(
    crew: Crew, clients: Mapping[str, Worker], server: Server, at_once: int, rounds: int, say: Say
) -> dict[str, Load]:
    """The figures of each client, round by round; without those that fail under this load."""
    loads: dict[str, Load] = {name: {} for name in clients}
    rounds = min(rounds, RUNS[at_once].rounds)
    for round_ in range(rounds):
        say(f"{at_once} at once, round {round_ + 1} of {rounds}")
        for name, worker in turned({name: clients[name] for name in loads}, round_):
            try:
                figures = load(worker, name, server, at_once)
            except Missing as reason:
                crew.missing[f"{name} ({at_once} at once)"] = str(reason)
                del loads[name]
                continue
            for figure, value in figures.items():
                loads[name].setdefault(figure, []).append(value)
    return loads


def load(worker: Worker, client: str, server: Server, at_once: int) -> dict[str, float]:
    """One run of one client. It may give nothing at all, where it is still busy asking when the time is over."""
    before = server.cpu()
    run, url = RUNS[at_once], server.url
    took = worker.ask("load", client=client, url=url, streams=run.streams, at_once=at_once, seconds=run.seconds)
    share = (server.cpu() - before) / took["wall"]
    if took["stuck"]:
        worker.restart()
        worker.ask("check_client", client=client, url=url)
    firsts = took["firsts"] if len(took["firsts"]) > 1 else [took["wall"]] * 2
    cuts = quantiles(firsts, n=100, method="inclusive")
    return {
        "deltas_per_cpu_second": took["deltas"] / took["cpu"],
        "deltas_per_second": took["deltas"] / took["wall"],
        "first_p50_ms": cuts[49] * 1e3,
        "first_p99_ms": cuts[98] * 1e3,
        "unanswered": took["unanswered"],
        "unfinished": took["unfinished"],
        "server_share": share,
    }


def memories(crew: Crew, modules: Mapping[str, str], url: str, streams: int, cores: Cores) -> dict[str, float]:
    """Kilobytes a stream, of each client that reads so many at once."""
    memory: dict[str, float] = {}
    for name, module in modules.items():
        try:
            memory[name] = memory_of(module, name, url, streams, cores)
        except Missing as reason:
            crew.missing[f"{name} (memory)"] = str(reason)
    return memory


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
