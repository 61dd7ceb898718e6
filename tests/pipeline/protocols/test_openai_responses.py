"""OpenAI's Responses API, and the servers that speak it."""

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
    RefusalDelta,
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


def stream(*events: Event) -> bytes:
    """Each event with its type; a string as it stands."""
    blocks = (
        event
        if isinstance(event, str)
        else f"event: {event.get('type', 'message')}\ndata: {json.dumps(event, ensure_ascii=False)}"
        for event in events
    )
    return "".join(f"{block}\n\n" for block in blocks).encode()


decoded, message, failure = readers("openai-responses", stream)


def event(kind: str, **more: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", **more}


def says(piece: Any, index: Any = 0, part: int = 0, kind: str = "output_text", **more: Any) -> dict[str, Any]:
    return event(f"{kind}.delta", output_index=index, content_index=part, delta=piece, **more)


def added(index: Any, kind: Any = "function_call", id: Any = "call_1", name: Any = "f", **more: Any) -> dict[str, Any]:
    item = {"type": kind, "id": f"fc_{index}", "call_id": id, "name": name, "status": "in_progress", **more}
    return event("output_item.added", output_index=index, item=item)


def args(index: Any, piece: Any, **more: Any) -> dict[str, Any]:
    return event("function_call_arguments.delta", output_index=index, delta=piece, **more)


def args_done(index: Any, whole: Any, **more: Any) -> dict[str, Any]:
    return event("function_call_arguments.done", output_index=index, arguments=whole, **more)


def item_done(index: Any, whole: Any, kind: str = "function_call", **more: Any) -> dict[str, Any]:
    key = "input" if kind == "custom_tool_call" else "arguments"
    item = {"type": kind, "id": f"fc_{index}", "call_id": "call_1", "name": "f", key: whole, "status": "completed"}
    return event("output_item.done", output_index=index, item=item | more)


def raw(index: int, piece: str) -> dict[str, Any]:
    return event("custom_tool_call_input.delta", output_index=index, delta=piece)


def completed(status: Any = "completed", **response: Any) -> dict[str, Any]:
    return event("completed", response={"status": status, "output": [], **response})


def incomplete(reason: Any, **response: Any) -> dict[str, Any]:
    details = None if reason is None else {"reason": reason}
    return event("incomplete", response={"status": "incomplete", "incomplete_details": details, **response})


WEATHER = f'{{"city":"Zürich 雪","n":{BIG}}}'
USED: dict[str, Any] = {
    "input_tokens": 9,
    "output_tokens": 5,
    "total_tokens": 14,
    "output_tokens_details": {"reasoning_tokens": 2},
}
FULL: list[Any] = [
    event("created", sequence_number=0, response={"status": "in_progress", "output": []}),
    event("in_progress", sequence_number=1, response={"status": "in_progress"}),
    event("output_item.added", output_index=0, item={"type": "reasoning", "id": "rs_1", "summary": []}),
    event("reasoning_summary_part.added", output_index=0, summary_index=0, part={"type": "summary_text", "text": ""}),
    event("reasoning_summary_text.delta", output_index=0, summary_index=0, delta="Let me "),
    event("reasoning_summary_text.delta", output_index=0, summary_index=0, delta="see…"),
    event("reasoning_summary_text.done", output_index=0, summary_index=0, text="Let me see…"),
    event("output_item.done", output_index=0, item={"type": "reasoning", "id": "rs_1"}),
    event("output_item.added", output_index=1, item={"type": "message", "id": "msg_1", "content": []}),
    event("content_part.added", output_index=1, content_index=0, part={"type": "output_text", "text": ""}),
    says("Caf", 1, item_id="msg_1", obfuscation="xyz"),
    says("é ☕ 🎈", 1, item_id="msg_1"),
    event("output_text.done", output_index=1, content_index=0, text="Café ☕ 🎈"),
    event("output_item.done", output_index=1, item={"type": "message", "id": "msg_1"}),
    added(2, id="call_1", name="weather", arguments=""),
    added(3, id="call_2", name="now", arguments=""),
    args(2, '{"city":', item_id="a"),
    args(3, "", item_id="b"),
    args(2, '"Zürich 雪"', item_id="c"),
    args_done(3, "", item_id="d"),
    item_done(3, "", name="now", call_id="call_2"),
    args(2, f',"n":{BIG}}}', item_id="e"),
    args_done(2, WEATHER, item_id="f"),
    item_done(2, WEATHER, name="weather"),
    completed(usage=USED),
]
EXPECTED = Message(
    "Café ☕ 🎈",
    "Let me see…",
    tool_calls=(
        ToolCall(2, "call_1", "weather", {"city": "Zürich 雪", "n": BIG}, WEATHER),
        ToolCall(3, "call_2", "now", {}, ""),
    ),
    finish=Finish("tool_calls", "completed"),
    usage=Usage(9, 5, 14, USED),
)


def test_however_it_is_cut(check_cuts: Check) -> None:
    check_cuts("openai-responses", stream(*FULL), EXPECTED)


def test_no_prefix_gives_another_answer(check_prefixes: Check) -> None:
    check_prefixes("openai-responses", stream(*FULL), EXPECTED)


def test_one_bad_value_is_an_error_or_changes_no_arguments(check_bad_shapes: Check) -> None:
    check_bad_shapes("openai-responses", stream, FULL)


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param("data: {data}", id="no event line"),
        pytest.param("event: {kind}\r\ndata: {data}\r\n\r\n", id="CRLF"),
        pytest.param(": OPENROUTER PROCESSING\n\n: \nevent: odd\ndata: {data}", id="comments, and another event line"),
    ],
)
@pytest.mark.parametrize("end", [[], ["data: [DONE]"]], ids=["", "then [DONE]"])
def test_however_it_is_framed(frame: str, end: list[Event]) -> None:
    events = (frame.format(kind=event["type"], data=json.dumps(event)) for event in FULL)
    assert message(*events, *end) == EXPECTED


