"""Amazon Bedrock's ConverseStream, in frames."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from rillet.operators import (
    Delta,
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

Event = tuple[str, Any]
Check = Callable[..., None]
BIG = 123456789012345678901234567890


class Wire:
    """Streams of frames, and what comes of them; what is no pair of a type and a payload stands as it is."""

    def __init__(self, frame: Callable[..., bytes]) -> None:
        self.frame = frame

    def stream(self, *events: Event | bytes) -> bytes:
        return b"".join(event if isinstance(event, bytes) else self.event(*event) for event in events)

    def event(self, kind: str, payload: Any) -> bytes:
        data = payload if isinstance(payload, bytes) else json.dumps(payload, ensure_ascii=False).encode()
        return self.frame(data, event_type=kind, content_type="application/json", message_type="event")

    def failing(self, payload: bytes = b"{}", **headers: str) -> bytes:
        return self.frame(payload, **headers)

    def decoded(self, *events: Event | bytes, extras: bool = False) -> list[Delta]:
        return StreamAssembler("bedrock-converse", extras=extras).feed(self.stream(*events))

    def message(self, *events: Event | bytes) -> Message:
        assembler = StreamAssembler("bedrock-converse")
        _ = assembler.feed(self.stream(*events)), assembler.result()
        return assembler.message

    def failure(self, *events: Event | bytes) -> tuple[StreamError, Message]:
        assembler = StreamAssembler("bedrock-converse")
        with pytest.raises(StreamError) as caught:
            _ = assembler.feed(self.stream(*events)), assembler.result()
        return caught.value, assembler.message


@pytest.fixture(scope="module")
def wire(frame: Callable[..., bytes]) -> Wire:
    return Wire(frame)


def start(index: Any, id: Any = "t", name: Any = "f", **more: Any) -> Event:
    tool = {"toolUseId": id, "name": name, **more}
    return "contentBlockStart", {"contentBlockIndex": index, "start": {"toolUse": tool}, "p": "abc"}


def delta(index: Any, **piece: Any) -> Event:
    return "contentBlockDelta", {"contentBlockIndex": index, "delta": piece, "p": "abcdef"}


def text(piece: Any, index: Any = 0) -> Event:
    return delta(index, text=piece)


def args(index: Any, piece: Any) -> Event:
    return delta(index, toolUse={"input": piece})


def stop(index: Any) -> Event:
    return "contentBlockStop", {"contentBlockIndex": index}


def ends(reason: Any = "end_turn") -> Event:
    return "messageStop", {"stopReason": reason}


BEGIN: Event = ("messageStart", {"role": "assistant", "p": "a"})
USED = {"inputTokens": 9, "outputTokens": 5, "totalTokens": 14}
METADATA: Event = ("metadata", {"usage": USED, "metrics": {"latencyMs": 7}})
FULL: list[Event] = [
    BEGIN,
    delta(0, reasoningContent={"text": "Let me "}),
    delta(0, reasoningContent={"text": "see…"}),
    delta(0, reasoningContent={"signature": "c2ln"}),
    stop(0),
    text("Caf", 1),
    text("é ☕ 🎈", 1),
    stop(1),
    start(2, "tooluse_1", "weather"),
    args(2, '{"city":'),
    start(3, "tooluse_2", "now"),
    args(2, '"Zürich 雪"'),
    stop(3),
    args(2, f',"n":{BIG}}}'),
    stop(2),
    ends("tool_use"),
    METADATA,
]
EXPECTED = Message(
    "Café ☕ 🎈",
    "Let me see…",
    tool_calls=(
        ToolCall(2, "tooluse_1", "weather", {"city": "Zürich 雪", "n": BIG}, f'{{"city":"Zürich 雪","n":{BIG}}}'),
        ToolCall(3, "tooluse_2", "now", {}, ""),
    ),
    finish=Finish("tool_calls", "tool_use"),
    usage=Usage(9, 5, 14, USED),
)


def test_however_it_is_cut(wire: Wire, check_cuts: Check) -> None:
    check_cuts("bedrock-converse", wire.stream(*FULL), EXPECTED)


def test_no_prefix_gives_another_answer(wire: Wire, check_prefixes: Check) -> None:
    check_prefixes("bedrock-converse", wire.stream(*FULL), EXPECTED)


def test_one_bad_value_is_an_error_or_changes_no_arguments(wire: Wire, check_bad_shapes: Check) -> None:
    kinds = [kind for kind, _ in FULL]
    check_bad_shapes(
        "bedrock-converse",
        lambda *payloads: wire.stream(*zip(kinds, payloads, strict=True)),
        [payload for _, payload in FULL],
        "input",
    )


def test_each_event_gives_its_delta(wire: Wire) -> None:
    assert wire.decoded(BEGIN, start(1), args(1, "{"), args(1, ""), args(1, "}"), stop(1), ends(), METADATA) == [
        ToolCallStart(1, "t", "f"),
        ToolCallDelta(1, "{"),
        ToolCallDelta(1, "}"),
        ToolCallEnd(1),
        ToolCall(1, "t", "f", {}, "{}"),
        Finish("stop", "end_turn"),
        Usage(9, 5, 14, USED),
        Done(),
    ]


@pytest.mark.parametrize(
    "event",
    [
        BEGIN,
        text(""),
        delta(0, text=None),
        delta(0, reasoningContent={"redactedContent": "AA=="}),
        delta(0, citation={"title": "x"}),
        ("contentBlockStart", {"contentBlockIndex": 0, "start": {}}),
        stop(9),
        ("odd", {"x": 1}),
    ],
    ids=str,
)
def test_nothing_comes_of_what_says_nothing(event: Event, wire: Wire) -> None:
    assert wire.decoded(text("a"), event, text("b")) == [TextDelta("a"), TextDelta("b")]


@pytest.mark.parametrize("id", ["", None])
def test_a_call_may_be_without_an_id(id: Any, wire: Wire) -> None:
    assert wire.decoded(start(0, id)) == [ToolCallStart(0, "", "f")]


def test_a_tool_that_the_provider_runs_is_no_call(wire: Wire) -> None:
    result: Event = ("contentBlockStart", {"contentBlockIndex": 1, "start": {"toolResult": {"toolUseId": "s"}}})
    events = [
        start(0, "s", "search", type="server_tool_use"),
        args(0, '{"q":'),
        args(0, "1}"),
        stop(0),
        result,
        stop(1),
    ]
    assert wire.message(*events, text("a"), ends()).tool_calls == ()


def test_a_number_used_again_loses_no_arguments(wire: Wire) -> None:
    assembler = StreamAssembler("bedrock-converse")
    before: Event = ("contentBlockStart", {"contentBlockIndex": 0, "start": {}})
    try:
        assembler.feed(wire.stream(before, stop(0), start(0), args(0, '{"x":1}'), stop(0), ends(), METADATA))
    except StreamError:
        assert assembler.message.tool_calls == ()
    else:
        assert [call.args for call in assembler.message.tool_calls] == [{"x": 1}]


def test_extras_show_signatures_and_what_is_unknown(wire: Wire) -> None:
    signature: dict[str, Any] = {"signature": "s"}
    assert wire.decoded(delta(0, reasoningContent=signature), ("odd", {"x": 1}), BEGIN, text("a"), extras=True) == [
        ProviderEvent("reasoningContent", signature),
        ProviderEvent("odd", {"x": 1}),
        TextDelta("a"),
    ]


def test_extras_do_not_repeat_reasoning(wire: Wire) -> None:
    assert wire.decoded(delta(0, reasoningContent={"text": "hm"}), extras=True) == [ReasoningDelta("hm")]


# How it ends


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("tool_use", "tool_calls"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("guardrail_intervened", "content_filter"),
        ("content_filtered", "content_filter"),
        ("malformed_tool_use", "other"),
    ],
)
def test_every_reason_in_one_vocabulary(raw: str, reason: Any, wire: Wire) -> None:
    assert wire.message(text("a"), ends(raw), METADATA).finish == Finish(reason, raw)


def test_message_stop_then_a_clean_end_is_whole(wire: Wire) -> None:
    assert wire.message(text("a"), ends()) == Message("a", finish=Finish("stop", "end_turn"))


def test_usage_comes_after_the_stop(wire: Wire) -> None:
    assert wire.message(text("a"), ends(), METADATA).usage == Usage(9, 5, 14, USED)


def test_usage_before_the_stop_is_no_end(wire: Wire) -> None:
    assert type(wire.failure(text("a"), METADATA)[0]) is TruncatedStream
    assert wire.message(METADATA, text("a"), ends()).usage == Usage(9, 5, 14, USED)


@pytest.mark.parametrize("usage", [{}, {"usage": None}, {"usage": {}}])
def test_usage_may_be_missing(usage: dict[str, Any], wire: Wire) -> None:
    assert wire.message(text("a"), ends(), ("metadata", usage)) == Message("a", finish=Finish("stop", "end_turn"))


def test_after_the_metadata_nothing_counts(wire: Wire) -> None:
    assert wire.message(text("a"), ends(), METADATA, text("b"), b"garbage" * 9).text == "a"


@pytest.mark.parametrize("events", [[], [BEGIN], [text("a")], [start(0), stop(0)]], ids=str)
def test_without_message_stop_it_is_truncated(events: list[Event], wire: Wire) -> None:
    assert type(wire.failure(*events)[0]) is TruncatedStream


# Errors


@pytest.mark.parametrize(
    ("payload", "headers", "facts"),
    [
        pytest.param(
            b'{"message":"busy"}',
            {"exception_type": "throttlingException", "message_type": "exception"},
            ("throttlingException", "busy"),
            id="an exception",
        ),
        pytest.param(
            b"",
            {"exception_type": "throttlingException", "message_type": "exception"},
            ("throttlingException", ""),
            id="an empty exception",
        ),
        pytest.param(
            b'{"message":5}',
            {"exception_type": "internalServerException", "message_type": "exception"},
            ("internalServerException", ""),
            id="a message that is a number",
        ),
        pytest.param(
            b"",
            {"error_code": "InternalError", "error_message": "busy", "message_type": "error"},
            ("InternalError", "busy"),
            id="an error",
        ),
        pytest.param(
            b"<html>",
            {"error_code": "InternalError", "error_message": "busy", "message_type": "error"},
            ("InternalError", "busy"),
            id="an error whose payload is no JSON",
        ),
    ],
)
@pytest.mark.parametrize("before", [[], [text("a")], [start(0), args(0, "{")]], ids=["first", "in text", "in a call"])
@pytest.mark.parametrize("after", [[], [ends(), METADATA]], ids=["last", "then the end"])
def test_a_frame_that_reports_a_failure_is_an_error(
    payload: bytes, headers: dict[str, str], facts: tuple[str, str], before: Any, after: Any, wire: Wire
) -> None:
    error, so_far = wire.failure(*before, wire.failing(payload, **headers), *after)
    assert isinstance(error, ProviderError)
    assert (error.type, error.message) == facts
    assert (error.retry_safe, so_far.finish, so_far.tool_calls) == (not before, None, ())


@pytest.mark.parametrize("payload", [b"busy", b"[]", b"\xff"], ids=["no JSON", "a list", "no UTF-8"])
def test_an_exception_is_the_provider_s_whatever_its_payload(payload: bytes, wire: Wire) -> None:
    error, _ = wire.failure(wire.failing(payload, exception_type="throttlingException", message_type="exception"))
    assert isinstance(error, ProviderError)
    assert error.type == "throttlingException"


def test_a_failure_after_the_end_undoes_nothing(wire: Wire) -> None:
    late = wire.failing(exception_type="x", message_type="exception")
    assert wire.message(text("a"), ends(), METADATA, late).text == "a"


def test_a_failure_after_the_stop_is_one(wire: Wire) -> None:
    late = wire.failing(exception_type="x", message_type="exception")
    assert type(wire.failure(text("a"), ends(), late)[0]) is ProviderError


# What is not finished


@pytest.mark.parametrize("end", [[ends("max_tokens")], [ends("max_tokens"), METADATA]], ids=["a clean end", "metadata"])
def test_a_call_cut_by_max_tokens_is_not_closed(end: list[Event], wire: Wire) -> None:
    error, so_far = wire.failure(start(0, "a"), stop(0), start(1, "b", "g"), args(1, '{"x":'), *end)
    assert isinstance(error, UnclosedToolCall)
    assert (error.index, error.id, error.name, error.args_text) == (1, "b", "g", '{"x":')
    assert ([call.id for call in so_far.tool_calls], so_far.finish) == (["a"], Finish("length", "max_tokens"))


def test_a_closed_call_whose_arguments_are_cut_is_malformed(wire: Wire) -> None:
    error, so_far = wire.failure(start(0), args(0, '{"x":'), stop(0), start(1), stop(1), ends("max_tokens"), METADATA)
    assert isinstance(error, MalformedToolArguments)
    assert (error.index, error.args_text) == (0, '{"x":')
    assert ([call.index for call in so_far.tool_calls], so_far.finish) == ([1], Finish("length", "max_tokens"))


# What is not the dialect


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(("contentBlockDelta", b"{"), id="no JSON"),
        pytest.param(("contentBlockDelta", b""), id="an empty payload"),
        pytest.param(("metadata", []), id="a list"),
        pytest.param(text(5), id="text that is a number"),
        pytest.param(delta(0, reasoningContent=5), id="reasoning that is a number"),
        pytest.param(delta(0, toolUse={}), id="no arguments"),
        pytest.param(args(1, {}), id="arguments that are an object"),
        pytest.param(args(8, "{}"), id="arguments of no call"),
        pytest.param(args(None, "{}"), id="arguments without an index"),
        pytest.param(start(9, name=None), id="a call without a name"),
        pytest.param(start(9, id=5), id="an id that is a number"),
        pytest.param(start("1"), id="an index that is a string"),
        pytest.param(start(-1), id="an index below nought"),
        pytest.param(start(1), id="a second start"),
        pytest.param(stop(None), id="an end without an index"),
        pytest.param(ends(None), id="no reason"),
        pytest.param(("metadata", {"usage": 5}), id="usage that is a number"),
    ],
)
def test_anything_else_is_malformed(broken: Event, wire: Wire) -> None:
    error, so_far = wire.failure(text("a"), start(1), broken, ends(), METADATA)
    assert type(error) is MalformedPayload
    assert (so_far.text, "event 3" in str(error)) == ("a", True)


@pytest.mark.parametrize(
    "events",
    [
        [("contentBlockDelta", b'{"contentBlockIndex":0,"delta":{"text":"\xff"}}')],
        [
            start(1),
            ("contentBlockDelta", b'{"contentBlockIndex":1,"delta":{"toolUse":{"input":"{\\"x\\":\\"\xff\\"}"}}}'),
        ],
    ],
    ids=["text", "arguments"],
)
def test_a_payload_that_is_no_utf_8_is_not_mended(events: list[Event], wire: Wire) -> None:
    error, so_far = wire.failure(*events, stop(1), ends(), METADATA)
    assert (so_far.text, so_far.tool_calls, type(error) is not TruncatedStream) == ("", (), True)


@pytest.mark.parametrize("at", [2, 9, 20, -6, -1], ids=["length", "prelude", "headers", "payload", "checksum"])
def test_a_flipped_bit_is_malformed(at: int, wire: Wire) -> None:
    damaged = bytearray(wire.stream(text("a")))
    damaged[at] ^= 1
    error, so_far = wire.failure(text("b"), bytes(damaged), ends(), METADATA)
    assert (type(error), so_far.text, error.retry_safe) == (MalformedPayload, "b", False)


def test_a_stream_that_ends_inside_a_frame_is_truncated(wire: Wire) -> None:
    for cut in range(1, len(wire.stream(METADATA))):
        error, so_far = wire.failure(text("a"), ends(), wire.stream(METADATA)[:cut])
        assert (type(error), so_far.text) == (TruncatedStream, "a")


@pytest.mark.parametrize(
    "event",
    [
        ("odd", b'{"x":%s}'),
        ("contentBlockDelta", b'{"contentBlockIndex":0,"delta":{"text":%s}}'),
        ("contentBlockDelta", b'{"contentBlockIndex":0,"delta":{"citation":%s}}'),
        ("metadata", b'{"usage":{"x":%s}}'),
    ],
    ids=str,
)
@pytest.mark.parametrize("extras", [False, True])
def test_deep_nesting_is_never_another_exception(event: tuple[str, bytes], extras: bool, wire: Wire) -> None:
    assembler = StreamAssembler("bedrock-converse", extras=extras)
    kind, payload = event
    with pytest.raises(StreamError):
        _ = assembler.feed(wire.stream((kind, payload % (b"[" * 1000 + b"]" * 1000)))), assembler.result()
