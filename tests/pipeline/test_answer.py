"""The sum of the deltas of one answer."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rillet.operators import (
    Delta,
    Done,
    Finish,
    Message,
    ProviderEvent,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    Usage,
)
from rillet.pipeline import Answer


def answer(*deltas: Delta) -> Answer:
    made = Answer()
    for delta in deltas:
        made.add(delta)
    return made


def call(index: int, choice: int = 0) -> ToolCall:
    return ToolCall(index, f"c{index}", "f", {}, "", choice)


USAGE = Usage(1, 2, 3, {})
HALF: list[Delta] = [ToolCallStart(0, "c", "f"), ToolCallDelta(0, "{}"), ToolCallEnd(0)]
OTHERS: list[Delta] = [*HALF, ProviderEvent("x", 1), Done()]


def test_nothing_is_an_empty_message_and_no_message_at_all() -> None:
    assert (answer().is_empty, answer().messages, answer().message()) == (True, (), Message())


def test_texts_are_joined_each_kind_for_itself() -> None:
    deltas: list[Delta] = [TextDelta("a"), ReasoningDelta("x"), RefusalDelta("no"), TextDelta("b"), ReasoningDelta("y")]
    assert answer(*deltas).messages == (Message("ab", "xy", "no"),)


def test_calls_are_in_the_order_of_their_indexes() -> None:
    assert answer(call(2), call(0), call(1)).message().tool_calls == (call(0), call(1), call(2))


def test_the_last_reason_and_the_last_usage_count() -> None:
    deltas: list[Delta] = [Finish("stop", "stop"), Usage(1, 1, 2, {}), Finish("length", "length"), USAGE]
    assert answer(*deltas).messages == (Message(finish=Finish("length", "length"), usage=USAGE),)


@pytest.mark.parametrize(
    ("delta", "message"),
    [
        (TextDelta("a", 3), Message("a", choice=3)),
        (ReasoningDelta("a", 3), Message(reasoning="a", choice=3)),
        (RefusalDelta("a", 3), Message(refusal="a", choice=3)),
        (call(0, 3), Message(tool_calls=(call(0, 3),), choice=3)),
        (Finish("stop", "stop", 3), Message(finish=Finish("stop", "stop", 3), choice=3)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_each_choice_that_spoke_has_a_message(delta: Delta, message: Message) -> None:
    assert answer(delta).messages == (message,)
    assert answer(delta, TextDelta("b", 1)).messages == (Message("b", choice=1), message)


def test_usage_is_of_all_choices_and_alone_of_the_first() -> None:
    assert answer(USAGE).messages == (Message(usage=USAGE),)
    assert [message.usage for message in answer(TextDelta("a"), TextDelta("b", 1), USAGE).messages] == [USAGE, USAGE]


@pytest.mark.parametrize("delta", OTHERS, ids=lambda delta: type(delta).__name__)
def test_what_adds_nothing_has_arrived_all_the_same(delta: Delta) -> None:
    assert (answer(delta).messages, answer(delta).is_empty) == ((), False)


def test_an_unfinished_call_is_none() -> None:
    assert answer(TextDelta("a"), *HALF).messages == (Message("a"),)


def test_it_may_be_read_at_any_time() -> None:
    made = answer(TextDelta("a"))
    before = made.message()
    made.add(TextDelta("b"))
    assert (before.text, made.message().text) == ("a", "ab")


choices: Any = st.integers(0, 2)
texts: Any = st.text(min_size=1, max_size=3)
a_delta: Any = st.one_of(
    st.builds(TextDelta, texts, choices),
    st.builds(TextDelta, texts),
    st.builds(ReasoningDelta, texts, choices),
    st.builds(call, st.integers(0, 3), choices),
    st.builds(Finish, st.just("stop"), texts, choices),
    st.just(USAGE),
    st.sampled_from(OTHERS),
)


@given(st.lists(st.lists(a_delta, max_size=5), max_size=5))
def test_by_the_batch_it_is_the_same(batches: list[list[Delta]]) -> None:
    short, long = Answer(), Answer()
    for batch in batches:
        short.extend(batch)
        for delta in batch:
            long.add(delta)
    assert (short.messages, short.is_empty) == (long.messages, long.is_empty)


@pytest.mark.parametrize("count", [63, 64, 65, 128, 1_000])
def test_every_piece_of_a_long_text_is_in_it_at_any_time(count: int) -> None:
    answer, whole = Answer(), ""
    for n in range(count):
        answer.add(TextDelta(f"{n} "))
        answer.add(ReasoningDelta("x"))
        whole += f"{n} "
        assert answer.message().text == whole
    assert answer.message().reasoning == "x" * count


def test_a_subclass_counts_as_what_it_is() -> None:
    class Cited(TextDelta):
        __slots__ = ()

    class Thought(ReasoningDelta):
        __slots__ = ()

    class Figures(Usage):
        __slots__ = ()

    figures = Figures(1, 2, 3, {})
    assert answer(Cited("a"), Thought("b", 1), figures).messages == (
        Message(text="a", usage=figures),
        Message(reasoning="b", choice=1, usage=figures),
    )


def test_a_long_text_takes_little_more_memory_than_its_characters() -> None:
    answer = Answer()
    tracemalloc.start()
    try:
        for n in range(20_000):
            answer.add(TextDelta(f"{n:08d}"))
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < 2 * len(answer.message().text)