def test_the_last_event_counts_although_no_blank_line_ends_it() -> None:
    assembler = StreamAssembler("openai-responses")
    assembler.feed(stream(*FULL)[:-2])
    assembler.result()
    assert assembler.message == EXPECTED


# Texts


def test_each_kind_of_text_is_a_delta_of_its_own() -> None:
    kinds = ["output_text", "refusal", "reasoning_text", "reasoning_summary_text"]
    assert decoded(*(says("a", n, kind=kind) for n, kind in enumerate(kinds))) == [
        TextDelta("a"),
        RefusalDelta("a"),
        ReasoningDelta("a"),
        ReasoningDelta("a"),
    ]


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        ("output_text", "text"),
        ("refusal", "refusal"),
        ("reasoning_text", "text"),
        ("reasoning_summary_text", "text"),
    ],
)
def test_a_whole_text_counts_where_no_delta_came(kind: str, key: str) -> None:
    whole = event(f"{kind}.done", output_index=0, content_index=1, **{key: "ab"})
    texts = [getattr(delta, "text", "") for delta in decoded(says("a", kind=kind), whole)]
    assert texts == ["a", "ab"]
    assert [getattr(delta, "text", "") for delta in decoded(says("ab", 0, 1, kind), whole)] == ["ab"]


def test_several_messages_are_one_text() -> None:
    assert message(says("a", 0), says("b", 1), says("c", 1, part=1), completed()).text == "abc"


def test_a_refusal_is_kept_apart_and_is_the_reason() -> None:
    whole = message(says("I can", kind="refusal"), says("not", kind="refusal"), completed())
    assert (whole.refusal, whole.text, whole.finish) == ("I cannot", "", Finish("refusal", "completed"))


@pytest.mark.parametrize(
    "event",
    [
        event("created", response={}),
        event("queued", response={}),
        event("odd"),
        event("odd.delta", output_index=0, delta="x"),
        {"type": "keepalive"},
        says(""),
        "data: [DONE]",
        ": ping",
        "data:",
    ],
    ids=str,
)
def test_nothing_comes_of_what_says_nothing(event: Event) -> None:
    assert decoded(says("a"), event, says("b")) == [TextDelta("a"), TextDelta("b")]


# Calls


