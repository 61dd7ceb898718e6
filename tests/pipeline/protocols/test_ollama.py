"""Ollama's own API, a JSON object a line."""

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
    ReasoningDelta,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    Usage,
)
from rillet.operators.errors import (
    LimitExceeded,
    MalformedPayload,
    MalformedToolArguments,
    ProviderError,
    StreamError,
    TruncatedStream,
)
from rillet.pipeline import Limits, StreamAssembler

Line = dict[str, Any] | str
Check = Callable[..., None]
BIG = 123456789012345678901234567890


def stream(*lines: Line) -> bytes:
    """Each object on a line of its own; a string as it stands."""
    texts = (line if isinstance(line, str) else json.dumps(line, ensure_ascii=False) for line in lines)
    return "".join(f"{text}\n" for text in texts).encode()


def decoded(*lines: Line, extras: bool = False) -> list[Delta]:
    return StreamAssembler("ollama", extras=extras).feed(stream(*lines))


def message(*lines: Line) -> Message:
    assembler = StreamAssembler("ollama")
    _ = assembler.feed(stream(*lines)), assembler.result()
    return assembler.message


def failure(*lines: Line) -> tuple[StreamError, Message]:
    assembler = StreamAssembler("ollama")
    with pytest.raises(StreamError) as caught:
        _ = assembler.feed(stream(*lines)), assembler.result()
    return caught.value, assembler.message


def says(text: Any = "", **more: Any) -> dict[str, Any]:
    return {"model": "m", "message": {"role": "assistant", "content": text, **more}, "done": False}


def call(arguments: Any = None, name: Any = "f", **entry: Any) -> dict[str, Any]:
    return {"function": {"name": name, "arguments": {} if arguments is None else arguments}, **entry}


def calls(*entries: Any) -> dict[str, Any]:
    return says(tool_calls=list(entries))


def ends(reason: Any = "stop", **more: Any) -> dict[str, Any]:
    return {"model": "m", "message": {"role": "assistant", "content": ""}, "done": True, "done_reason": reason, **more}


COUNTS = {"total_duration": 7, "prompt_eval_count": 9, "eval_count": 5}
FULL: list[Any] = [
    says(thinking="Let me "),
    says(thinking="see…"),
    says("Caf"),
    says("é ☕ 🎈"),
    calls(call({"city": "Zürich 雪", "n": BIG}, "weather", id="call_1")),
    calls({"id": "call_2", "function": {"index": 1, "name": "now", "arguments": {}}}),
    ends(**COUNTS),
]
EXPECTED = Message(
    "Café ☕ 🎈",
    "Let me see…",
    tool_calls=(
        ToolCall(0, "call_1", "weather", {"city": "Zürich 雪", "n": BIG}, f'{{"city":"Zürich 雪","n":{BIG}}}'),
        ToolCall(1, "call_2", "now", {}, "{}"),
    ),
    finish=Finish("tool_calls", "stop"),
    usage=Usage(9, 5, None, COUNTS),
)


def test_however_it_is_cut(check_cuts: Check) -> None:
    check_cuts("ollama", stream(*FULL), EXPECTED)


def test_no_prefix_gives_another_answer(check_prefixes: Check) -> None:
    check_prefixes("ollama", stream(*FULL), EXPECTED)


def test_one_bad_value_is_an_error_or_changes_no_arguments(check_bad_shapes: Check) -> None:
    check_bad_shapes("ollama", stream, FULL, "arguments")


@pytest.mark.parametrize("end", ["\r\n", "\n\n", "\n \n", "\r"], ids=repr)
def test_lines_may_end_in_other_ways(end: str) -> None:
    assembler = StreamAssembler("ollama")
    assembler.feed(stream(*FULL).replace(b"\n", end.encode()))
    assert (assembler.result()[0], assembler.message) == (EXPECTED.text, EXPECTED)


# Texts and calls


