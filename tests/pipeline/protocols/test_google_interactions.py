"""Google's Interactions API."""

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
DONE = "event: done\ndata: [DONE]"


def stream(*events: Event) -> bytes:
    """Each event with its type; a string as it stands."""
    blocks = (
        event
        if isinstance(event, str)
        else f"event: {event.get('event_type', 'message')}\ndata: {json.dumps(event, ensure_ascii=False)}"
        for event in events
    )
    return "".join(f"{block}\n\n" for block in blocks).encode()


decoded, message, failure = readers("google-interactions", stream)


def start(index: Any, kind: Any = "model_output", **more: Any) -> dict[str, Any]:
    return {"event_type": "step.start", "index": index, "step": {"type": kind, **more}}


def call(index: Any, id: Any = "c", name: Any = "f", arguments: Any = None) -> dict[str, Any]:
    return start(index, "function_call", id=id, name=name, arguments={} if arguments is None else arguments)


def delta(index: Any, kind: Any, **more: Any) -> dict[str, Any]:
    return {"event_type": "step.delta", "index": index, "delta": {"type": kind, **more}}


def text(index: Any, piece: Any) -> dict[str, Any]:
    return delta(index, "text", text=piece)


def thought(index: Any, piece: Any) -> dict[str, Any]:
    return delta(index, "thought_summary", content={"type": "text", "text": piece})


def args(index: Any, piece: Any) -> dict[str, Any]:
    return delta(index, "arguments_delta", arguments=piece)


def stop(index: Any) -> dict[str, Any]:
    return {"event_type": "step.stop", "index": index}


def completed(status: Any = "completed", **more: Any) -> dict[str, Any]:
    return {"event_type": "interaction.completed", "interaction": {"id": "v1", "status": status, **more}}


CREATED = {"event_type": "interaction.created", "interaction": {"id": "v1", "status": "in_progress"}}
USED = {"total_input_tokens": 9, "total_output_tokens": 5, "total_thought_tokens": 2, "total_tokens": 16}
FULL: list[Any] = [
    CREATED,
    {"event_type": "interaction.status_update", "interaction_id": "v1", "status": "in_progress"},
    start(0, "thought"),
    thought(0, "Let me "),
    thought(0, "see…"),
    delta(0, "thought_signature", signature="c2ln"),
    stop(0),
    start(1),
    text(1, "Caf"),
    text(1, "é ☕ 🎈"),
    stop(1),
    call(2, "fc_1", "weather"),
    args(2, '{"city":'),
    call(3, "fc_2", "now"),
    args(2, '"Zürich 雪"'),
    stop(3),
    args(2, f',"n":{BIG}}}'),
    stop(2),
    completed("requires_action", usage=USED),
    DONE,
]
EXPECTED = Message(
    "Café ☕ 🎈",
    "Let me see…",
    tool_calls=(
        ToolCall(2, "fc_1", "weather", {"city": "Zürich 雪", "n": BIG}, f'{{"city":"Zürich 雪","n":{BIG}}}'),
        ToolCall(3, "fc_2", "now", {}, ""),
    ),
    finish=Finish("tool_calls", "requires_action"),
    usage=Usage(9, 5, 16, USED),
)


@pytest.mark.parametrize("events", [FULL, FULL[:-1]], ids=["with [DONE]", "without"])
def test_however_it_is_cut(events: list[Event], check_cuts: Check) -> None:
    check_cuts("google-interactions", stream(*events), EXPECTED)


def test_no_prefix_gives_another_answer(check_prefixes: Check) -> None:
    check_prefixes("google-interactions", stream(*FULL), EXPECTED)


def test_one_bad_value_is_an_error_or_changes_no_arguments(check_bad_shapes: Check) -> None:
    check_bad_shapes("google-interactions", stream, FULL, "arguments")


def test_the_event_line_may_be_missing_or_stand_alone() -> None:
    assert message(*(f"data: {json.dumps(event)}" for event in FULL[:-1])) == EXPECTED
    assert decoded('event: step.delta\ndata: {"index":0,"delta":{"type":"text","text":"a"}}') == [TextDelta("a")]


# Steps


