"""What the UI examples say where they can't start: one line, before a window opens."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent.parent / "examples" / "ui"
NEEDS = {"terminal.py": "textual", "qt.py": "PySide6", "tk.py": "tkinter", "web.py": "aiohttp"}
WITHOUT = "import runpy, sys; sys.modules[{package!r}] = None; runpy.run_path({path!r}, run_name='__main__')"


def refusal(*arguments: str | Path) -> str:
    """The line that a program ends with that can't start."""
    keyless = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    offscreen = {"QT_QPA_PLATFORM": "offscreen"}
    run = subprocess.run(
        [sys.executable, *arguments], env=keyless | offscreen, capture_output=True, text=True, timeout=30, check=False
    )
    assert (run.returncode, run.stdout) == (1, "")
    (line,) = run.stderr.splitlines()
    return line


@pytest.mark.parametrize("example", NEEDS)
@pytest.mark.parametrize(
    ("provider", "says"), [("acme", "unknown provider 'acme'; known: "), ("anthropic", "set ANTHROPIC_API_KEY")]
)
def test_an_unknown_provider_and_a_missing_key_are_one_line(example: str, provider: str, says: str) -> None:
    if find_spec(NEEDS[example]) is None:
        pytest.skip(f"there is no {NEEDS[example]}")
    assert says in refusal(EXAMPLES / example, provider)


@pytest.mark.parametrize("example", ["terminal.py", "qt.py"])
def test_a_missing_package_is_one_line(example: str) -> None:
    program = WITHOUT.format(package=NEEDS[example], path=str(EXAMPLES / example))
    assert refusal("-c", program).endswith("install rillet[ui]")


def test_a_port_in_use_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert refusal(EXAMPLES / "web.py", "--port", port).startswith(f"port {port}: ")
