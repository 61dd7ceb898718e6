"""Version 2 of Cohere's Chat API."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from dialect_readers import readers

from rillet.operators import (
    Done,
    Finish,
    Message,
    ProviderEvent,
    ReasoningDelta,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    Usage,
)
from rillet.operators.errors import (
    MalformedPayload,
    MalformedToolArguments,
    ProviderError,
    StreamError,
    TruncatedStream,
    UnclosedToolCall,
)
from rillet.pipeline import StreamAssembler

Event = dict[str, Any] | str
Check = Callable[..., None]
BIG = 123456789012345678901234567890
DONE = "data: [DONE]"


def stream(*events: Event) -> bytes:
    """Each event with its type; a string as it stands."""
    blocks = (
        event
        if isinstance(event, str)
        else f"event: {event.get('type', 'message')}\ndata: {json.dumps(event, ensure_ascii=False)}"
        for event in events
    )
    return "".join(f"{block}\n\n" for block in blocks).encode()


decoded, message, failure = readers("cohere", stream)


def content(kind: str, index: Any = 0, **piece: Any) -> dict[str, Any]:
    return {"type": f"content-{kind}", "index": index, "delta": {"message": {"content": piece}}}


def text(piece: Any) -> dict[str, Any]:
    return content("delta", text=piece)


def call(index: Any, id: Any = "c", name: Any = "f", arguments: Any = "") -> dict[str, Any]:
    entry = {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
    return {"type": "tool-call-start", "index": index, "delta": {"message": {"tool_calls": entry}}}


def args(index: Any, piece: Any) -> dict[str, Any]:
    entry = {"function": {"arguments": piece}}
    return {"type": "tool-call-delta", "index": index, "delta": {"message": {"tool_calls": entry}}}


def stop(index: Any) -> dict[str, Any]:
    return {"type": "tool-call-end", "index": index}


def ends(reason: Any = "COMPLETE", **more: Any) -> dict[str, Any]:
    return {"type": "message-end", "delta": {"finish_reason": reason, **more}}


BEGIN = {
    "type": "message-start",
    "id": "m",
    "delta": {"message": {"role": "assistant", "content": [], "tool_calls": []}},
}
PLAN: dict[str, Any] = {"type": "tool-plan-delta", "delta": {"message": {"tool_plan": "I will look."}}}
CITATION: dict[str, Any] = {
    "type": "citation-start",
    "index": 0,
    "delta": {"message": {"citations": {"start": 0, "end": 1}}},
}
USED: dict[str, Any] = {
    "billed_units": {"input_tokens": 1, "output_tokens": 1},
    "tokens": {"input_tokens": 9.0, "output_tokens": 5},
}
FULL: list[Any] = [
    BEGIN,
    content("start", type="thinking", thinking=""),
    content("delta", thinking="Let me "),
    content("delta", thinking="see…"),
    {"type": "content-end", "index": 0},
    content("start", 1, type="text", text=""),
    content("delta", 1, text="Caf"),
    content("delta", 1, text="é ☕ 🎈"),
    CITATION,
    {"type": "citation-end", "index": 0},
    {"type": "content-end", "index": 1},
    PLAN,
    call(0, "weather_1", "weather"),
    args(0, '{"city":'),
    call(1, "now_1", "now"),
    args(0, '"Zürich 雪"'),
    stop(1),
    args(0, f',"n":{BIG}}}'),
    stop(0),
    ends("TOOL_CALL", usage=USED),
    DONE,
]
EXPECTED = Message(
    "Café ☕ 🎈",
    "Let me see…",
    tool_calls=(
        ToolCall(0, "weather_1", "weather", {"city": "Zürich 雪", "n": BIG}, f'{{"city":"Zürich 雪","n":{BIG}}}'),
        ToolCall(1, "now_1", "now", {}, ""),
    ),
    finish=Finish("tool_calls", "TOOL_CALL"),
    usage=Usage(9, 5, None, USED),
)


@pytest.mark.parametrize("events", [FULL, FULL[:-1]], ids=["with [DONE]", "without"])
def test_however_it_is_cut(events: list[Event], check_cuts: Check) -> None:
    check_cuts("cohere", stream(*events), EXPECTED)


def test_no_prefix_gives_another_answer(check_prefixes: Check) -> None:
    check_prefixes("cohere", stream(*FULL), EXPECTED)


def test_one_bad_value_is_an_error_or_changes_no_arguments(check_bad_shapes: Check) -> None:
    check_bad_shapes("cohere", stream, FULL, "arguments")


def test_the_event_line_may_be_missing_or_stand_alone() -> None:
    assert message(*(f"data: {json.dumps(event)}" for event in FULL[:-1])) == EXPECTED
    assert decoded('event: content-delta\ndata: {"delta":{"message":{"content":{"text":"a"}}}}') == [TextDelta("a")]


# Texts and calls


def test_each_event_gives_its_delta() -> None:
    assert decoded(
        content("delta", thinking="hm"), call(0), args(0, "{"), args(0, "}"), stop(0), ends("TOOL_CALL"), DONE
    ) == [
        ReasoningDelta("hm"),
        ToolCallStart(0, "c", "f"),
        ToolCallDelta(0, "{"),
        ToolCallDelta(0, "}"),
        ToolCallEnd(0),
        ToolCall(0, "c", "f", {}, "{}"),
        Finish("tool_calls", "TOOL_CALL"),
        Done(),
    ]


def test_text_may_stand_in_the_start() -> None:
    assert decoded(content("start", type="text", text="a")) == [TextDelta("a")]


@pytest.mark.parametrize(
    "event",
    [BEGIN, PLAN, CITATION, text(""), content("delta"), {"type": "content-end"}, {"type": "odd"}, "data:", ": x", DONE],
    ids=str,
)
def test_nothing_comes_of_what_says_nothing(event: Event) -> None:
    assert decoded(text("a"), event, text("b")) == [TextDelta("a"), TextDelta("b")]


@pytest.mark.parametrize("arguments", ["", None])
def test_a_call_without_fragments_has_no_arguments(arguments: Any) -> None:
    assert message(call(0, arguments=arguments), stop(0), ends(), DONE).tool_calls == (ToolCall(0, "c", "f", {}, ""),)


def test_arguments_may_begin_in_the_start() -> None:
    (only,) = message(call(0, arguments='{"x":'), args(0, "1}"), stop(0), ends()).tool_calls
    assert only.args == {"x": 1}


def test_calls_are_counted_apart_from_contents() -> None:
    assert message(content("delta", 0, text="a"), call(0), stop(0), content("delta", 0, text="b"), ends()).text == "ab"


def test_extras_show_plans_citations_and_unknown_events() -> None:
    odd: dict[str, Any] = {"type": "odd", "x": [1]}
    assert decoded(BEGIN, PLAN, CITATION, odd, content("end"), extras=True) == [
        ProviderEvent("tool-plan-delta", PLAN),
        ProviderEvent("citation-start", CITATION),
        ProviderEvent("odd", odd),
    ]


# How it ends


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ("COMPLETE", "stop"),
        ("STOP_SEQUENCE", "stop"),
        ("MAX_TOKENS", "length"),
        ("TOOL_CALL", "tool_calls"),
        ("TIMEOUT", "other"),
    ],
)
def test_every_reason_in_one_vocabulary(raw: str, reason: Any) -> None:
    assert message(text("a"), ends(raw), DONE) == Message("a", finish=Finish(reason, raw))


@pytest.mark.parametrize(
    ("usage", "figures"),
    [
        (USED, (9, 5)),
        ({"billed_units": {"input_tokens": 1.0, "output_tokens": 2.0}}, (1, 2)),
        ({"tokens": {"input_tokens": 1.5}}, (None, None)),
        ({"tokens": {"input_tokens": "1", "output_tokens": True}}, (None, None)),
        ({"cached_tokens": 1}, (None, None)),
    ],
)
def test_tokens_are_counted_in_whole_numbers(usage: dict[str, Any], figures: tuple[Any, Any]) -> None:
    assert message(ends(usage=usage)).usage == Usage(*figures, None, usage)


@pytest.mark.parametrize("usage", [None, {}])
def test_usage_may_be_missing(usage: Any) -> None:
    assert message(text("a"), ends(usage=usage)).usage is None


@pytest.mark.parametrize("late", [text("b"), ends("ERROR"), DONE, "data: {"], ids=str)
def test_after_the_end_nothing_counts(late: Event) -> None:
    assert message(text("a"), ends(), late).text == "a"


@pytest.mark.parametrize("events", [[], [BEGIN], [text("a")], [call(0)], [call(0), stop(0)], [text("a"), DONE]])
def test_without_its_end_it_is_truncated(events: list[Event]) -> None:
    assert type(failure(*events)[0]) is TruncatedStream


# Errors


@pytest.mark.parametrize(
    ("end", "said"),
    [(ends("ERROR", error="busy"), "busy"), (ends("ERROR"), ""), (ends("COMPLETE", error="busy"), "busy")],
    ids=["with its message", "without", "beside another reason"],
)
@pytest.mark.parametrize("before", [[], [text("a")], [call(0), args(0, "{")]], ids=["first", "in text", "in a call"])
def test_a_message_that_ends_in_an_error_is_one(end: dict[str, Any], said: str, before: list[Event]) -> None:
    error, so_far = failure(*before, end, DONE)
    assert isinstance(error, ProviderError)
    assert (error.message, error.type) == (said, end["delta"]["finish_reason"])
    assert (error.retry_safe, so_far.finish, so_far.tool_calls) == (not before, None, ())


@pytest.mark.parametrize(
    "event",
    [
        pytest.param({"type": "error", "error": {"message": "busy"}}, id="a type of its own"),
        pytest.param("event: error\ndata: " + json.dumps({"message": "busy"}), id="event: error"),
        pytest.param("data: " + json.dumps({"id": "x", "message": "busy"}), id="no type"),
        pytest.param("data: " + json.dumps({"error": "busy"}), id="no type, a string"),
        pytest.param(json.dumps({"error": {"message": "busy"}}), id="JSON without data:"),
    ],
)
@pytest.mark.parametrize("before", [[], [text("a")]], ids=["first", "after text"])
def test_an_error_is_an_error(event: Event, before: list[Event]) -> None:
    error, so_far = failure(*before, event, ends())
    assert isinstance(error, ProviderError)
    assert (error.message, error.retry_safe, so_far.text) == ("busy", not before, "a" * len(before))


# What is not finished, and what is not the dialect


def test_a_call_cut_by_max_tokens_is_not_closed() -> None:
    error, so_far = failure(call(0, "a"), stop(0), call(1, "b", "g"), args(1, '{"x":'), ends("MAX_TOKENS"), DONE)
    assert isinstance(error, UnclosedToolCall)
    assert (error.index, error.id, error.name, error.args_text) == (1, "b", "g", '{"x":')
    assert ([call.id for call in so_far.tool_calls], so_far.finish) == (["a"], Finish("length", "MAX_TOKENS"))


def test_a_closed_call_whose_arguments_are_cut_is_malformed() -> None:
    error, so_far = failure(call(0), args(0, '{"x":'), stop(0), call(1), stop(1), ends("MAX_TOKENS"))
    assert isinstance(error, MalformedToolArguments)
    assert (error.index, error.args_text) == (0, '{"x":')
    assert ([call.index for call in so_far.tool_calls], so_far.finish) == ([1], Finish("length", "MAX_TOKENS"))


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param("data: {", id="no JSON"),
        pytest.param("data: []", id="a list"),
        pytest.param({"index": 0}, id="no type"),
        pytest.param(text(5), id="text that is a number"),
        pytest.param({"type": "content-delta", "delta": "a"}, id="a delta that is a string"),
        pytest.param(content("delta", thinking=5), id="thinking that is a number"),
        pytest.param(call(9, name=None), id="a call without a name"),
        pytest.param(call(9, id=5), id="an id that is a number"),
        pytest.param(call("1"), id="an index that is a string"),
        pytest.param(call(-1), id="an index below nought"),
        pytest.param(call(1), id="a second start"),
        pytest.param(
            {"type": "tool-call-start", "index": 9, "delta": {"message": {"tool_calls": [{}]}}}, id="calls in a list"
        ),
        pytest.param(args(8, "{}"), id="arguments of no call"),
        pytest.param(args(1, {}), id="arguments that are an object"),
        pytest.param({"type": "tool-call-delta", "index": 1}, id="no arguments"),
        pytest.param(stop(8), id="an end of no call"),
        pytest.param(ends(None), id="no reason"),
        pytest.param(ends(5), id="a reason that is a number"),
        pytest.param(ends(usage=5), id="usage that is a number"),
        pytest.param(ends(usage={"tokens": 5}), id="tokens that are a number"),
    ],
)
def test_anything_else_is_malformed(broken: Event) -> None:
    error, so_far = failure(text("a"), call(1), broken, ends())
    assert type(error) is MalformedPayload
    assert (so_far.text, "event 3" in str(error)) == ("a", True)


@pytest.mark.parametrize(
    "place",
    [
        '{"type":%s}',
        '{"type":"odd","x":%s}',
        '{"message":%s}',
        '{"type":"message-end","delta":{"finish_reason":"ERROR","error":%s}}',
        '{"type":"content-delta","delta":{"message":{"content":%s}}}',
    ],
)
@pytest.mark.parametrize("extras", [False, True])
def test_deep_nesting_is_never_another_exception(place: str, extras: bool) -> None:
    assembler = StreamAssembler("cohere", extras=extras)
    with pytest.raises(StreamError):
        _ = assembler.feed(stream("data: " + place % ("[" * 1000 + "]" * 1000))), assembler.result()
