from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from reactivex.testing import ReactiveTest, TestScheduler

from rillet.operators import (
    Attempt,
    Delta,
    Done,
    Finish,
    JsonPreview,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    preview_json,
)

Run = Callable[..., tuple[list[Any], Any]]

STOP = Finish("stop", "stop")


class Broken(Exception):
    """What a source of these tests raises."""


def timed(items: list[tuple[float, Delta]], end: Any = None) -> list[tuple[float, Any]]:
    """What comes out, and when, of a hot source that emits the items at these times after the subscription."""
    scheduler = TestScheduler()
    messages = [ReactiveTest.on_next(200 + at, item) for at, item in items]
    source = scheduler.create_hot_observable(*messages, *((end,) if end else ()))
    observer = scheduler.start(lambda: source.pipe(preview_json(every=10)))
    return [(message.time - 200, getattr(message.value, "value", message.value.kind)) for message in observer.messages]


def previews(items: list[Any]) -> list[Any]:
    return [item for item in items if type(item) is JsonPreview]


def test_the_text_comes_at_once_and_the_preview_at_the_end_of_the_frame() -> None:
    assert timed([(1, TextDelta('{"a":[1')), (4, TextDelta(",2")), (15, TextDelta("]}"))]) == [
        (1, TextDelta('{"a":[1')),
        (4, TextDelta(",2")),
        (11, JsonPreview({"a": [1]}, ("a",))),
        (15, TextDelta("]}")),
        (25, JsonPreview({"a": [1, 2]}, None)),
    ]


@pytest.mark.parametrize("last", [STOP, Done()])
def test_the_whole_answer_is_shown_before_it_is_said_to_end(last: Delta) -> None:
    assert timed([(1, TextDelta("[]")), (2, last)], ReactiveTest.on_completed(203)) == [
        (1, TextDelta("[]")),
        (2, JsonPreview([], None)),
        (2, last),
        (3, "C"),
    ]


@pytest.mark.parametrize("end", [ReactiveTest.on_completed(205), ReactiveTest.on_error(205, Broken())])
def test_what_is_unseen_comes_before_the_end(end: Any) -> None:
    assert timed([(1, TextDelta('["a'))], end) == [
        (1, TextDelta('["a')),
        (5, JsonPreview(["a"], (0,))),
        (5, end.value.kind),
    ]


def test_each_choice_is_a_document_of_its_own(run: Run) -> None:
    deltas = [TextDelta("[", 1), TextDelta("{"), TextDelta("1,", 1), TextDelta("}"), TextDelta("2]", 1), Done()]
    items, error = run(preview_json(every=0), deltas)
    assert error is None
    assert previews(items) == [
        JsonPreview([], (), 1),
        JsonPreview({}, (), 0),
        JsonPreview([1], (), 1),
        JsonPreview({}, None, 0),
        JsonPreview([1, 2], None, 1),
    ]


def test_a_new_attempt_is_a_new_document() -> None:
    attempt: Any = Attempt(2)
    assert timed([(1, TextDelta('{"a":')), (2, attempt), (3, TextDelta("[]")), (4, STOP)]) == [
        (1, TextDelta('{"a":')),
        (2, attempt),
        (3, TextDelta("[]")),
        (4, JsonPreview([], None)),
        (4, STOP),
    ]


def test_only_text_is_the_answer(run: Run) -> None:
    others = [ReasoningDelta("["), RefusalDelta("["), ToolCallStart(0, "", "f"), ToolCallDelta(0, "["), ToolCallEnd(0)]
    items, error = run(preview_json(every=0), [*others, TextDelta("{"), *others, TextDelta("}"), Done()])
    assert error is None
    assert previews(items) == [JsonPreview({}, ()), JsonPreview({}, None)]


@pytest.mark.parametrize("text", ["Sure! Here it is: {", "```json\n{", "{'a'"])
def test_text_that_is_no_json_is_no_error(text: str, run: Run) -> None:
    deltas = [*map(TextDelta, text), STOP, Done()]
    items, error = run(preview_json(every=0), deltas)
    assert error is None
    assert [item for item in items if type(item) is not JsonPreview] == deltas
    assert all(item.value == {} for item in previews(items))


def test_cuts_change_nothing_but_how_often_it_is_shown(cuts: Callable[[str], Iterator[list[str]]], run: Run) -> None:
    for pieces in cuts('{"a": "\\ud83d\\ude80", "b": [1, 2.5, null]}\n'):
        items, error = run(preview_json(every=0), [*map(TextDelta, filter(None, pieces)), Done()])
        assert error is None
        assert items[-1] == Done()
        assert previews(items)[-1] == JsonPreview({"a": "🚀", "b": [1, 2.5, None]}, None)
