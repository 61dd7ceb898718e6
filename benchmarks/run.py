"""The conductor: runs every benchmark in one go, and writes what came of it.

    make bench                         # in an environment of its own, with the peers
    python benchmarks/run.py [--quick]

Writes benchmarks/results.json, docs/benchmarks.md and docs/benchmarks.svg; with --quick, into a folder that it names.
Exits with 1 where something grows faster than it should; a target of speed that is missed is only said. Needs Linux.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from time import monotonic
from typing import Any, NamedTuple

import inprocess
import instructions
import over_http
import report
import start
from targets import printed, targets
from workers import HERE, Cores, Crew, Missing, cores, crew, node, running_on

ROOT = HERE.parent


class Effort(NamedTuple):
    """How much is measured."""

    chains: inprocess.Effort
    peers: inprocess.Effort
    memory_events: int
    http: over_http.Effort
    starts: int


FULL = Effort(
    chains=inprocess.Effort(events=20_000, rounds=5),
    peers=inprocess.Effort(events=4_000, rounds=5),
    memory_events=1_000,
    http=over_http.Effort(rounds=5),
    starts=15,
)
QUICK = Effort(
    chains=inprocess.Effort(events=2_000, rounds=1, least=0),
    peers=inprocess.Effort(events=500, rounds=1, least=0),
    memory_events=200,
    http=over_http.Effort(rounds=1, at_once=(50,)),
    starts=3,
)


class Progress:
    """Says what is going on, and since when."""

    def __init__(self) -> None:
        self._start = monotonic()

    def part(self, title: str) -> Callable[[str], None]:
        """What says the steps of a part."""
        self._say(f"== {title}")
        return lambda step: self._say(f"   {step}")

    def _say(self, words: str) -> None:
        minutes, seconds = divmod(int(monotonic() - self._start), 60)
        print(f"{minutes:2}:{seconds:02} {words}", flush=True)


def main() -> int:
    """Run it all; the exit code judges the growth."""
    parser = argparse.ArgumentParser(description="Every benchmark, beside the peers.")
    parser.add_argument("--quick", action="store_true", help="a smoke run of a minute or two, whose figures say little")
    quick = parser.parse_args().quick
    progress, places = Progress(), cores()
    os.sched_setaffinity(0, {places.rest})
    results = {"machine": machine(places), "quick": quick}
    with TemporaryDirectory() as folder, crew(places.work) as workers:
        results |= measured(workers, places, QUICK if quick else FULL, Path(folder), progress)
    results["growth"] = grown(places, quick, progress)
    for path in report.write(results, Path(mkdtemp(prefix="rillet-bench-")) if quick else ROOT):
        print(path)
    print()
    found = targets(results)
    printed(found)
    for package, reason in results["missing"].items():
        print(f"missing   {package}: {reason}")
    return int(any(target.part == "growth" and not target.met for target in found))


def measured(workers: Crew, places: Cores, effort: Effort, folder: Path, progress: Progress) -> dict[str, Any]:
    """The figures of the benchmarks in which the peers take part, and of those that ask for little time."""
    results: dict[str, Any] = {"versions": workers.versions(), "gives": workers.gives()}
    results["events"] = {"chain": effort.chains.events, "peers": effort.peers.events, "memory": effort.memory_events}
    results["chain"] = inprocess.chains(workers, effort.chains, folder, progress.part("the chain, beside the floor"))
    results["peers"] = inprocess.peers(workers, effort.peers, folder, progress.part("beside the peers"))
    progress.part("who notices a cut")
    results["cut"] = inprocess.cuts(workers, folder)
    progress.part("memory")
    results["memory"] = inprocess.memory(workers, effort.memory_events, folder)
    results["http"] = over_http.contest(workers, places, effort.http, folder, progress.part("over HTTP"))
    progress.part("start")
    results["start"] = start.measured(effort.starts, places.work)
    progress.part("instructions")
    results["instructions"] = instructions.counted()
    results["missing"] = workers.missing
    return results


def grown(places: Cores, quick: bool, progress: Progress) -> dict[str, Any]:
    """The figures of growth.py, which has a process of its own."""
    progress.part("growth")
    with TemporaryDirectory() as folder:
        file = Path(folder, "growth.json")
        command = [sys.executable, str(HERE / "growth.py"), "--json", str(file), *(["--quick"] if quick else [])]
        with running_on(places.work):
            subprocess.run(command)
        figures: dict[str, Any] = json.loads(file.read_text())
    return figures


def machine(places: Cores) -> dict[str, Any]:
    """What it all ran on."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "cpu": cpu(),
        "cores": os.cpu_count(),
        "shared": places.work == places.rest,
        "load_before": round(os.getloadavg()[0], 2),
        "system": f"{platform.system()} {platform.release().partition('.')[0]}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "node": node_version(),
    }


def cpu() -> str:
    """The processor, as Linux names it."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def node_version() -> str:
    """The version of Node."""
    try:
        return subprocess.run([node(), "--version"], check=True, capture_output=True, text=True).stdout.strip()
    except Missing as reason:
        return str(reason)


if __name__ == "__main__":
    sys.exit(main())
