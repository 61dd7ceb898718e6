"""Anthropic's Messages API: direct, on Vertex, and through gateways."""

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


def stream(*events: Event) -> bytes:
    """Each event with its type; a string as it stands."""
    blocks = (
        event
        if isinstance(event, str)
        else f"event: {event.get('type', 'message')}\ndata: {json.dumps(event, ensure_ascii=False)}"
        for event in events
    )
    return "".join(f"{block}\n\n" for block in blocks).encode()


decoded, message, failure = readers("anthropic", stream)


def begin(**usage: Any) -> dict[str, Any]:
    return {"type": "message_start", "message": {"id": "msg_1", "role": "assistant", "content": [], "usage": usage}}


def block(index: Any, kind: Any, **more: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": {"type": kind, **more}}


def tool(index: Any, id: Any = "t", name: Any = "f", input: Any = None, **more: Any) -> dict[str, Any]:
    return block(index, "tool_use", id=id, name=name, input={} if input is None else input, **more)


def delta(index: Any, kind: Any, **more: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **more}}


def text(index: Any, piece: Any) -> dict[str, Any]:
    return delta(index, "text_delta", text=piece)


def args(index: Any, piece: Any) -> dict[str, Any]:
    return delta(index, "input_json_delta", partial_json=piece)


def stop(index: Any) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


