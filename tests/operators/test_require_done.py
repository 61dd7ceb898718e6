from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import reactivex
from hypothesis import given
from hypothesis import strategies as st
from reactivex import Subject
from reactivex import operators as ops
from reactivex.testing import ReactiveTest, TestScheduler
from reactivex.testing.subscription import Subscription

from rillet.operators import (
    Chain,
    Delta,
    Done,
    Finish,
    TextDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    require_done,
)
from rillet.operators.assemble_tools import AssembleTools
from rillet.operators.errors import TruncatedStream, UnclosedToolCall
from rillet.operators.require_done import RequireDone
from rillet.operators.stage import collected

Run = Callable[..., tuple[list[Any], Any]]

START = ToolCallStart(2, "c2", "weather", 1)
FRAGMENTS = [ToolCallDelta(2, '{"city"', 1), ToolCallDelta(2, ":", 1)]
END = ToolCallEnd(2, 1)
CALL = [START, *FRAGMENTS, END]


def test_done_completes_and_nothing_follows_it(run: Run) -> None:
    whole = [TextDelta("a"), START, *FRAGMENTS, END, Finish("stop", "stop"), Done()]
    assert run(require_done(), [*whole, TextDelta("late"), Done()]) == (whole, None)


def test_done_disposes_the_source_at_once() -> None:
    scheduler = TestScheduler()
    source: Any = scheduler.create_hot_observable(
        ReactiveTest.on_next(210, TextDelta("a")),
        ReactiveTest.on_next(220, Done()),
        ReactiveTest.on_next(230, TextDelta("late")),
    )
    results = scheduler.start(lambda: source.pipe(require_done()))
    assert results.messages == [
        ReactiveTest.on_next(210, TextDelta("a")),
        ReactiveTest.on_next(220, Done()),
        ReactiveTest.on_completed(220),
    ]
    assert source.subscriptions == [Subscription(200, 220)]


def test_the_source_is_disposed_before_completion_is_told() -> None:
    source: Subject[Delta] = Subject()
    open_at_completion: list[int] = []
    source.pipe(require_done()).subscribe(on_completed=lambda: open_at_completion.append(len(source.observers)))
    source.on_next(Done())
    assert open_at_completion == [0]


def test_an_error_after_done_undoes_nothing(run: Run) -> None:
    broken = [reactivex.from_iterable([TextDelta("a"), Done()]), reactivex.throw(OSError("reset"))]
    assert run(lambda _: reactivex.concat(*broken).pipe(require_done()), []) == ([TextDelta("a"), Done()], None)


@pytest.mark.parametrize("deltas", [[], [TextDelta("a")], [Finish("stop", "stop")], [START, *FRAGMENTS], [*CALL]])
def test_an_end_without_done_is_a_truncated_stream(deltas: list[Delta], run: Run) -> None:
    items, error = run(require_done(), deltas)
    assert type(error) is TruncatedStream
    assert items == deltas
    assert ("1 tool call" in str(error)) is (deltas == [START, *FRAGMENTS])


def test_done_inside_a_call_names_it(run: Run) -> None:
    deltas = [TextDelta("a"), START, *FRAGMENTS]
    items, error = run(require_done(), [*deltas, ToolCallStart(3, "c3", "x"), Done()])
    assert type(error) is UnclosedToolCall
    assert (error.index, error.id, error.name, error.args_text) == (2, "c2", "weather", '{"city":')
    assert items == [*deltas, ToolCallStart(3, "c3", "x")]
    assert "city" not in str(error)


def test_the_end_of_another_choice_closes_nothing(run: Run) -> None:
    assert type(run(require_done(), [START, ToolCallEnd(2, 0), Done()])[1]) is UnclosedToolCall


def test_an_error_before_done_is_passed_on(run: Run) -> None:
    fault = OSError("reset")
    broken = ops.concat(reactivex.throw(fault))
    assert run(reactivex.compose(broken, require_done()), [TextDelta("a")]) == ([TextDelta("a")], fault)


@given(st.lists(st.sampled_from([*CALL, TextDelta("a"), Done()]), max_size=6))
def test_calls_that_the_stage_before_keeps_give_the_same_verdict(deltas: list[Delta]) -> None:
    verdicts: list[tuple[list[Delta], str]] = []
    for shared in (True, False):
        assemble = AssembleTools()
        chain: Chain[Delta, Delta] = Chain(assemble, RequireDone(assemble.open if shared else None))
        items, fault = collected(partial(chain.feed, deltas))
        last, end = ([], None) if fault or chain.closed else collected(chain.finish)
        verdicts.append(([*items, *last], f"{fault!r} {end!r} {getattr(fault, 'args_text', '')}"))
    assert verdicts[0] == verdicts[1]
