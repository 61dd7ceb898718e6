"""A process for one module of `peers`: reads a command a line, as JSON, and answers each with a line.

A process each, so that no package weighs on another: litellm's heap alone makes every collection slow. `workers.py`
is the other side, and `node/worker.mjs` the same on Node.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import selectors
import socket
import sys
import tracemalloc
import warnings
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from time import perf_counter, process_time
from typing import Any
from urllib.parse import urlsplit

from fixtures import Stream
from peers import Chunks, Client, Clients, Contestants, Take

Answer = dict[str, Any]
GRACE = 1.0  # seconds for what was cancelled to end


@dataclass(slots=True)
class Tally:
    """The items of one answer: when it was asked for, when the first came, and how many did."""

    asked: float
    first: float | None = None
    count: int = 0

    def take(self, item: object) -> None:
        if self.first is None:
            self.first = perf_counter()
        self.count += 1


class Worker:
    """The commands; each is a method."""

    def __init__(self, module: str) -> None:
        peer = import_module(f"peers.{module}")
        self._contestants: Contestants = getattr(peer, "CONTESTANTS", {})
        self._clients: Clients = getattr(peer, "CLIENTS", {})
        self._version = version(peer.PACKAGE)
        self._runner = asyncio.Runner()  # one loop for all: litellm keeps its connections

    def names(self) -> Answer:
        """What the module has."""
        contestants = [
            {"name": name, "gives": it.gives, "dialects": it.dialects} for name, it in self._contestants.items()
        ]
        clients = [{"name": name, "gives": it.gives} for name, it in self._clients.items()]
        return {"version": self._version, "contestants": contestants, "clients": clients}

    def check(self, contestant: str, stream: str, size: int) -> Answer:
        """What a contestant hears in a stream."""
        run, heard = self._contestants[contestant], Heard()
        run.run(stream_at(stream), chunks_of(stream, size), heard.by(run.hear))
        return {"heard": heard}

    def time(self, contestant: str, stream: str, size: int, least: float) -> Answer:
        """The processor time that a contestant takes for a stream, of as many passes as take `least` seconds."""
        run, chunks, read = self._contestants[contestant].run, chunks_of(stream, size), stream_at(stream)
        ignore = deque[Any](maxlen=0).append
        gc.collect()
        passes, taken, start = 0, 0.0, process_time()
        while not passes or taken < least:
            run(read, chunks, ignore)
            passes, taken = passes + 1, process_time() - start
        return {"seconds": taken / passes}

    def memory(self, contestant: str, stream: str, size: int) -> Answer:
        """The peak while a stream is read and dropped, in bytes; then the blocks that its items hold, all kept."""
        run, chunks = self._contestants[contestant].run, chunks_of(stream, size)
        run(stream_at(stream), chunks, deque[Any](maxlen=0).append)  # what a package makes once is not in it
        gc.collect()
        tracemalloc.start()
        run(stream_at(stream), chunks, deque[Any](maxlen=0).append)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        kept: list[Any] = []
        run(stream_at(stream), chunks, kept.append)
        gc.collect()
        held = sys.getallocatedblocks()
        kept.clear()
        gc.collect()
        return {"peak": peak, "blocks": held - sys.getallocatedblocks()}

    def check_client(self, client: str, url: str) -> Answer:
        """What a client hears from a server."""
        used, heard = self._clients[client], Heard()

        async def hear() -> None:
            async with used.connected() as read:
                await read(url, heard.by(used.hear))

        self._runner.run(hear())
        return {"heard": heard}

    def load(self, client: str, url: str, streams: int, at_once: int, seconds: float) -> Answer:
        """Read many streams, some at once, for so long at most."""
        gc.collect()
        return self._runner.run(under_load(self._clients[client], url, streams, at_once, seconds))

    def drain(self, url: str, streams: int) -> Answer:
        """Take what the server has to give and do nothing with it: what the server could do."""
        return drained(url, streams)


class Heard(dict[str, str]):
    """An answer, as it is put together of pieces."""

    def by(self, hear: Callable[[Any], Any]) -> Take:
        """What takes an item and puts its pieces where they belong."""

        def take(item: Any) -> None:
            for key, piece in hear(item):
                if piece:
                    self[key] = self.get(key, "") + piece

        return take


@cache
def stream_at(stream: str) -> Stream:
    """The stream that the conductor left in a file."""
    facts = json.loads(Path(f"{stream}.json").read_text())
    facts["blank"] = facts["blank"].encode()
    return Stream(body=Path(f"{stream}.sse").read_bytes(), **facts)


@cache
def chunks_of(stream: str, size: int) -> Chunks:
    """The stream, cut."""
    return stream_at(stream).cut(size)


async def under_load(client: Client, url: str, streams: int, at_once: int, seconds: float) -> Answer:
    """Deltas, seconds, and the time to each stream's first delta."""
    before = memory("VmRSS")
    reset_peak()
    tallies: list[Tally] = []

    async with client.connected() as read:

        async def read_some() -> None:
            while len(tallies) < streams:
                tally = Tally(perf_counter())
                tallies.append(tally)
                await read(url, tally.take)

        start, start_cpu = perf_counter(), process_time()
        tasks = [asyncio.create_task(read_some()) for _ in range(at_once)]
        done, pending = await asyncio.wait(tasks, timeout=seconds)
        cpu, end = process_time() - start_cpu, perf_counter()
        counted = sum(tally.count for tally in tallies)
        for task in pending:
            task.cancel()
        for task in done:
            task.result()
        stuck = (await asyncio.wait(pending, timeout=GRACE))[1] if pending else ()
    return {
        "deltas": counted,
        "cpu": cpu,
        "wall": end - start,
        "firsts": [tally.first - tally.asked for tally in tallies if tally.first is not None],
        "unanswered": sum(tally.first is None for tally in tallies),
        "unfinished": len(pending),
        "stuck": len(stuck),
        "growth": memory("VmHWM") - before,
    }


def memory(field: str) -> int:
    """A figure of this process in bytes: VmRSS is its size now, VmHWM its peak."""
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024


def reset_peak() -> None:
    """Let VmHWM begin anew: proc_pid_clear_refs(5)."""
    Path("/proc/self/clear_refs").write_text("5")


def drained(url: str, streams: int) -> Answer:
    """Read the streams at once, with nothing but `recv`."""
    host, port = urlsplit(url).hostname, urlsplit(url).port
    ends, buffer = selectors.DefaultSelector(), bytearray(1 << 16)
    start = perf_counter()
    for _ in range(streams):
        end = socket.create_connection((host, port))
        end.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        ends.register(end, selectors.EVENT_READ)
    size = 0
    while ends.get_map():
        for key, _ in ends.select():
            assert isinstance(key.fileobj, socket.socket)
            got = key.fileobj.recv_into(buffer)
            size += got
            if not got or buffer[:got].endswith(b"\r\n0\r\n\r\n"):
                ends.unregister(key.fileobj)
                key.fileobj.close()
    return {"bytes": size, "wall": perf_counter() - start}


def main() -> None:
    """Answer until there is nothing more to read. What a package prints goes to stderr."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    warnings.simplefilter("ignore")
    worker = Worker(sys.argv[1])
    for line in sys.stdin:
        command = json.loads(line)
        try:
            answer = getattr(worker, command.pop("do"))(**command)
        except Exception as error:  # of any package: the conductor says which
            answer = {"error": f"{type(error).__name__}: {error}"[:500]}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