def test_a_call_gives_its_deltas() -> None:
    assert decoded(added(4), args(4, "{"), args(4, "}"), args_done(4, "{}"), item_done(4, "{}"), completed()) == [
        ToolCallStart(4, "call_1", "f"),
        ToolCallDelta(4, "{"),
        ToolCallDelta(4, "}"),
        ToolCallEnd(4),
        ToolCall(4, "call_1", "f", {}, "{}"),
        Finish("tool_calls", "completed"),
        Done(),
    ]


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([added(1), args(1, WEATHER), args_done(1, WEATHER), item_done(1, WEATHER)], id="three times"),
        pytest.param([added(1), args(1, WEATHER), item_done(1, WEATHER)], id="without arguments.done"),
        pytest.param([added(1), args(1, WEATHER), item_done(1, None)], id="fragments alone"),
        pytest.param([added(1), args_done(1, WEATHER), item_done(1, WEATHER)], id="no fragments"),
        pytest.param([added(1), args_done(1, WEATHER), item_done(1, "")], id="in arguments.done alone"),
        pytest.param([added(1), item_done(1, WEATHER)], id="in the item alone"),
        pytest.param([item_done(1, WEATHER)], id="the item alone"),
    ],
)
def test_arguments_that_come_several_times_are_used_once(events: list[Event]) -> None:
    (call,) = message(*events, completed()).tool_calls
    assert (call.index, call.id, call.args["n"], call.args_text) == (1, "call_1", BIG, WEATHER)


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([args(1, "{"), args(1, "}"), args_done(1, '{"x":1}')], id="fragments and arguments.done"),
        pytest.param([args(1, "{}"), item_done(1, '{"x":1}')], id="fragments and the item"),
        pytest.param([args_done(1, "{}"), item_done(1, '{"x":1}')], id="arguments.done and the item"),
        pytest.param([args(1, "{}"), args_done(1, "")], id="fragments and nothing"),
    ],
)
def test_copies_that_differ_are_malformed(events: list[Event]) -> None:
    error, so_far = failure(added(1), *events, completed())
    assert (type(error), so_far.tool_calls) == (MalformedPayload, ())


def test_a_call_answers_to_its_call_id_and_else_to_its_id() -> None:
    starts = decoded(added(0), added(1, id=None), added(2, id=""))
    assert [start.id for start in starts if type(start) is ToolCallStart] == ["call_1", "fc_1", "fc_2"]


def test_completed_output_that_is_empty_takes_nothing_back() -> None:
    assert len(message(*FULL[:-1], completed(output=[])).tool_calls) == 2


SERVER_ITEMS = ["web_search_call", "mcp_call", "mcp_list_tools", "code_interpreter_call", "tool_search_call"]


@pytest.mark.parametrize("kind", SERVER_ITEMS)
def test_a_tool_that_the_provider_runs_is_no_call(kind: str) -> None:
    fragment = event("mcp_call_arguments.delta", output_index=0, delta="{}")
    events = [added(0, kind), fragment, item_done(0, "{}", kind)]
    assert message(*events, completed()) == Message(finish=Finish("stop", "completed"))
    assert decoded(*events) == []
    kinds = [event.kind for event in decoded(*events, extras=True) if type(event) is ProviderEvent]
    assert kinds == [kind, "response.mcp_call_arguments.delta", kind]


def test_extras_show_unknown_events_but_not_the_usual_ones() -> None:
    assert decoded(event("created"), event("odd", x=[1]), says("a"), extras=True) == [
        ProviderEvent("response.odd", event("odd", x=[1])),
        TextDelta("a"),
    ]


# Calls whose input is raw text

SAID = 'print("hé")\n\\ {}\t\u2028'


@pytest.mark.parametrize("size", range(1, 8))
def test_raw_text_is_the_input_however_it_is_split(size: int) -> None:
    pieces = [raw(0, SAID[n : n + size]) for n in range(0, len(SAID), size)]
    done = event("custom_tool_call_input.done", output_index=0, input=SAID)
    last = item_done(0, SAID, "custom_tool_call")
    (call,) = message(added(0, "custom_tool_call", input=""), *pieces, done, last, completed()).tool_calls
    assert (call.args, json.loads(call.args_text)) == ({"input": SAID}, {"input": SAID})


@pytest.mark.parametrize("text", [SAID, "", '"', '{"x":1}', "null"])
def test_raw_text_may_come_in_the_item_alone(text: str) -> None:
    (call,) = message(item_done(0, text, "custom_tool_call"), completed()).tool_calls
    assert call.args == {"input": text}


def test_raw_text_may_come_in_its_done_event_alone() -> None:
    done = event("custom_tool_call_input.done", output_index=0, input=SAID)
    (call,) = message(added(0, "custom_tool_call"), done, item_done(0, "", "custom_tool_call"), completed()).tool_calls
    assert call.args == {"input": SAID}