def ends(reason: Any = "end_turn", **usage: Any) -> dict[str, Any]:
    return {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": usage}


STOP = {"type": "message_stop"}
PING = {"type": "ping"}
SAYS_A: list[Event] = [begin(), block(0, "text", text=""), text(0, "a"), stop(0)]

FULL: list[Any] = [
    begin(input_tokens=25, output_tokens=1, cache_read_input_tokens=7),
    block(0, "thinking", thinking="", signature=""),
    PING,
    delta(0, "thinking_delta", thinking="Let me "),
    delta(0, "thinking_delta", thinking="see…"),
    delta(0, "signature_delta", signature="c2ln"),
    stop(0),
    block(1, "text", text=""),
    text(1, "Caf"),
    text(1, "é ☕ 🎈"),
    stop(1),
    tool(2, "toolu_1", "weather"),
    args(2, ""),
    args(2, '{"city":'),
    tool(3, "toolu_2", "now"),
    args(3, ""),
    PING,
    args(2, '"Zürich 雪"'),
    stop(3),
    args(2, f',"n":{BIG}}}'),
    stop(2),
    ends("tool_use", output_tokens=40),
    STOP,
]
EXPECTED = Message(
    "Café ☕ 🎈",
    "Let me see…",
    tool_calls=(
        ToolCall(2, "toolu_1", "weather", {"city": "Zürich 雪", "n": BIG}, f'{{"city":"Zürich 雪","n":{BIG}}}'),
        ToolCall(3, "toolu_2", "now", {}, ""),
    ),
    finish=Finish("tool_calls", "tool_use"),
    usage=Usage(25, 40, None, {"input_tokens": 25, "output_tokens": 40, "cache_read_input_tokens": 7}),
)


def test_however_it_is_cut(check_cuts: Check) -> None:
    check_cuts("anthropic", stream(*FULL), EXPECTED)


def test_no_prefix_gives_another_answer(check_prefixes: Check) -> None:
    check_prefixes("anthropic", stream(*FULL), EXPECTED)


def test_one_bad_value_is_an_error_or_changes_no_arguments(check_bad_shapes: Check) -> None:
    check_bad_shapes("anthropic", stream, FULL, "partial_json", "input")


# Blocks


def test_each_event_gives_its_delta() -> None:
    assert decoded(tool(1), args(1, "{"), args(1, "}"), stop(1), ends("tool_use"), STOP) == [
        ToolCallStart(1, "t", "f"),
        ToolCallDelta(1, "{"),
        ToolCallDelta(1, "}"),
        ToolCallEnd(1),
        ToolCall(1, "t", "f", {}, "{}"),
        Finish("tool_calls", "tool_use"),
        Done(),
    ]


def test_text_and_thinking_may_stand_in_the_start_of_their_block() -> None:
    assert decoded(block(0, "thinking", thinking="hm"), block(1, "text", text="a")) == [
        ReasoningDelta("hm"),
        TextDelta("a"),
    ]


@pytest.mark.parametrize(
    "event",
    [PING, {"type": "odd"}, stop(9), text(0, ""), delta(0, "odd_delta"), block(9, "odd"), "data:", ": ping"],
    ids=str,
)
def test_nothing_comes_of_pings_and_what_is_unknown(event: Event) -> None:
    assert decoded(text(0, "a"), event, text(0, "b")) == [TextDelta("a"), TextDelta("b")]


def test_pings_are_no_extras() -> None:
    assert decoded(PING, extras=True) == []


def test_redacted_thinking_gives_no_delta() -> None:
    redacted = block(0, "redacted_thinking", data="c2VjcmV0")
    assert message(redacted, stop(0), ends(), STOP) == Message(finish=Finish("stop", "end_turn"))
    assert decoded(redacted, stop(0), extras=True) == [ProviderEvent("redacted_thinking", redacted)]


def test_a_call_without_fragments_has_no_arguments() -> None:
    assert message(tool(0), stop(0), ends("tool_use"), STOP).tool_calls == (ToolCall(0, "t", "f", {}, ""),)


def test_a_call_may_be_without_an_id() -> None:
    assert decoded(tool(0, id=None)) == [ToolCallStart(0, "", "f")]


def test_an_input_whole_in_the_start_is_exact() -> None:
    (call,) = message(tool(0, input={"n": BIG, "é": [1]}), stop(0), ends("tool_use"), STOP).tool_calls
    assert (call.args, call.args_text) == ({"n": BIG, "é": [1]}, f'{{"n":{BIG},"é":[1]}}')


def test_fragments_outweigh_an_input_in_the_start() -> None:
    (call,) = message(tool(0, input={"x": 1}), args(0, '{"x":1}'), stop(0), ends(), STOP).tool_calls
    assert call.args_text == '{"x":1}'


@pytest.mark.parametrize(
    "before", [block(0, "text", text=""), block(0, "server_tool_use", name="s")], ids=["text", "tool"]
)
def test_a_number_used_again_loses_no_arguments(before: Event) -> None:
    assembler = StreamAssembler("anthropic")
    try:
        assembler.feed(stream(before, stop(0), tool(0), args(0, '{"x":1}'), stop(0), ends("tool_use"), STOP))
    except StreamError:
        assert assembler.message.tool_calls == ()
    else:
        assert [call.args for call in assembler.message.tool_calls] == [{"x": 1}]


@pytest.mark.parametrize("kind", ["server_tool_use", "mcp_tool_use"])
def test_a_tool_that_the_provider_runs_is_no_call(kind: str) -> None:
    events: list[Event] = [
        block(0, kind, id="srv_1", name="web_search", input={}),
        args(0, '{"query":'),
        args(0, '"x"}'),
        stop(0),
        block(1, "web_search_tool_result", tool_use_id="srv_1", content=[{"type": "web_search_result"}]),
        stop(1),
    ]
    assert message(*events, ends("pause_turn"), STOP).tool_calls == ()
    kinds = [event.kind for event in decoded(*events, extras=True) if type(event) is ProviderEvent]
    assert kinds == [kind, "input_json_delta", "input_json_delta", "web_search_tool_result"]


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        ({"type": "odd", "x": [1]}, "odd"),
        (delta(0, "citations_delta", citation={"url": "u"}), "citations_delta"),
        (delta(0, "compaction_delta", content="c"), "compaction_delta"),
        (delta(0, "signature_delta", signature="s"), "signature_delta"),
    ],
)
def test_extras_show_what_only_this_provider_sends(event: dict[str, Any], kind: str) -> None:
    assert decoded(event) == []
    assert decoded(event, extras=True) == [ProviderEvent(kind, event)]


# How it is framed


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(lambda data, kind: f"data: {data}", id="no event line"),
        pytest.param(lambda data, kind: f"event: {kind}\r\ndata: {data}\r\n\r\n", id="CRLF"),
        pytest.param(lambda data, kind: f"event: {kind}\ndata: {data[:-1]}      }}", id="padded with blanks"),
        pytest.param(lambda data, kind: f"id: 1\nevent:{kind}\ndata:{data}", id="no space"),
    ],
)
def test_however_it_is_framed(frame: Callable[[str, str], str]) -> None:
    assert message(*(frame(json.dumps(event), event["type"]) for event in FULL)) == EXPECTED


