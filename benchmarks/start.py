"""Start: what an import brings with it, and how long the command line takes to say what it can do."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from statistics import median
from typing import Any

from inprocess import Rounds
from workers import running_on

HEAVY = ("aiohttp", "botocore", "httpx", "multiprocessing", "pydantic", "rich", "unittest", "yarl")
"""What the operators alone have no use for. (asyncio comes with reactivex, used or not.)"""
COMMANDS: dict[str, tuple[str, ...]] = {
    "python -c pass": (sys.executable, "-c", "pass"),
    "import rillet.operators": (sys.executable, "-c", "import rillet.operators"),
    "import rillet.pipeline": (sys.executable, "-c", "import rillet.pipeline"),
    "rillet --help": (str(Path(sysconfig.get_path("scripts"), "rillet")), "--help"),
}
BARE, HELP = "python -c pass", "rillet --help"


def measured(rounds: int, core: int) -> dict[str, Any]:
    """Milliseconds of processor time for each command, round by round; and what the operators import."""
    took: dict[str, Rounds] = {name: [] for name in COMMANDS}
    for _ in range(rounds):
        for name, command in COMMANDS.items():
            took[name].append(round(cpu_seconds(command, core) * 1000, 2))
    return {"ms": took, **imports(core)}


def cpu_seconds(command: tuple[str, ...], core: int) -> float:
    """The processor time of a process, from its start to its end."""
    before = getrusage(RUSAGE_CHILDREN)
    pinned(command, core)
    after = getrusage(RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def pinned(command: tuple[str, ...], core: int) -> str:
    """Run a command on a core; what it writes to stderr."""
    with running_on(core):
        return subprocess.run(command, check=True, capture_output=True, text=True).stderr


def imports(core: int) -> dict[str, Any]:
    """What `-X importtime` says of the operators: the dearest modules in µs of their own, and the heavy packages."""
    lines = pinned((sys.executable, "-X", "importtime", "-c", "import rillet.operators"), core).splitlines()
    rows = [line.removeprefix("import time:").split("|") for line in lines[1:]]
    own = {name.strip(): int(self_us) for self_us, _, name in rows}
    dearest = sorted(own, key=own.__getitem__, reverse=True)[:8]
    heavy = [package for package in HEAVY if package in own]
    return {"heavy": heavy, "modules": len(own), "dearest_us": {name: own[name] for name in dearest}}


def help_costs(results: dict[str, Any]) -> float:
    """Milliseconds that `--help` takes more than bare Python."""
    return median(map(float.__sub__, results["ms"][HELP], results["ms"][BARE]))
