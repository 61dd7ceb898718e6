"""Instructions for each event, counted by valgrind: the same on a busy machine as on a quiet one.

    python benchmarks/instructions.py

Prints them as JSON. Start-up is not in the count: it ends where callgrind writes the first of its reports.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections import deque
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import fixtures
from peers.rillet import CONTESTANTS

EVENTS = 1_000
CHUNK = 1_400
STREAM = "openai-chat, text"
TOTAL = re.compile(r"^totals: (\d+)", re.MULTILINE)
COUNTED = "counted"  # tells this program that it runs under valgrind


def counted() -> dict[str, float] | None:
    """Instructions an event for each contestant of ours; None where valgrind is not installed."""
    if not (shutil.which("valgrind") and shutil.which("callgrind_control")):
        return None
    with TemporaryDirectory() as folder:
        reports = Path(folder, "out")
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={reports}", sys.executable, __file__, COUNTED]
        environment = os.environ | {"PYTHONHASHSEED": "0"}
        subprocess.run(command, env=environment, check=True, capture_output=True)
        totals = [int(found[1]) for n in range(len(CONTESTANTS) + 1) if (found := total(Path(f"{reports}.{n + 1}")))]
    events = fixtures.STREAMS[STREAM](EVENTS).events
    return {name: count / events for name, count in zip(CONTESTANTS, totals[1:], strict=True)}


def total(report: Path) -> re.Match[str] | None:
    """The count in one of callgrind's reports: of what was executed since the one before."""
    return TOTAL.search(report.read_text())


def run() -> None:
    """Run each contestant, once to warm up and once to be counted."""
    stream = fixtures.STREAMS[STREAM](EVENTS)
    chunks = stream.cut(CHUNK)
    ignore = deque[Any](maxlen=0).append
    for contestant in CONTESTANTS.values():
        contestant.run(stream, chunks, ignore)
    end_report()
    for contestant in CONTESTANTS.values():
        contestant.run(stream, chunks, ignore)
        end_report()


def end_report() -> None:
    """Have callgrind write a report and count from zero."""
    subprocess.run(["callgrind_control", "--dump", str(os.getpid())], check=True, capture_output=True)


if __name__ == "__main__":
    if sys.argv[1:] == [COUNTED]:
        run()
    else:
        print(json.dumps(counted(), indent=2))