def test_the_type_may_stand_in_the_event_line_alone() -> None:
    assert decoded('event: content_block_delta\ndata: {"index":0,"delta":{"type":"text_delta","text":"a"}}') == [
        TextDelta("a")
    ]


@pytest.mark.parametrize("late", ["event: data\ndata: [DONE]", "data: [DONE]", text(0, "b"), STOP, begin()], ids=str)
def test_after_the_end_nothing_counts(late: Event) -> None:
    assert message(*SAYS_A, ends(), STOP, late).text == "a"


def test_done_alone_is_no_end() -> None:
    assert type(failure(*SAYS_A, ends(), "data: [DONE]")[0]) is TruncatedStream


def test_the_last_event_counts_although_no_blank_line_ends_it() -> None:
    assembler = StreamAssembler("anthropic")
    assembler.feed(stream(*FULL)[:-2])
    assembler.result()
    assert assembler.message == EXPECTED


# Usage and finish


def test_usage_is_cumulative() -> None:
    figures = [
        delta
        for delta in decoded(begin(input_tokens=3, output_tokens=1), ends(input_tokens=5), ends(output_tokens=9))
        if type(delta) is Usage
    ]
    assert figures == [
        Usage(3, 1, None, {"input_tokens": 3, "output_tokens": 1}),
        Usage(5, 1, None, {"input_tokens": 5, "output_tokens": 1}),
        Usage(5, 9, None, {"input_tokens": 5, "output_tokens": 9}),
    ]


def test_a_figure_that_is_null_replaces_none() -> None:
    assert message(begin(input_tokens=3, output_tokens=1), ends(input_tokens=None), STOP).usage == Usage(
        3, 1, None, {"input_tokens": 3, "output_tokens": 1}
    )


def test_figures_are_bounded() -> None:
    assert type(failure(*(ends(**{f"figure_{n}": n}) for n in range(1_000)))[0]) is MalformedPayload


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("tool_use", "tool_calls"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "refusal"),
        ("pause_turn", "other"),
        ("odd", "other"),
    ],
)
def test_every_reason_in_one_vocabulary(raw: str, reason: Any) -> None:
    assert message(*SAYS_A, ends(raw), STOP) == Message(text="a", finish=Finish(reason, raw))


def test_an_answer_may_have_no_blocks() -> None:
    assert message(begin(), ends("stop_sequence"), STOP) == Message(finish=Finish("stop", "stop_sequence"))


# Errors

BUSY = {"type": "overloaded_error", "message": "Overloaded", "details": None}


@pytest.mark.parametrize(
    ("event", "facts"),
    [
        pytest.param({"type": "error", "error": BUSY}, ("Overloaded", "overloaded_error", None), id="as documented"),
        pytest.param(
            {"type": "error", "error": BUSY, "request_id": "r"}, ("Overloaded", "overloaded_error", None), id="with id"
        ),
        pytest.param({"type": "error", "error": "busy"}, ("busy", None, None), id="a string"),
        pytest.param({"type": "error", "error": {"code": 529}}, ("", None, 529), id="a code"),
        pytest.param(
            f"event: error\ndata: {json.dumps({'error': BUSY})}", ("Overloaded", "overloaded_error", None), id="no type"
        ),
        pytest.param(json.dumps({"error": BUSY}), ("Overloaded", "overloaded_error", None), id="JSON without data:"),
    ],
)
@pytest.mark.parametrize("before", [[], [text(0, "a")], [tool(0), args(0, "{")]], ids=["first", "in text", "in a call"])
def test_an_error_is_an_error(event: Event, facts: tuple[Any, ...], before: list[Event]) -> None:
    error, so_far = failure(*before, event, ends(), STOP)
    assert type(error) is ProviderError
    assert (error.message, error.type, error.code) == facts
    assert error.status == error.code
    assert error.retry_safe is not bool(before)
    assert error.partial == ((so_far,) if so_far.text else ())


def test_an_error_after_the_end_undoes_nothing() -> None:
    assert message(*SAYS_A, ends(), STOP, {"type": "error", "error": BUSY}).text == "a"


# What is not finished


