"""OpenAI's text completions, which came before chat."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from rillet.operators import Delta, Done, Finish, Message, TextDelta, Usage
from rillet.operators.errors import MalformedPayload, ProviderError, StreamError, TruncatedStream
from rillet.pipeline import StreamAssembler

Event = dict[str, Any] | str
Check = Callable[..., None]
DONE = "data: [DONE]"


def stream(*events: Event) -> bytes:
    """Each event as data; a string as it stands."""
    blocks = (event if isinstance(event, str) else f"data: {json.dumps(event, ensure_ascii=False)}" for event in events)
    return "".join(f"{block}\n\n" for block in blocks).encode()


def decoded(*events: Event) -> list[Delta]:
    return StreamAssembler("openai-completions").feed(stream(*events))


def messages(*events: Event) -> tuple[Message, ...]:
    assembler = StreamAssembler("openai-completions")
    _ = assembler.feed(stream(*events)), assembler.result()
    return assembler.messages


def failure(*events: Event) -> tuple[StreamError, Message]:
    assembler = StreamAssembler("openai-completions")
    with pytest.raises(StreamError) as caught:
        _ = assembler.feed(stream(*events)), assembler.result()
    return caught.value, assembler.message


def says(text: Any, finish: Any = None, n: Any = 0, **more: Any) -> dict[str, Any]:
    choice = {"text": text, "index": n, "logprobs": None, "finish_reason": finish}
    return {"id": "cmpl-1", "object": "text_completion", "choices": [choice], **more}


USED = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
FULL: list[Any] = [
    says(""),
    says("Caf"),
    says("x", n=1),
    says("é ☕ 🎈"),
    says("y", "length", n=1),
    says("", "stop", usage=None),
    {"object": "text_completion", "choices": [], "usage": USED},
    DONE,
]
USAGE = Usage(3, 4, 7, USED)
EXPECTED = (
    Message("Café ☕ 🎈", finish=Finish("stop", "stop"), usage=USAGE),
    Message("xy", finish=Finish("length", "length", 1), usage=USAGE, choice=1),
)


@pytest.mark.parametrize("events", [FULL, FULL[:-1]], ids=["with [DONE]", "without"])
def test_however_it_is_cut(events: list[Event], check_cuts: Check) -> None:
    check_cuts("openai-completions", stream(*events), *EXPECTED)


@pytest.mark.parametrize("events", [FULL, FULL[:-1]], ids=["with [DONE]", "without"])
def test_no_prefix_gives_another_answer(events: list[Event], check_prefixes: Check) -> None:
    check_prefixes("openai-completions", stream(*events), *EXPECTED)


def test_one_bad_value_is_an_error_or_an_answer(check_bad_shapes: Check) -> None:
    check_bad_shapes("openai-completions", stream, FULL[:-1])


def test_each_event_gives_its_delta() -> None:
    assert decoded(says("a"), says("b", "stop", n=1), {"choices": [], "usage": USED}, DONE) == [
        TextDelta("a"),
        TextDelta("b", 1),
        Finish("stop", "stop", 1),
        USAGE,
        Done(),
    ]


def test_two_choices_may_come_in_one_event() -> None:
    both = {"choices": [{"text": "a", "index": 0}, {"text": "b", "index": 1}]}
    assert [one.text for one in messages(both, DONE)] == ["a", "b"]


@pytest.mark.parametrize(
    "event", [says(""), says(None), {}, {"choices": None}, {"choices": [{}]}, "data:", ": ping"], ids=str
)
def test_nothing_comes_of_nothing(event: Event) -> None:
    assert decoded(says("a"), event, says("b")) == [TextDelta("a"), TextDelta("b")]


@pytest.mark.parametrize(
    ("raw", "reason"), [("stop", "stop"), ("length", "length"), ("content_filter", "content_filter"), ("odd", "other")]
)
def test_every_reason_in_one_vocabulary(raw: str, reason: Any) -> None:
    assert messages(says("a", raw), DONE) == (Message("a", finish=Finish(reason, raw)),)


def test_usage_is_cumulative() -> None:
    (only,) = messages(says("a", usage={"prompt_tokens": 1}), says("b", "stop", usage=USED), DONE)
    assert only.usage == USAGE


@pytest.mark.parametrize("late", [says("b"), {"error": {}}, DONE, "data: {"], ids=str)
def test_after_done_nothing_counts(late: Event) -> None:
    assert messages(says("a", "stop"), DONE, late)[0].text == "a"


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([], id="nothing"),
        pytest.param([says("a")], id="text"),
        pytest.param([{"choices": [], "usage": USED}], id="usage alone"),
        pytest.param([says("a"), says("b", "stop", n=1)], id="a choice without a reason"),
        pytest.param([says(""), says("b", "stop", n=1)], id="a choice without text or a reason"),
        pytest.param([says("a", "stop"), says("b")], id="text after the reason"),
    ],
)
def test_without_done_or_every_reason_it_is_truncated(events: list[Event]) -> None:
    assert type(failure(*events)[0]) is TruncatedStream


BUSY = {"message": "busy", "type": "server_error", "code": 503}


@pytest.mark.parametrize(
    "event",
    [
        pytest.param({"error": BUSY}, id="an object"),
        pytest.param(says("", "stop", error=BUSY), id="beside a choice"),
        pytest.param(f"event: error\ndata: {json.dumps(BUSY)}", id="event: error"),
        pytest.param(f"error: {json.dumps(BUSY)}", id="a field named error"),
        pytest.param(json.dumps({"error": BUSY}), id="JSON without data:"),
    ],
)
@pytest.mark.parametrize("before", [[], [says("a")]], ids=["first", "after text"])
@pytest.mark.parametrize("after", [[], [DONE]], ids=["last", "then [DONE]"])
def test_an_error_is_an_error(event: Event, before: list[Event], after: list[Event]) -> None:
    error, so_far = failure(*before, event, *after)
    assert isinstance(error, ProviderError)
    assert (error.message, error.type, error.code, error.status) == ("busy", "server_error", 503, 503)
    assert (error.retry_safe, so_far.text) == (not before, "a" * len(before))


@pytest.mark.parametrize(
    "event",
    [
        "data: {",
        "data: [DONE",
        "data: []",
        {"choices": 5},
        {"choices": ["a"]},
        says(5),
        says(["a"]),
        says("", 5),
        {"usage": 5},
    ],
    ids=str,
)
def test_anything_else_is_malformed(event: Event) -> None:
    error, so_far = failure(says("a"), event, DONE)
    assert (type(error), so_far.text, "event 2" in str(error)) == (MalformedPayload, "a", True)


def test_choices_are_bounded() -> None:
    event = {"choices": [{"text": "a", "index": n} for n in range(10_000)]}
    assert type(failure(event)[0]) is MalformedPayload


@pytest.mark.parametrize(
    "place", ['{"choices":[{"text":%s}]}', '{"error":{"message":%s}}', '{"error":%s}', '{"usage":{"x":%s}}']
)
def test_deep_nesting_is_never_another_exception(place: str) -> None:
    event = "data: " + place % ("[" * 1000 + "]" * 1000)
    assert isinstance(failure(event)[0], StreamError)
