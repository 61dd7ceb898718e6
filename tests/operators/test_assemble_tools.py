from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import reactivex
from reactivex import operators as ops

from rillet.operators import (
    Delta,
    Done,
    Finish,
    ProviderEvent,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    Usage,
    assemble_tools,
)
from rillet.operators.assemble_tools import AssembleTools
from rillet.operators.errors import LimitExceeded, MalformedPayload, MalformedToolArguments

Run = Callable[..., tuple[list[Any], Any]]


def call(index: int, *fragments: str, choice: int = 0) -> list[Delta]:
    start = ToolCallStart(index, f"id{index}", f"tool{index}", choice)
    return [start, *(ToolCallDelta(index, args, choice) for args in fragments), ToolCallEnd(index, choice)]


def finished(index: int, args: dict[str, Any], text: str, choice: int = 0) -> ToolCall:
    return ToolCall(index, f"id{index}", f"tool{index}", args, text, choice)


def test_everything_else_passes_untouched(run: Run) -> None:
    deltas = [
        TextDelta("a"),
        ReasoningDelta("b", 1),
        RefusalDelta("c"),
        Usage(1, 2, 3, {}),
        Finish("stop", "stop"),
        ProviderEvent("x", None),
        Done(),
    ]
    assert run(assemble_tools(), deltas) == (deltas, None)


def test_a_call_comes_right_after_its_end(run: Run) -> None:
    deltas = [*call(3, '{"a"', ":1}"), TextDelta("then")]
    expected = [*deltas[:-1], finished(3, {"a": 1}, '{"a":1}'), TextDelta("then")]
    assert run(assemble_tools(), deltas) == (expected, None)


def test_interleaved_calls_keep_apart_by_index_and_choice(run: Run) -> None:
    calls = [
        call(0, '{"a"', ":1", "}"),
        call(7, '{"b"', ":2", "}"),
        call(0, '{"c"', ":3", "}", choice=1),
    ]
    deltas = list(itertools.chain.from_iterable(zip(*calls, strict=True)))
    items, error = run(assemble_tools(), deltas)
    assert error is None
    assert [item for item in items if type(item) is ToolCall] == [
        finished(0, {"a": 1}, '{"a":1}'),
        finished(7, {"b": 2}, '{"b":2}'),
        finished(0, {"c": 3}, '{"c":3}', choice=1),
    ]


def test_an_index_may_be_used_again_once_its_call_ended(run: Run) -> None:
    items, error = run(assemble_tools(), [*call(0, "{}"), *call(0, '{"a":1}')])
    assert error is None
    assert [item.args for item in items if type(item) is ToolCall] == [{}, {"a": 1}]


@pytest.mark.parametrize("fragments", [(), ("",), (" ", "\n"), ("null",), ("nu", "ll"), ("{}",), ("{", "}")])
def test_a_call_without_arguments_has_none(fragments: tuple[str, ...], run: Run) -> None:
    items, error = run(assemble_tools(), call(0, *fragments))
    assert error is None
    assert items[-1] == finished(0, {}, "".join(fragments))


def test_an_open_call_is_no_call(run: Run) -> None:
    deltas = call(0, '{"a":1}')[:-1]
    assert run(assemble_tools(), deltas) == (deltas, None)


@pytest.mark.parametrize("text", ['{"a":', "[]", "1", '{"a":1}{"b":2}', "{'a':1}", '{"a":NaN}'])
@pytest.mark.parametrize("tail", [[Done()], []], ids=["before Done", "at the end"])
def test_malformed_arguments_fail_once_the_rest_is_seen(text: str, tail: list[Delta], run: Run) -> None:
    deltas = [*call(0, text), *call(1, "{"), TextDelta("x"), *call(2, "{}"), Finish("length", "length")]
    items, error = run(assemble_tools(), [*deltas, *tail])
    assert type(error) is MalformedToolArguments
    assert (error.index, error.id, error.name, error.args_text) == (0, "id0", "tool0", text)
    assert items == [*deltas[:-1], finished(2, {}, "{}"), deltas[-1]]
    assert text not in str(error)


def test_an_error_of_the_source_is_the_first_to_tell() -> None:
    seen: list[Any] = []
    broken = reactivex.throw(OSError("reset"))
    reactivex.from_iterable(call(0, "{")).pipe(ops.concat(broken), assemble_tools()).subscribe(on_error=seen.append)
    assert [type(error) for error in seen] == [OSError]


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param([ToolCallDelta(0, "{}")], id="a fragment without a start"),
        pytest.param([ToolCallEnd(0)], id="an end without a start"),
        pytest.param([*call(0), ToolCallDelta(0, "{}")], id="a fragment after the end"),
        pytest.param([*call(0), ToolCallEnd(0)], id="a second end"),
        pytest.param([*call(0)[:1], ToolCallStart(0, "", "")], id="a second start"),
        pytest.param([*call(0)[:1], ToolCallDelta(1, "{}")], id="a fragment of another index"),
        pytest.param([*call(0)[:1], ToolCallEnd(0, 1)], id="an end in another choice"),
    ],
)
def test_calls_out_of_order_are_malformed(broken: list[Delta], run: Run) -> None:
    items, error = run(assemble_tools(), [TextDelta("a"), *broken, TextDelta("b")])
    assert type(error) is MalformedPayload
    assert [item for item in items if type(item) is not ToolCall] == [TextDelta("a"), *broken[:-1]]


def test_exactly_max_args_pass_in_every_call(run: Run) -> None:
    items, error = run(assemble_tools(max_args=7), [*call(0, '{"a"', ":1}"), *call(1, '{"b"', ":2}")])
    assert error is None
    assert [item.args for item in items if type(item) is ToolCall] == [{"a": 1}, {"b": 2}]


def test_one_over_fails_after_the_deltas_before(run: Run) -> None:
    deltas = call(0, '{"a"', ":1", "}", " ")
    items, error = run(assemble_tools(max_args=7), deltas)
    assert type(error) is LimitExceeded
    assert (items, error.which, error.limit) == (deltas[:4], "max_args", 7)


def test_none_lifts_the_limit(run: Run) -> None:
    fragments = ['{"a":"', *["x" * 1024 * 1024] * 17, '"}']
    items, error = run(assemble_tools(max_args=None), call(0, *fragments))
    assert error is None
    assert len(items[-1].args["a"]) == 17 * 1024 * 1024


def test_by_default_there_is_a_limit(run: Run) -> None:
    assert type(run(assemble_tools(), call(0, *["x" * 1024 * 1024] * 17))[1]) is LimitExceeded


def test_endless_arguments_are_stopped() -> None:
    pulled = itertools.count()
    endless = (ToolCallDelta(0, "x" * 100) for _ in pulled)
    with pytest.raises(LimitExceeded):
        list(AssembleTools(max_args=1000).feed(itertools.chain(call(0)[:1], endless)))
    assert next(pulled) == 11