def test_a_call_cut_by_max_tokens_is_not_closed() -> None:
    error, so_far = failure(
        tool(1, "t1"), args(1, "{}"), stop(1), tool(2, "t2", "g"), args(2, '{"x":'), ends("max_tokens"), STOP
    )
    assert isinstance(error, UnclosedToolCall)
    assert (error.index, error.id, error.name, error.args_text) == (2, "t2", "g", '{"x":')
    assert error.partial == (so_far,)
    assert [call.id for call in so_far.tool_calls] == ["t1"]
    assert so_far.finish == Finish("length", "max_tokens")


def test_a_call_of_a_refused_answer_is_not_closed() -> None:
    error, so_far = failure(*SAYS_A, tool(1), args(1, "{}"), ends("refusal"), STOP)
    assert type(error) is UnclosedToolCall
    assert (so_far.text, so_far.finish) == ("a", Finish("refusal", "refusal"))


def test_a_closed_call_whose_arguments_are_cut_is_malformed() -> None:
    error, so_far = failure(tool(0), args(0, '{"x":'), stop(0), tool(1, "u"), stop(1), ends("max_tokens"), STOP)
    assert isinstance(error, MalformedToolArguments)
    assert (error.index, error.id, error.args_text) == (0, "t", '{"x":')
    assert ([call.id for call in so_far.tool_calls], so_far.finish) == (["u"], Finish("length", "max_tokens"))


@pytest.mark.parametrize("events", [[], [PING], SAYS_A, [*SAYS_A, ends()], [tool(0), stop(0), ends("tool_use")]])
def test_without_message_stop_it_is_truncated(events: list[Event]) -> None:
    assert type(failure(*events)[0]) is TruncatedStream


# What is not the dialect


@pytest.mark.parametrize(
    "event",
    [
        pytest.param("data: {", id="no JSON"),
        pytest.param("data: []", id="a list"),
        pytest.param({"index": 0}, id="no type"),
        pytest.param(begin(), id="a second message_start"),
        pytest.param(text(0, 5), id="text that is a number"),
        pytest.param(text(None, "a"), id="a delta without an index"),
        pytest.param({"type": "content_block_delta", "index": 0}, id="a delta without one"),
        pytest.param(tool(9, name=None), id="a call without a name"),
        pytest.param(tool(9, name=""), id="a call whose name is empty"),
        pytest.param(tool(9, id=5), id="an id that is a number"),
        pytest.param(tool("0"), id="an index that is a string"),
        pytest.param(tool(-1), id="an index below nought"),
        pytest.param(tool(True), id="an index that is a boolean"),
        pytest.param(tool(0), id="a second start"),
        pytest.param(args(8, "{}"), id="arguments of no call"),
        pytest.param(args(0, {}), id="arguments that are an object"),
        pytest.param(ends(5), id="a reason that is a number"),
        pytest.param({**ends(), "usage": 5}, id="usage that is a number"),
        pytest.param(
            f"data: {json.dumps(tool(9, input={'n': 0})).replace('0}', '9' * 5_000 + '}')}",
            id="a number of 5,000 digits",
        ),
    ],
)
def test_anything_else_is_malformed(event: Event) -> None:
    error, so_far = failure(begin(), text(1, "a"), tool(0), event, ends(), STOP)
    assert type(error) is MalformedPayload
    assert (so_far.text, "event 4" in str(error)) == ("a", True)


def test_arguments_after_the_end_of_their_call_are_malformed() -> None:
    error, so_far = failure(tool(0), args(0, "{}"), stop(0), args(0, "{}"), ends(), STOP)
    assert type(error) is MalformedPayload
    assert [call.args for call in so_far.tool_calls] == [{}]


DEEP = "[" * 1000 + "]" * 1000


@pytest.mark.parametrize(
    "event",
    [
        '{"type":%s}',
        '{"type":"odd","x":%s}',
        '{"type":"error","error":{"message":%s}}',
        '{"type":"message_delta","usage":{"x":%s}}',
        '{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","name":"f","input":{"x":%s}}}',
    ],
)
@pytest.mark.parametrize("extras", [False, True])
def test_deep_nesting_is_never_another_exception(event: str, extras: bool) -> None:
    assembler = StreamAssembler("anthropic", extras=extras)
    with pytest.raises(StreamError):
        _ = assembler.feed(stream("data: " + event % DEEP)), assembler.result()
