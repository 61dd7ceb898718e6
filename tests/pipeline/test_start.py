"""What is imported, and when: nothing heavy that is not used."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import rillet.pipeline

HEAVY = ("aiohttp", "rich", "botocore", "reactivex.operators", "ssl")


def loaded_by(program: str) -> set[str]:
    """The modules that a program has in the end, in an interpreter of its own."""
    report = f"{program}\nimport sys; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", report], capture_output=True, text=True, timeout=60, check=True)
    return set(run.stdout.splitlines()[-1].split())


def test_the_operators_load_nothing_but_reactivex_and_orjson() -> None:
    others = loaded_by("import reactivex, orjson")
    loaded = loaded_by("import rillet.operators")
    assert loaded.isdisjoint({"aiohttp", "rich", "botocore", "reactivex.operators"})
    more = {name.partition(".")[0] for name in loaded - others}
    assert {name for name in more if not name.startswith(("_", "rillet"))} <= sys.stdlib_module_names


def test_help_loads_neither_the_operators_nor_what_they_need() -> None:
    program = "from rillet.pipeline.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass"
    assert loaded_by(program).isdisjoint({*HEAVY, "reactivex", "orjson", "asyncio", "rillet.operators"})


def test_parsing_recorded_bytes_loads_no_client() -> None:
    program = "from rillet.pipeline import StreamAssembler\nStreamAssembler('anthropic').feed(b'data: {}')"
    assert loaded_by(program).isdisjoint({"aiohttp", "rich", "botocore", "rillet.pipeline.client"})


def test_without_opentelemetry_the_module_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "rillet.pipeline.otel", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ModuleNotFoundError, match=r"install rillet\[otel\]"):
        import_module("rillet.pipeline.otel")


@pytest.mark.parametrize("name", rillet.pipeline.__all__)
def test_every_export_is_there(name: str) -> None:
    assert getattr(rillet.pipeline, name) is not None
    assert name in dir(rillet.pipeline)


def test_what_checkers_see_is_what_is_imported() -> None:
    tree = ast.parse(Path(str(rillet.pipeline.__file__)).read_text(encoding="utf-8"))
    seen = {
        alias.name: "." * node.level + str(node.module)
        for block in tree.body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    homes: dict[str, str] = rillet.pipeline._HOMES  # pyright: ignore[reportPrivateUsage]
    assert homes == seen
    assert sorted(homes) == sorted(rillet.pipeline.__all__)


@pytest.mark.parametrize("name", ["iterate", "for_each"])
def test_a_module_does_not_hide_its_function(name: str) -> None:
    module = import_module(f"rillet.pipeline.{name}")
    assert getattr(rillet.pipeline, name) is getattr(module, name)
    path = f"rillet.pipeline.{name}"
    program = f"import sys, {path}\nfrom rillet.pipeline import {name}\nassert {name} is sys.modules[{path!r}].{name}"
    assert path in loaded_by(program)


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = rillet.pipeline.nothing  # type: ignore[attr-defined]
