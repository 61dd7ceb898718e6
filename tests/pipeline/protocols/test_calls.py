"""The tool calls of a dialect that says where each begins and ends."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rillet.operators import ToolCallDelta, ToolCallEnd, ToolCallStart
from rillet.operators.errors import MalformedPayload
from rillet.pipeline.protocols.calls import Calls


def test_a_call_is_open_from_its_start_to_its_end() -> None:
    calls = Calls()
    assert (3 in calls, calls.was_closed(3), calls.any) == (False, False, False)
    assert calls.start(3, "c", "f") == ToolCallStart(3, "c", "f")
    assert (3 in calls, calls.was_closed(3), calls.any) == (True, False, True)
    assert list(calls.add(3, "{}")) == [ToolCallDelta(3, "{}")]
    assert calls.end(3) == ToolCallEnd(3)
    assert (3 in calls, calls.was_closed(3), calls.any) == (False, True, True)


def test_an_empty_fragment_gives_nothing_and_counts_as_none() -> None:
    calls = Calls()
    calls.start(0, "c", "f")
    assert (list(calls.add(0, "")), calls.has_args(0)) == ([], False)
    assert (len(list(calls.add(0, " "))), calls.has_args(0)) == (1, True)


def test_calls_may_be_interleaved() -> None:
    calls = Calls()
    calls.start(1, "a", "f")
    calls.start(0, "b", "g")
    assert [*calls.add(1, "x"), *calls.add(0, "y")] == [ToolCallDelta(1, "x"), ToolCallDelta(0, "y")]
    assert (calls.end(1), calls.end(0)) == (ToolCallEnd(1), ToolCallEnd(0))


def test_a_whole_call_takes_the_next_number() -> None:
    calls = Calls(choice=2)
    assert list(calls.whole("c", "f", "{}")) == [
        ToolCallStart(0, "c", "f", 2),
        ToolCallDelta(0, "{}", 2),
        ToolCallEnd(0, 2),
    ]
    assert list(calls.whole("d", "g", "")) == [ToolCallStart(1, "d", "g", 2), ToolCallEnd(1, 2)]


@pytest.mark.parametrize(
    "misuse",
    [
        pytest.param(lambda calls: calls.start(0, "c", "f"), id="a start of an open call"),
        pytest.param(lambda calls: calls.start(1, "c", "f"), id="a start of a closed call"),
        pytest.param(lambda calls: calls.start(2, "c", ""), id="a start without a name"),
        pytest.param(lambda calls: list(calls.add(1, "x")), id="a fragment of a closed call"),
        pytest.param(lambda calls: list(calls.add(2, "")), id="an empty fragment of no call"),
        pytest.param(lambda calls: calls.end(1), id="an end of a closed call"),
        pytest.param(lambda calls: calls.end(2), id="an end of no call"),
        pytest.param(lambda calls: list(calls.whole("c", "", "")), id="a whole call without a name"),
    ],
)
def test_anything_else_is_malformed(misuse: Callable[[Calls], object]) -> None:
    calls = Calls()
    calls.start(0, "a", "f")
    calls.start(1, "b", "f")
    calls.end(1)
    with pytest.raises(MalformedPayload):
        misuse(calls)
    assert (0 in calls, calls.was_closed(1), 2 in calls) == (True, True, False)


@given(st.lists(st.integers(0, 9), unique=True), st.booleans())
def test_the_next_number_is_the_one_after_the_highest(indexes: list[int], closed: bool) -> None:
    calls = Calls()
    for index in indexes:
        calls.start(index, "", "f")
        if closed:
            calls.end(index)
    assert calls.next_index == max(indexes, default=-1) + 1


def test_very_many_whole_calls_are_numbered_on() -> None:
    calls = Calls()
    deltas = [delta for _ in range(10_000) for delta in calls.whole("", "f", "{}")]
    assert deltas[-1] == ToolCallEnd(9_999)
