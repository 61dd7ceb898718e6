"""What the tests of the UI examples share: the programs as modules, and an X display."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="session")
def program() -> Callable[[str], ModuleType]:
    """A program of the repository, by its path, as a module of its own."""

    def load(path: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


@pytest.fixture(scope="session")
def display() -> None:
    """An X display: the one that is there, else a virtual one, which ends when this process does.

    Not sooner: Tk keeps its connection when its last window is gone, and ends the process where the server has left.
    """
    if os.environ.get("DISPLAY"):
        return
    if (command := shutil.which("Xvfb")) is None:
        pytest.skip("there is no X display, and no Xvfb to make one")
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    flags = ["-displayfd", str(writer), "-screen", "0", "1024x768x24", "-nolisten", "tcp", "-terminate"]
    os.posix_spawn(command, [command, *flags], os.environ)
    os.close(writer)
    with os.fdopen(reader) as numbers:
        os.environ["DISPLAY"] = f":{numbers.readline().strip()}"