def test_each_line_gives_its_deltas() -> None:
    assert decoded(says("a", thinking="hm"), calls(call({"x": "é"})), ends()) == [
        ReasoningDelta("hm"),
        TextDelta("a"),
        ToolCallStart(0, "", "f"),
        ToolCallDelta(0, '{"x":"é"}'),
        ToolCallEnd(0),
        ToolCall(0, "", "f", {"x": "é"}, '{"x":"é"}'),
        Finish("tool_calls", "stop"),
        Done(),
    ]


def test_generate_says_it_without_a_message() -> None:
    lines: list[Line] = [{"thinking": "hm", "response": ""}, {"response": "a"}, {"response": "b", "done": True}]
    assert message(*lines) == Message("ab", "hm", finish=Finish("stop", "stop"))


def test_the_last_line_may_hold_text_and_calls() -> None:
    last = {**calls(call()), "done": True, "done_reason": "stop"}
    last["message"]["content"] = "a"
    assert (message(last).text, len(message(last).tool_calls)) == ("a", 1)


@pytest.mark.parametrize(
    "entries",
    [
        pytest.param([call(), call()], id="neither ids nor indexes"),
        pytest.param([call(index=0), call(index=0)], id="the same index"),
        pytest.param([call(), call(index=5)], id="an index left out"),
        pytest.param([call(id="c"), call(id="c")], id="the same id"),
    ],
)
def test_calls_are_numbered_as_they_come(entries: list[Any]) -> None:
    for lines in ([calls(*entries)], [calls(entry) for entry in entries]):
        found = message(*lines, ends()).tool_calls
        assert [(call.index, call.id) for call in found] == [(n, e.get("id", "")) for n, e in enumerate(entries)]


def test_one_call_may_stand_without_a_list() -> None:
    assert len(message(says(tool_calls=call()), ends()).tool_calls) == 1


@pytest.mark.parametrize(
    ("arguments", "args"), [({}, {}), ("", {}), ('{"x":1}', {"x": 1}), ({"x": {"y": [BIG]}}, {"x": {"y": [BIG]}})]
)
def test_arguments_are_an_object_or_its_text(arguments: Any, args: dict[str, Any]) -> None:
    assert [call.args for call in message(calls(call(arguments)), ends()).tool_calls] == [args]


@pytest.mark.parametrize(
    "line", [{}, says(), says(None), says(tool_calls=[]), says(tool_calls=None), {"message": None}, "", "  "], ids=str
)
@pytest.mark.parametrize("extras", [False, True])
def test_nothing_comes_of_what_says_nothing(line: Line, extras: bool) -> None:
    assert decoded(says("a"), line, says("b"), extras=extras) == [TextDelta("a"), TextDelta("b")]


# How it ends


@pytest.mark.parametrize(
    ("raw", "reason"), [("stop", "stop"), ("length", "length"), ("load", "other"), ("unload", "other")]
)
def test_every_reason_in_one_vocabulary(raw: str, reason: Any) -> None:
    assert message(says("a"), ends(raw)) == Message("a", finish=Finish(reason, raw))


@pytest.mark.parametrize("reason", [None, ""])
def test_an_end_without_a_reason_is_a_stop(reason: Any) -> None:
    assert message(says("a"), ends(reason)).finish == Finish("stop", "stop")


@pytest.mark.parametrize(("raw", "reason"), [("stop", "tool_calls"), ("length", "length")])
def test_stop_after_calls_means_the_calls(raw: str, reason: Any) -> None:
    assert message(calls(call()), ends(raw)).finish == Finish(reason, raw)


def test_usage_holds_the_counts_alone() -> None:
    assert message(ends(**COUNTS, context=[1, 2])).usage == Usage(9, 5, None, COUNTS)
    assert message(ends(total_duration=7)).usage is None


@pytest.mark.parametrize("late", [says("b"), {"error": "x"}, "{", ends()], ids=str)
def test_after_the_end_nothing_counts(late: Line) -> None:
    assert message(says("a"), ends(), late).text == "a"