@pytest.mark.parametrize(
    "copy", [event("custom_tool_call_input.done", output_index=0, input="b"), item_done(0, "b", "custom_tool_call")]
)
def test_raw_text_that_differs_is_malformed(copy: Event) -> None:
    error, so_far = failure(added(0, "custom_tool_call"), raw(0, "a"), copy, completed())
    assert (type(error), so_far.tool_calls) == (MalformedPayload, ())


def test_raw_text_cut_short_is_not_closed() -> None:
    error, so_far = failure(added(0, "custom_tool_call"), raw(0, "half a"), incomplete("max_output_tokens"))
    assert (type(error), so_far.tool_calls) == (UnclosedToolCall, ())


# How it ends


def test_usage_comes_with_the_end() -> None:
    assert decoded(completed(usage=USED)) == [Usage(9, 5, 14, USED), Finish("stop", "completed"), Done()]


@pytest.mark.parametrize("usage", [None, {}])
def test_usage_may_be_missing(usage: Any) -> None:
    assert message(says("a"), completed(usage=usage)).usage is None


@pytest.mark.parametrize(
    ("end", "reason", "raw_reason"),
    [
        (completed(), "stop", "completed"),
        (incomplete("max_output_tokens"), "length", "incomplete"),
        (incomplete("content_filter"), "content_filter", "incomplete"),
        (incomplete("odd"), "other", "incomplete"),
        (incomplete(None), "length", "incomplete"),
        (event("incomplete", response={}), "length", "incomplete"),
        (completed("odd"), "other", "odd"),
    ],
)
def test_every_reason_in_one_vocabulary(end: Event, reason: Any, raw_reason: str) -> None:
    assert message(says("a"), end).finish == Finish(reason, raw_reason)


def test_an_answer_cut_in_its_reasoning_has_no_text() -> None:
    assert message(incomplete("max_output_tokens", usage=USED)) == Message(
        finish=Finish("length", "incomplete"), usage=Usage(9, 5, 14, USED)
    )


@pytest.mark.parametrize("late", [says("b"), completed(), event("failed", response={}), "data: {"], ids=str)
def test_after_the_end_nothing_counts(late: Event) -> None:
    assert message(says("a"), completed(), late).text == "a"


@pytest.mark.parametrize("events", [[], [says("a")], [added(0), item_done(0, "{}")], [says("a"), "data: [DONE]"]])
def test_without_its_end_it_is_truncated(events: list[Event]) -> None:
    assert type(failure(*events)[0]) is TruncatedStream


# Errors

BUSY = {"type": "server_error", "code": "busy", "message": "Busy", "param": None}


@pytest.mark.parametrize(
    ("reported", "facts"),
    [
        pytest.param({"type": "error", "error": BUSY}, ("Busy", "server_error", "busy"), id="nested"),
        pytest.param(event("failed", response={"error": BUSY}), ("Busy", "server_error", "busy"), id="failed"),
        pytest.param(event("failed", response={"status": "failed"}), ("the response failed", None, None), id="nothing"),
        pytest.param(f"data: {json.dumps({'error': BUSY})}", ("Busy", "server_error", "busy"), id="no type"),
        pytest.param(json.dumps({"error": BUSY}), ("Busy", "server_error", "busy"), id="JSON without data:"),
    ],
)
@pytest.mark.parametrize("before", [[], [says("a")], [added(0), args(0, "{")]], ids=["first", "in text", "in a call"])
@pytest.mark.parametrize("after", [[], [completed()]], ids=["last", "then the end"])
def test_an_error_is_an_error(reported: Event, facts: tuple[Any, ...], before: list[Event], after: list[Event]) -> None:
    error, so_far = failure(*before, reported, *after)
    assert type(error) is ProviderError
    assert (error.message, error.type, error.code) == facts
    assert error.retry_safe is not bool(before)
    assert error.partial == ((so_far,) if so_far.text else ())


def test_a_flat_error_has_its_code_and_message() -> None:
    error, so_far = failure(says("a"), {"type": "error", "code": "busy", "message": "Busy", "param": None})
    assert isinstance(error, ProviderError)
    assert (error.code, error.message, so_far.text) == ("busy", "Busy", "a")


def test_the_type_of_a_flat_error_is_none_of_its_own() -> None:
    error, _ = failure({"type": "error", "code": "busy", "message": "Busy"})
    assert isinstance(error, ProviderError)
    assert error.type is None


