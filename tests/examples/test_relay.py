"""What each client of the relay gets."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from reactivex import Subject

from rillet.operators import Delta, Done, Message, TextDelta

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def example(program: Callable[[str], ModuleType]) -> Any:
    return program("examples/relay.py")


def test_a_late_client_gets_all_and_a_slow_one_is_let_go() -> None:
    run = subprocess.run(
        [sys.executable, ROOT / "examples" / "relay.py"], capture_output=True, text=True, timeout=60, check=True
    )
    assert sorted(run.stdout.splitlines()) == [
        "one that came late: all of it, some of that at once, and last Done",
        "one too slow: a part of it, nothing of that at once, and last StreamError",
        "the first: all of it, nothing of that at once, and last Done",
    ]


def test_between_the_answer_so_far_and_the_deltas_nothing_is_lost_or_told_twice(example: Any) -> None:
    answer, heard = Subject[Delta](), list[Delta | Message]()
    relay = example.Relay(answer)
    relay.for_one_client().subscribe(lambda _: None)
    answer.on_next(TextDelta("a"))
    relay.for_one_client().subscribe(heard.append)
    answer.on_next(TextDelta("b"))
    answer.on_next(Done())
    assert heard == [Message("a"), TextDelta("b"), Done()]


def test_who_comes_after_the_end_asks_anew(example: Any) -> None:
    answer, heard = Subject[Delta](), list[Delta | Message]()
    relay = example.Relay(answer)
    first = relay.for_one_client().subscribe(lambda _: None)
    answer.on_next(TextDelta("a"))
    first.dispose()
    relay.for_one_client().subscribe(heard.append)
    assert heard == [Message()]