def test_the_last_line_counts_although_nothing_ends_it() -> None:
    assembler = StreamAssembler("ollama")
    assembler.feed(stream(*FULL)[:-1])
    assembler.result()
    assert assembler.message == EXPECTED


@pytest.mark.parametrize(
    "lines", [[], [says("a")], [calls(call())], [{**ends(), "done": "true"}], [{**ends(), "done": 1}]], ids=str
)
def test_without_its_end_it_is_truncated(lines: list[Line]) -> None:
    assert type(failure(*lines)[0]) is TruncatedStream


# Errors


@pytest.mark.parametrize(
    ("line", "facts"),
    [
        pytest.param({"error": "busy"}, ("busy", None), id="a string"),
        pytest.param({"error": {"message": "busy", "code": 503}}, ("busy", 503), id="an object"),
        pytest.param({"error": "busy", "status_code": 503}, ("busy", 503), id="with its status"),
        pytest.param({**ends(), "error": "busy"}, ("busy", None), id="in the last line"),
    ],
)
@pytest.mark.parametrize("before", [[], [says("a")]], ids=["first", "after text"])
@pytest.mark.parametrize("end", [b"\n", b""], ids=["ended", "not ended"])
def test_an_error_is_an_error(line: Line, facts: tuple[Any, ...], before: list[Line], end: bytes) -> None:
    assembler = StreamAssembler("ollama")
    with pytest.raises(ProviderError) as caught:
        _ = assembler.feed(stream(*before, line)[:-1] + end), assembler.result()
    error = caught.value
    assert (error.message, error.status) == facts
    assert (error.retry_safe, assembler.message.text) == (not before, "a" * len(before))


# What is not finished, and what is not the dialect


def test_arguments_that_are_no_object_are_malformed_and_the_other_calls_stay() -> None:
    error, so_far = failure(calls(call('{"x":'), call(name="g")), ends("length"))
    assert isinstance(error, MalformedToolArguments)
    assert (error.index, error.name, error.args_text) == (0, "f", '{"x":')
    assert ([call.name for call in so_far.tool_calls], so_far.finish) == (["g"], Finish("length", "length"))


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        "null",
        '"text"',
        "<html>",
        "data: {}",
        {"message": "a"},
        says(5),
        says(thinking=5),
        {"response": 5},
        says(tool_calls="x"),
        says(tool_calls=["x"]),
        says(tool_calls=[{}]),
        says(tool_calls=[{"function": {"name": "f"}}]),
        calls(call(name=None)),
        calls(call(name="")),
        calls(call(id=5)),
        calls(call(5)),
        calls(call([])),
        ends(5),
        '{"message":{"tool_calls":[{"function":{"name":"f","arguments":{"n":' + "9" * 5_000 + "}}}]}}",
        '{"message":{"content":"\\ud800"}}',
        '{"x":NaN}',
    ],
    ids=lambda line: str(line)[:60],
)
def test_anything_else_is_malformed(line: Line) -> None:
    error, so_far = failure(says("a"), line, ends())
    assert type(error) is MalformedPayload
    assert (so_far.text, so_far.tool_calls, "event 2" in str(error)) == ("a", (), True)


@pytest.mark.parametrize(
    "place",
    [
        '{"error":%s}',
        '{"error":{"message":%s}}',
        '{"message":{"content":%s}}',
        '{"message":{"tool_calls":[{"function":{"name":"f","arguments":{"x":%s}}}]}}',
    ],
)
def test_deep_nesting_is_never_another_exception(place: str) -> None:
    assert isinstance(failure(place % ("[" * 1000 + "]" * 1000))[0], StreamError)


def test_lines_and_arguments_are_bounded() -> None:
    for limits in (Limits(max_line=99), Limits(max_args=99), Limits(max_bytes=99)):
        with pytest.raises(LimitExceeded):
            StreamAssembler("ollama", limits=limits).feed(stream(calls(call({"x": "y" * 99}))))
