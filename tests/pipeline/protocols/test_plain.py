from __future__ import annotations

import json
from typing import Any

import pytest

from rillet.operators import (
    Delta,
    Done,
    Message,
    ProviderEvent,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
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

DONE = "[DONE]"


def stream(*events: dict[str, Any] | str) -> bytes:
    datas = (event if isinstance(event, str) else json.dumps(event) for event in events)
    return "".join(f"data: {data}\n\n" for data in datas).encode()


def text(delta: Any) -> dict[str, Any]:
    return {"type": "text", "delta": delta}


def start(index: Any, name: Any = "f", **more: Any) -> dict[str, Any]:
    return {"type": "tool_call_start", "index": index, "name": name, "id": f"c{index}"} | more


def args(index: Any, fragment: Any) -> dict[str, Any]:
    return {"type": "tool_call_delta", "index": index, "args": fragment}


def end(index: Any) -> dict[str, Any]:
    return {"type": "tool_call_end", "index": index}


def decoded(*events: dict[str, Any] | str, extras: bool = False) -> list[Delta]:
    return StreamAssembler("plain", extras=extras).feed(stream(*events))


def failure(*events: dict[str, Any] | str) -> tuple[StreamError, Message]:
    assembler = StreamAssembler("plain")
    with pytest.raises(StreamError) as caught:
        _ = assembler.feed(stream(*events)), assembler.result()
    return caught.value, assembler.message


def test_each_type_gives_its_delta() -> None:
    assert decoded(text("a"), start(0), args(0, "{}"), end(0), DONE) == [
        TextDelta("a"),
        ToolCallStart(0, "c0", "f"),
        ToolCallDelta(0, "{}"),
        ToolCallEnd(0),
        ToolCall(0, "c0", "f", {}, "{}"),
        Done(),
    ]


@pytest.mark.parametrize("empty", [text(""), text(None), "", "  ", {"type": "odd"}, {"no": "type"}, {}])
def test_nothing_comes_of_nothing(empty: dict[str, Any] | str) -> None:
    assert decoded(text("a"), empty, text("b")) == [TextDelta("a"), TextDelta("b")]


def test_an_empty_fragment_is_no_delta() -> None:
    assert decoded(start(0), args(0, ""), args(0, None), end(0)) == [
        ToolCallStart(0, "c0", "f"),
        ToolCallEnd(0),
        ToolCall(0, "c0", "f", {}, ""),
    ]


@pytest.mark.parametrize("index", [0, 7, 2**40])
def test_indexes_need_not_start_at_nought_nor_follow_each_other(index: int) -> None:
    assert decoded(start(index), end(index))[-1] == ToolCall(index, f"c{index}", "f", {}, "")


def test_a_call_may_be_without_an_id() -> None:
    assert decoded(start(0, id=None)) == [ToolCallStart(0, "", "f")]


def test_an_index_may_be_used_again_after_its_end() -> None:
    calls = [delta for delta in decoded(start(0), end(0), start(0, "g"), end(0)) if type(delta) is ToolCall]
    assert [call.name for call in calls] == ["f", "g"]


@pytest.mark.parametrize("done", ["[DONE]", " [DONE] ", "[DONE]\t"])
def test_done_is_done_however_it_is_padded(done: str) -> None:
    assert decoded(text("a"), done, text("late"), DONE) == [TextDelta("a"), Done()]


def test_no_type_of_event_makes_an_end() -> None:
    for almost in ("[done]", "[DONE", "DONE"):
        assert type(failure(text("a"), almost)[0]) is MalformedPayload
    assert type(failure(text("a"), {"type": "[DONE]"})[0]) is TruncatedStream


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param("{", id="no JSON"),
        pytest.param("[]", id="a list"),
        pytest.param("null", id="null"),
        pytest.param('"text"', id="a string"),
        pytest.param({"type": "text"}, id="text without a delta"),
        pytest.param(text(5), id="text that is a number"),
        pytest.param({"type": "tool_call_start", "index": 0}, id="a call without a name"),
        pytest.param(start(0, 5), id="a name that is a number"),
        pytest.param(start(0, id=5), id="an id that is a number"),
        pytest.param({"type": "tool_call_start", "name": "f"}, id="a call without an index"),
        pytest.param(start("0"), id="an index that is a string"),
        pytest.param(start(True), id="an index that is a boolean"),
        pytest.param(start(0.5), id="an index that is a fraction"),
        pytest.param(start(9), id="a second start"),
        pytest.param(args(1, "{}"), id="a fragment of a call that is not open"),
        pytest.param(end(1), id="an end of a call that is not open"),
        pytest.param(args(9, {}), id="a fragment that is an object"),
        pytest.param({"type": "tool_call_delta", "index": 9}, id="a fragment without args"),
        pytest.param({"type": "tool_call_end"}, id="an end without an index"),
    ],
)
def test_anything_else_is_malformed(broken: dict[str, Any] | str) -> None:
    error, message = failure(text("a"), start(9), broken)
    assert type(error) is MalformedPayload
    assert (message.text, error.raw) == ("a", broken if isinstance(broken, str) else json.dumps(broken))
    assert "event 3" in str(error)


@pytest.mark.parametrize(
    ("reported", "message", "code", "status"),
    [
        ({"message": "busy"}, "busy", None, None),
        ({"error": "busy"}, "busy", None, None),
        ({"error": {"message": "busy", "code": 503}}, "busy", 503, 503),
        ({"error": {"code": "overloaded"}, "status_code": 529}, "", "overloaded", 529),
        ({"error": {"message": {"de": "voll"}}}, "{'de': 'voll'}", None, None),
        ({}, "", None, None),
    ],
)
def test_a_reported_error_is_passed_on(reported: dict[str, Any], message: str, code: Any, status: int | None) -> None:
    error, so_far = failure(text("a"), {"type": "error"} | reported, DONE)
    assert type(error) is ProviderError
    assert (error.message, error.code, error.status, so_far.text) == (message, code, status, "a")


@pytest.mark.parametrize(
    ("events", "kind"),
    [
        ([], TruncatedStream),
        ([text("a")], TruncatedStream),
        ([start(0), end(0)], TruncatedStream),
        ([start(0), DONE], UnclosedToolCall),
        ([start(0), args(0, "{}"), DONE], UnclosedToolCall),
        ([start(0), args(0, "{"), end(0), DONE], MalformedToolArguments),
    ],
)
def test_nothing_unfinished_looks_finished(events: list[dict[str, Any] | str], kind: type[StreamError]) -> None:
    assert type(failure(*events)[0]) is kind


def test_extras_show_unknown_events() -> None:
    assert decoded({"type": "odd", "x": [1]}, {}, extras=True) == [
        ProviderEvent("odd", {"type": "odd", "x": [1]}),
        ProviderEvent("None", {}),
    ]


DEEP = "[" * 1000 + "]" * 1000


@pytest.mark.parametrize(
    "event",
    [
        f'{{"type":"text","delta":{DEEP}}}',
        f'{{"type":{DEEP}}}',
        f'{{"type":"error","error":{{"message":{DEEP}}}}}',
        f'{{"type":"error","error":{DEEP}}}',
    ],
)
def test_deep_nesting_is_never_another_exception(event: str) -> None:
    assert isinstance(failure(event)[0], StreamError)
    with pytest.raises(StreamError):
        StreamAssembler("plain", extras=True).feed(stream(event, "{"))