def test_each_event_gives_its_delta() -> None:
    assert decoded(thought(0, "hm"), call(1), args(1, "{"), args(1, "}"), stop(1), completed("requires_action")) == [
        ReasoningDelta("hm"),
        ToolCallStart(1, "c", "f"),
        ToolCallDelta(1, "{"),
        ToolCallDelta(1, "}"),
        ToolCallEnd(1),
        ToolCall(1, "c", "f", {}, "{}"),
        Finish("tool_calls", "requires_action"),
        Done(),
    ]


@pytest.mark.parametrize(
    "event",
    [
        CREATED,
        {"event_type": "odd"},
        text(0, ""),
        thought(0, ""),
        delta(0, "thought_summary"),
        delta(0, "odd"),
        start(9, "odd"),
        stop(8),
        "data:",
        ": ping",
        DONE,
    ],
    ids=str,
)
def test_nothing_comes_of_what_says_nothing(event: Event) -> None:
    assert decoded(text(0, "a"), event, text(0, "b")) == [TextDelta("a"), TextDelta("b")]


def test_arguments_whole_in_the_start_are_exact() -> None:
    (only,) = message(call(0, arguments={"n": BIG, "é": [1]}), stop(0), completed()).tool_calls
    assert (only.args, only.args_text) == ({"n": BIG, "é": [1]}, f'{{"n":{BIG},"é":[1]}}')


def test_fragments_outweigh_arguments_in_the_start() -> None:
    (only,) = message(call(0, arguments={"x": 1}), args(0, '{"x":1}'), stop(0), completed()).tool_calls
    assert only.args_text == '{"x":1}'


def test_the_same_tool_may_be_called_twice() -> None:
    calls = message(call(0, "a"), stop(0), call(1, "b"), stop(1), completed()).tool_calls
    assert [(call.index, call.id, call.name) for call in calls] == [(0, "a", "f"), (1, "b", "f")]


def test_a_number_used_again_loses_no_arguments() -> None:
    assembler = StreamAssembler("google-interactions")
    try:
        assembler.feed(stream(start(0), stop(0), call(0), args(0, '{"x":1}'), stop(0), completed()))
    except StreamError:
        assert assembler.message.tool_calls == ()
    else:
        assert [call.args for call in assembler.message.tool_calls] == [{"x": 1}]


def test_a_tool_that_the_provider_runs_is_no_call() -> None:
    events: list[Event] = [start(0, "google_search_call", id="s"), args(0, '{"q":1}'), stop(0)]
    assert message(*events, completed()) == Message(finish=Finish("stop", "completed"))
    kinds = [event.kind for event in decoded(*events, extras=True) if type(event) is ProviderEvent]
    assert kinds == ["google_search_call", "arguments_delta"]


def test_extras_show_signatures_and_unknown_events() -> None:
    signature = delta(0, "thought_signature", signature="s")
    odd: dict[str, Any] = {"event_type": "odd", "x": [1]}
    assert decoded(start(0, "thought"), signature, odd, extras=True) == [
        ProviderEvent("thought_signature", signature),
        ProviderEvent("odd", odd),
    ]


# How it ends


@pytest.mark.parametrize(
    ("status", "reason"),
    [("completed", "stop"), ("requires_action", "tool_calls"), ("incomplete", "length"), ("odd", "other")],
)
def test_every_status_in_one_vocabulary(status: str, reason: Any) -> None:
    assert message(text(0, "a"), completed(status)) == Message("a", finish=Finish(reason, status))


@pytest.mark.parametrize("usage", [None, {}])
def test_usage_may_be_missing(usage: Any) -> None:
    assert message(text(0, "a"), completed(usage=usage)).usage is None


@pytest.mark.parametrize("late", [text(0, "b"), DONE, {"event_type": "error"}, "data: {"], ids=str)
def test_after_the_end_nothing_counts(late: Event) -> None:
    assert message(text(0, "a"), completed(), late).text == "a"


@pytest.mark.parametrize("events", [[], [CREATED], [text(0, "a")], [call(0), stop(0)], [text(0, "a"), DONE]])
def test_without_its_end_it_is_truncated(events: list[Event]) -> None:
    assert type(failure(*events)[0]) is TruncatedStream


# Errors

BUSY = {"code": 503, "message": "busy", "status": "UNAVAILABLE"}


