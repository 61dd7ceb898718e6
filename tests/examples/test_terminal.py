"""The chat in the terminal, in Textual's own headless mode."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import aiohttp
import pytest

from rillet.pipeline.sandbox import DEMO, Fault, Sandbox, Script

pytest.importorskip("textual", reason="Textual is not installed: the extra `ui`")


@pytest.fixture
def terminal(program: Callable[[str], ModuleType]) -> Any:
    return program("examples/ui/terminal.py")


async def shown(terminal: Any, sandbox: Sandbox, until: Callable[[list[Any]], object]) -> list[Any]:
    """The log's entries once they are as wanted, after a question."""
    async with sandbox as base_url, aiohttp.ClientSession() as session:
        chat = terminal.Chat(session, {"base_url": base_url})
        async with chat.run_test() as pilot:
            await pilot.press(*"walk?", "enter")
            for _ in range(500):
                entries = list(chat.query_one("#log").children)
                if until(entries):
                    return [(entry.border_title, str(entry.content), entry.classes) for entry in entries]
                await pilot.pause(0.01)
    pytest.fail(f"the log does not come to that: {entries}")


async def test_text_flows_and_finished_calls_turn_solid(terminal: Any) -> None:
    entries = await shown(terminal, Sandbox(DEMO), lambda all_: sum("whole" in one.classes for one in all_) == 2)
    assert [entry[1] for entry in entries[:2]] == ["walk?", DEMO.text]
    assert [entry[0] for entry in entries[2:]] == ["get_weather ✓", "send_mail ✓"]


async def test_a_call_that_is_open_is_not_solid(terminal: Any) -> None:
    sandbox = Sandbox(DEMO, fault=Fault("stall", after=9_000))
    entries = await shown(terminal, sandbox, lambda all_: len(all_) == 4)
    assert [(entry[0], "whole" in entry[2]) for entry in entries[2:]] == [
        ("get_weather ✓", True),
        ("send_mail …", False),
    ]


async def test_a_cut_answer_is_told(terminal: Any) -> None:
    sandbox = Sandbox(DEMO, fault=Fault("cut", after=1_500))
    entries = await shown(terminal, sandbox, lambda all_: any("failure" in one.classes for one in all_))
    assert entries[-1][1].startswith("Not complete: the connection broke")


async def test_what_the_model_says_is_no_markup(terminal: Any) -> None:
    text = "[bold]not[/] [link=x]markup[/nothing]"
    entries = await shown(terminal, Sandbox(Script(text)), lambda all_: str(all_[-1].content) == text)
    assert entries[1][1] == text


def test_open_fields_are_marked(terminal: Any) -> None:
    marks = [str(cell) for cell in terminal.fields({"a": "x", "b": [1]}, "b").columns[1].cells]
    assert marks == ["x", "[1]▌"]
    assert terminal.fields("no object").row_count == 0


async def test_the_program_runs_as_it_is(terminal: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask_and_leave(pilot: Any) -> None:
        await pilot.press(*"walk?", "enter")
        while len(pilot.app.query(".whole")) < 2:
            await pilot.pause(0.01)
        await pilot.press("escape")

    run = partial(terminal.Chat.run_async, headless=True, auto_pilot=ask_and_leave)
    monkeypatch.setattr(terminal.Chat, "run_async", lambda chat: run(chat))
    monkeypatch.setattr("sys.argv", ["terminal.py"])
    await terminal.main()