# What is not finished


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([args(1, '{"x":4')], id="nothing more"),
        pytest.param([args(1, '{"x":4'), args_done(1, '{"x":4')], id="arguments.done"),
        pytest.param(
            [args(1, '{"x":4'), args_done(1, '{"x":4'), item_done(1, '{"x":4', status="incomplete")], id="incomplete"
        ),
        pytest.param([item_done(1, '{"x":4', status="incomplete")], id="an incomplete item alone"),
    ],
)
def test_a_call_cut_by_max_tokens_is_not_closed(events: list[Event]) -> None:
    whole = item_done(0, "{}", call_id="call_0")
    error, so_far = failure(whole, added(1), *events, incomplete("max_output_tokens"))
    assert isinstance(error, UnclosedToolCall)
    assert (error.index, error.id, error.name, error.args_text) == (1, "call_1", "f", '{"x":4')
    assert [call.id for call in so_far.tool_calls] == ["call_0"]
    assert so_far.finish == Finish("length", "incomplete")


def test_a_closed_call_whose_arguments_are_cut_is_malformed() -> None:
    error, so_far = failure(item_done(0, '{"x":'), item_done(1, "{}"), incomplete("max_output_tokens"))
    assert isinstance(error, MalformedToolArguments)
    assert (error.index, error.args_text) == (0, '{"x":')
    assert ([call.index for call in so_far.tool_calls], so_far.finish) == ([1], Finish("length", "incomplete"))


def test_a_whole_incomplete_call_is_not_given() -> None:
    error, so_far = failure(added(0), args(0, "{}"), item_done(0, "{}", status="incomplete"), incomplete(None))
    assert (type(error), so_far.tool_calls) == (UnclosedToolCall, ())


# What is not the dialect


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param("data: {", id="no JSON"),
        pytest.param("data: null", id="null"),
        pytest.param({"output_index": 0}, id="no type"),
        pytest.param(says(5), id="text that is a number"),
        pytest.param(says("a", None), id="text without an index"),
        pytest.param(event("output_text.done", output_index=0, text=5), id="a whole text that is a number"),
        pytest.param(event("output_item.added", output_index=1), id="no item"),
        pytest.param(added("1"), id="an index that is a string"),
        pytest.param(added(True), id="an index that is a boolean"),
        pytest.param(added(-1), id="an index below nought"),
        pytest.param(added(1, name=None), id="a call without a name"),
        pytest.param(added(1, id=5), id="an id that is a number"),
        pytest.param(added(0), id="a second start"),
        pytest.param(args(8, "{}"), id="arguments of no call"),
        pytest.param(args_done(8, "{}"), id="whole arguments of no call"),
        pytest.param(args(0, {}), id="arguments that are an object"),
        pytest.param(item_done(0, 5), id="whole arguments that are a number"),
        pytest.param(completed(5), id="a status that is a number"),
        pytest.param(completed(usage=5), id="usage that is a number"),
        pytest.param(event("completed", response="x"), id="a response that is a string"),
    ],
)
def test_anything_else_is_malformed(broken: Event) -> None:
    error, so_far = failure(says("a", 9), added(0), broken, completed())
    assert type(error) is MalformedPayload
    assert (so_far.text, "event 3" in str(error)) == ("a", True)


@pytest.mark.parametrize("late", [args(0, "{}"), item_done(0, "{}"), added(0)], ids=["a fragment", "an end", "a start"])
def test_what_follows_a_finished_call_is_malformed(late: Event) -> None:
    error, so_far = failure(item_done(0, "{}"), late, completed())
    assert (type(error), len(so_far.tool_calls)) == (MalformedPayload, 1)


DEEP = "[" * 1000 + "]" * 1000


@pytest.mark.parametrize(
    "place",
    [
        '{"type":%s}',
        '{"type":"response.odd","x":%s}',
        '{"type":"error","message":%s}',
        '{"type":"response.completed","response":{"usage":{"x":%s},"status":5}}',
        '{"type":"response.output_text.delta","output_index":0,"content_index":%s,"delta":"a"}',
        '{"type":"response.output_item.added","output_index":0,"item":{"type":%s}}',
    ],
)
@pytest.mark.parametrize("extras", [False, True])
def test_deep_nesting_is_never_another_exception(place: str, extras: bool) -> None:
    assembler = StreamAssembler("openai-responses", extras=extras)
    with pytest.raises(StreamError):
        _ = assembler.feed(stream("data: " + place % DEEP)), assembler.result()
