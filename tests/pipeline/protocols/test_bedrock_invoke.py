"""Amazon Bedrock's InvokeModelWithResponseStream: Anthropic's events, in base64, in frames."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest

from rillet.operators import Delta, Done, Finish, Message, ProviderEvent, TextDelta, ToolCall, Usage
from rillet.operators.errors import (
    MalformedPayload,
    ProviderError,
    StreamError,
    TruncatedStream,
    UnclosedToolCall,
)
from rillet.pipeline import StreamAssembler

Event = dict[str, Any] | bytes
Check = Callable[..., None]
BIG = 123456789012345678901234567890


class Wire:
    """Streams of frames, and what comes of them; bytes stand as they are."""

    def __init__(self, frame: Callable[..., bytes]) -> None:
        self.frame = frame

    def stream(self, *events: Event) -> bytes:
        return b"".join(event if isinstance(event, bytes) else self.chunk(dumped(event)) for event in events)

    def chunk(self, data: bytes, kind: str = "chunk") -> bytes:
        return self.payload(dumped({"bytes": base64.b64encode(data).decode(), "p": "abc"}), kind)

    def payload(self, payload: bytes, kind: str = "chunk") -> bytes:
        return self.frame(payload, event_type=kind, content_type="application/json", message_type="event")

    def decoded(self, *events: Event, extras: bool = False) -> list[Delta]:
        return StreamAssembler("bedrock-invoke", extras=extras).feed(self.stream(*events))

    def message(self, *events: Event) -> Message:
        assembler = StreamAssembler("bedrock-invoke")
        _ = assembler.feed(self.stream(*events)), assembler.result()
        return assembler.message

    def failure(self, *events: Event) -> tuple[StreamError, Message]:
        assembler = StreamAssembler("bedrock-invoke")
        with pytest.raises(StreamError) as caught:
            _ = assembler.feed(self.stream(*events)), assembler.result()
        return caught.value, assembler.message


@pytest.fixture(scope="module")
def wire(frame: Callable[..., bytes]) -> Wire:
    return Wire(frame)


def dumped(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def block(index: int, kind: str, **more: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": {"type": kind, **more}}


def delta(index: int, kind: str, **more: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **more}}


def text(piece: Any) -> dict[str, Any]:
    return delta(1, "text_delta", text=piece)


def args(index: int, piece: str) -> dict[str, Any]:
    return delta(index, "input_json_delta", partial_json=piece)


def stop(index: int) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


def ends(reason: str = "end_turn", **usage: int) -> dict[str, Any]:
    return {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage}


STOP = {"type": "message_stop", "amazon-bedrock-invocationMetrics": {"inputTokenCount": 25, "outputTokenCount": 40}}
FULL: list[Any] = [
    {"type": "message_start", "message": {"id": "msg_bdrk_1", "usage": {"input_tokens": 25, "output_tokens": 1}}},
    block(0, "thinking", thinking="", signature=""),
    delta(0, "thinking_delta", thinking="Let me see…"),
    delta(0, "signature_delta", signature="c2ln"),
    stop(0),
    block(1, "text", text=""),
    text("Caf"),
    text("é ☕ 🎈"),
    stop(1),
    block(2, "tool_use", id="toolu_bdrk_1", name="weather", input={}),
    args(2, ""),
    args(2, '{"city":"Zürich 雪"'),
    block(3, "tool_use", id="toolu_bdrk_2", name="now", input={}),
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
        ToolCall(2, "toolu_bdrk_1", "weather", {"city": "Zürich 雪", "n": BIG}, f'{{"city":"Zürich 雪","n":{BIG}}}'),
        ToolCall(3, "toolu_bdrk_2", "now", {}, ""),
    ),
    finish=Finish("tool_calls", "tool_use"),
    usage=Usage(25, 40, None, {"input_tokens": 25, "output_tokens": 40}),
)


def test_however_it_is_cut(wire: Wire, check_cuts: Check) -> None:
    check_cuts("bedrock-invoke", wire.stream(*FULL), EXPECTED)


def test_no_prefix_gives_another_answer(wire: Wire, check_prefixes: Check) -> None:
    check_prefixes("bedrock-invoke", wire.stream(*FULL), EXPECTED)


def test_one_bad_value_is_an_error_or_changes_no_arguments(wire: Wire, check_bad_shapes: Check) -> None:
    check_bad_shapes("bedrock-invoke", wire.stream, FULL, "partial_json", "input")


@pytest.mark.parametrize("bad", [None, "", 0, True, [], {}, "x", "é", "eyJ9", "////", "A", "AA=", "  "])
def test_a_bad_hull_is_an_error_or_says_nothing(bad: Any, wire: Wire) -> None:
    hull = wire.payload(dumped({"bytes": bad}))
    assembler = StreamAssembler("bedrock-invoke")
    try:
        assembler.feed(wire.stream(text("a"), hull, text("b"), ends(), STOP))
    except StreamError as error:
        assert (type(error), assembler.message.text) == (MalformedPayload, "a")
    else:
        assert (bad, assembler.message.text) == ("", "ab")


@pytest.mark.parametrize(
    "broken", [b"{}", b"", b"[]", b"{", b'{"bytes":"\xff"}'], ids=["no bytes", "empty", "a list", "no JSON", "no UTF-8"]
)
def test_a_payload_without_bytes_is_malformed(broken: bytes, wire: Wire) -> None:
    error, so_far = wire.failure(text("a"), wire.payload(broken), ends(), STOP)
    assert (type(error), so_far.text) == (MalformedPayload, "a")


@pytest.mark.parametrize("inner", [b"{", b"[]", b"\xff", b"{}"], ids=["no JSON", "a list", "no UTF-8", "no type"])
def test_bytes_that_are_no_event_are_malformed(inner: bytes, wire: Wire) -> None:
    error, so_far = wire.failure(text("a"), wire.chunk(inner), ends(), STOP)
    assert (type(error), so_far.text) == (MalformedPayload, "a")


def test_frames_of_another_type_say_nothing(wire: Wire) -> None:
    odd = wire.chunk(dumped(text("x")), kind="odd")
    assert wire.decoded(text("a"), odd, text("b"), extras=True) == [TextDelta("a"), TextDelta("b")]


def test_the_model_decides_what_is_extra(wire: Wire) -> None:
    signature = delta(0, "signature_delta", signature="s")
    assert wire.decoded(signature, extras=True) == [ProviderEvent("signature_delta", signature)]


def test_after_message_stop_nothing_counts(wire: Wire) -> None:
    assert wire.decoded(text("a"), STOP, text("b")) == [TextDelta("a"), Done()]
    assert wire.message(text("a"), ends(), STOP, text("b"), b"garbage" * 9).text == "a"


@pytest.mark.parametrize("events", [[], FULL[:1], FULL[:-1]], ids=["nothing", "a start", "all but the stop"])
def test_without_message_stop_it_is_truncated(events: list[Event], wire: Wire) -> None:
    assert type(wire.failure(*events)[0]) is TruncatedStream


def test_a_call_cut_by_max_tokens_is_not_closed(wire: Wire) -> None:
    error, so_far = wire.failure(*FULL[:-3], ends("max_tokens"), STOP)
    assert isinstance(error, UnclosedToolCall)
    assert (error.index, error.id, error.name) == (2, "toolu_bdrk_1", "weather")
    assert ([call.index for call in so_far.tool_calls], so_far.finish) == ([3], Finish("length", "max_tokens"))


@pytest.mark.parametrize("before", [[], [text("a")]], ids=["first", "after text"])
def test_a_frame_that_reports_an_exception_is_an_error(before: list[Event], wire: Wire) -> None:
    exception = wire.frame(b'{"message":"busy"}', exception_type="throttlingException", message_type="exception")
    error, so_far = wire.failure(*before, exception, ends(), STOP)
    assert isinstance(error, ProviderError)
    assert (error.type, error.message) == ("throttlingException", "busy")
    assert (error.retry_safe, so_far.text) == (not before, "a" * len(before))


@pytest.mark.parametrize("before", [[], [text("a")]], ids=["first", "after text"])
def test_an_error_of_the_model_is_an_error(before: list[Event], wire: Wire) -> None:
    reported = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    error, so_far = wire.failure(*before, reported, ends(), STOP)
    assert isinstance(error, ProviderError)
    assert (error.type, error.message) == ("overloaded_error", "Overloaded")
    assert (error.retry_safe, so_far.text) == (not before, "a" * len(before))


@pytest.mark.parametrize("at", [2, 9, 20, -6, -1], ids=["length", "prelude", "headers", "payload", "checksum"])
def test_a_flipped_bit_is_malformed(at: int, wire: Wire) -> None:
    damaged = bytearray(wire.stream(text("a")))
    damaged[at] ^= 1
    error, so_far = wire.failure(text("b"), bytes(damaged), ends(), STOP)
    assert (type(error), so_far.text) == (MalformedPayload, "b")


def test_a_stream_that_ends_inside_a_frame_is_truncated(wire: Wire) -> None:
    last = wire.stream(STOP)
    for cut in range(1, len(last)):
        error, so_far = wire.failure(text("a"), ends(), last[:cut])
        assert (type(error), so_far.text) == (TruncatedStream, "a")
