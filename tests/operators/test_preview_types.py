"""A preview cannot be passed where a finished call is wanted: the type checkers say so."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = """
from rillet.operators import Delta, Json, ToolCall, ToolCallPreview, preview_tools
from reactivex import Observable


def run(call: ToolCall) -> None:
    print(call.name, call.args)


def follow(source: Observable[Delta], preview: ToolCallPreview) -> Observable[Delta | ToolCallPreview]:
    value: Json = preview.value
    print(value)
    run(preview)  # wrong
    print(preview.args)  # wrong
    deltas: Observable[Delta] = source.pipe(preview_tools())  # wrong
    print(deltas)
    return source.pipe(preview_tools())
"""
WRONG = [number for number, line in enumerate(PROGRAM.splitlines(), 1) if line.endswith("# wrong")]


def lines_with_errors(*command: str) -> list[int]:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=300)
    found = re.findall(r"program\.py:(\d+)(?::\d+)?(?: -|:) error", done.stdout)
    assert found, done.stdout + done.stderr
    return sorted(set(map(int, found)))


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """The program, beside a package `rillet` as it is installed."""
    package = tmp_path / "rillet"
    package.mkdir()
    shutil.copytree(ROOT / "operators", package / "operators", ignore=shutil.ignore_patterns("__pycache__"))
    path = tmp_path / "program.py"
    path.write_text(PROGRAM, encoding="utf-8")
    return path


@pytest.mark.skipif(find_spec("mypy") is None, reason="mypy is not installed")
def test_mypy_says_so(program: Path) -> None:
    cache = program.parent / "cache"
    command = [sys.executable, "-m", "mypy", "--strict", "--namespace-packages", "--explicit-package-bases"]
    assert lines_with_errors(*command, f"--cache-dir={cache}", "--config-file=", str(program)) == WRONG


@pytest.mark.skipif(find_spec("basedpyright") is None, reason="basedpyright is not installed")
def test_basedpyright_says_so(program: Path) -> None:
    config = program.parent / "pyrightconfig.json"
    config.write_text('{"include": ["program.py"], "typeCheckingMode": "strict"}', encoding="utf-8")
    command = [sys.executable, "-m", "basedpyright", "--pythonpath", sys.executable]
    assert lines_with_errors(*command, "--project", str(config)) == WRONG