@pytest.mark.parametrize(
    "event",
    [
        pytest.param({"event_type": "error", "error": BUSY}, id="as documented"),
        pytest.param({"event_type": "interaction.failed", "interaction": {"error": BUSY}}, id="failed"),
        pytest.param(f"data: {json.dumps({'error': BUSY})}", id="no event_type"),
        pytest.param(json.dumps({"error": BUSY}, indent=2), id="JSON without data:"),
        pytest.param(f"event: error\ndata: {json.dumps(BUSY)}", id="event: error, bare"),
    ],
)
@pytest.mark.parametrize("before", [[], [text(0, "a")]], ids=["first", "after text"])
def test_an_error_is_an_error(event: Event, before: list[Event]) -> None:
    error, so_far = failure(*before, event, completed())
    assert isinstance(error, ProviderError)
    assert (error.message, error.type, error.code, error.status) == ("busy", "UNAVAILABLE", 503, 503)
    assert (error.retry_safe, so_far.text) == (not before, "a" * len(before))


@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_an_interaction_that_failed_is_an_error(status: str) -> None:
    error, so_far = failure(text(0, "a"), completed(status, usage=USED), DONE)
    assert isinstance(error, ProviderError)
    assert (error.type, so_far.text, so_far.finish) == (status, "a", None)


# What is not finished, and what is not the dialect


def test_a_call_that_was_never_stopped_is_not_closed() -> None:
    error, so_far = failure(call(0, "a"), stop(0), call(1, "b", "g"), args(1, '{"x":'), completed("incomplete"))
    assert isinstance(error, UnclosedToolCall)
    assert (error.index, error.id, error.name, error.args_text) == (1, "b", "g", '{"x":')
    assert ([call.id for call in so_far.tool_calls], so_far.finish) == (["a"], Finish("length", "incomplete"))


def test_a_closed_call_whose_arguments_are_cut_is_malformed() -> None:
    error, so_far = failure(call(0), args(0, '{"x":'), stop(0), call(1), stop(1), completed("incomplete"))
    assert isinstance(error, MalformedToolArguments)
    assert (error.index, error.args_text) == (0, '{"x":')
    assert ([call.index for call in so_far.tool_calls], so_far.finish) == ([1], Finish("length", "incomplete"))


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param("data: {", id="no JSON"),
        pytest.param("data: []", id="a list"),
        pytest.param({"index": 0}, id="no event_type"),
        pytest.param(text(0, 5), id="text that is a number"),
        pytest.param(text(None, "a"), id="a delta without an index"),
        pytest.param({"event_type": "step.delta", "index": 0}, id="a delta without one"),
        pytest.param(thought(0, 5), id="a summary that is a number"),
        pytest.param(call(9, name=None), id="a call without a name"),
        pytest.param(call(9, id=5), id="an id that is a number"),
        pytest.param(call("1"), id="an index that is a string"),
        pytest.param(call(-1), id="an index below nought"),
        pytest.param(call(1), id="a second start"),
        pytest.param(args(8, "{}"), id="arguments of no call"),
        pytest.param(args(1, {}), id="arguments that are an object"),
        pytest.param(stop(None), id="an end without an index"),
        pytest.param({"event_type": "interaction.completed"}, id="no interaction"),
        pytest.param(completed(None), id="no status"),
        pytest.param(completed(usage=5), id="usage that is a number"),
        pytest.param(
            f"data: {json.dumps(call(9, arguments={'n': 0})).replace(': 0', ': ' + '9' * 5_000)}", id="5,000 digits"
        ),
    ],
)
def test_anything_else_is_malformed(broken: Event) -> None:
    error, so_far = failure(text(0, "a"), call(1), broken, completed())
    assert type(error) is MalformedPayload
    assert (so_far.text, "event 3" in str(error)) == ("a", True)


@pytest.mark.parametrize(
    "place",
    [
        '{"event_type":%s}',
        '{"event_type":"error","error":{"message":%s}}',
        '{"event_type":"step.start","index":0,"step":{"type":"function_call","name":"f","arguments":{"x":%s}}}',
        '{"event_type":"step.delta","index":0,"delta":{"type":"thought_summary","content":%s}}',
    ],
)
@pytest.mark.parametrize("extras", [False, True])
def test_deep_nesting_is_never_another_exception(place: str, extras: bool) -> None:
    assembler = StreamAssembler("google-interactions", extras=extras)
    with pytest.raises(StreamError):
        _ = assembler.feed(stream("data: " + place % ("[" * 1000 + "]" * 1000))), assembler.result()
