"""Chat Completions as real servers speak them: every accent in a stream of its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from rillet.operators import (
    Delta,
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
    LimitExceeded,
    MalformedPayload,
    MalformedToolArguments,
    ProviderError,
    StreamError,
    TruncatedStream,
    UnclosedToolCall,
)
from rillet.pipeline import Limits, StreamAssembler

Event = dict[str, Any] | str
Cuts = Callable[[bytes], Iterator[list[bytes]]]
DONE = "data: [DONE]"
BIG = 123456789012345678901234567890


def chunk(delta: Any = None, *, n: int = 0, finish: Any = None, **more: Any) -> dict[str, Any]:
    """One event with one choice; `more` goes beside `choices`."""
    return {"choices": [{"index": n, "delta": {} if delta is None else delta, "finish_reason": finish}], **more}


def says(text: Any, **more: Any) -> dict[str, Any]:
    return chunk({"content": text}, **more)


def call(id: Any = None, name: Any = None, args: Any = None, *, finish: Any = None, n: int = 0, **entry: Any) -> Any:
    """One event with one entry of `tool_calls`, holding what is given."""
    function = {key: value for key, value in (("name", name), ("arguments", args)) if value is not None}
    return chunk(
        {"tool_calls": [({"id": id} if id is not None else {}) | entry | {"function": function}]}, n=n, finish=finish
    )


def ends(reason: Any = "stop", **more: Any) -> dict[str, Any]:
    return chunk(finish=reason, **more)


CALLED = ends("tool_calls")
ROLE = chunk({"role": "assistant", "content": None})
USED = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}


def stream(*events: Event) -> bytes:
    """Each event as data; a string as it stands."""
    blocks = (event if isinstance(event, str) else f"data: {json.dumps(event, ensure_ascii=False)}" for event in events)
    return "".join(f"{block}\n\n" for block in blocks).encode()


def messages(*events: Event) -> tuple[Message, ...]:
    assembler = StreamAssembler("openai-chat")
    assembler.feed(stream(*events))
    assembler.result()
    return assembler.messages


def message(*events: Event) -> Message:
    (only,) = messages(*events)
    return only


def decoded(*events: Event, extras: bool = False) -> list[Delta]:
    return StreamAssembler("openai-chat", extras=extras).feed(stream(*events))


def failure(*events: Event) -> tuple[StreamError, Message]:
    assembler = StreamAssembler("openai-chat")
    with pytest.raises(StreamError) as caught:
        _ = assembler.feed(stream(*events)), assembler.result()
    return caught.value, assembler.message


class Answer(NamedTuple):
    """A complete stream, and what it gives: its text, and its calls as (index, id, name, args)."""

    events: list[Event]
    text: str = ""
    calls: list[tuple[int, str, str, dict[str, Any]]] = []  # noqa: RUF012


def result_of(assembler: StreamAssembler) -> tuple[str, list[tuple[int, str, str, dict[str, Any]]]]:
    text, calls = assembler.result()
    return text, [(call.index, call.id, call.name, call.args) for call in calls]


PARIS = {"city": "Paris"}
ANSWERS = {
    # text
    "text": Answer([ROLE, says(""), says("Caf"), says("é ☕"), ends(), DONE], "Café ☕"),
    "text in the finish event": Answer([says("a"), chunk({"content": "b"}, finish="stop"), DONE], "ab"),
    "text as a list of parts": Answer([says([{"type": "text", "text": "a"}, "b", {"text": "c"}]), ends(), DONE], "abc"),
    "text without an index": Answer([{"choices": [{"delta": {"content": "a"}}]}, ends(), DONE], "a"),
    "text after calls": Answer([call("c", "f", "{}", index=0), says("a"), CALLED, DONE], "a", [(0, "c", "f", {})]),
    "a message beside the delta": Answer(
        [
            {"choices": [{"index": 0, "delta": {"content": "a"}, "message": {"content": "a"}}]},
            {
                "choices": [
                    {"index": 0, "delta": {"content": "b"}, "message": {"content": "ab"}, "finish_reason": "stop"}
                ]
            },
        ],
        "ab",
    ),
    "a message and no delta": Answer(
        [{"choices": [{"index": 0, "message": {"content": "a"}, "finish_reason": "stop"}]}, DONE], "a"
    ),
    "a message at the end only repeats": Answer(
        [ROLE, says("a"), {"choices": [{"index": 0, "message": {"content": "a"}, "finish_reason": "stop"}]}, DONE], "a"
    ),
    # choices
    "choices empty first": Answer([{"choices": [], "prompt_filter_results": []}, says("a"), ends(), DONE], "a"),
    "choices absent": Answer([{"id": "x"}, {}, says("a"), {"choices": None}, ends(), DONE], "a"),
    "a choice without a delta": Answer(
        [says("a"), {"choices": [{"index": 0, "content_filter_results": {}, "finish_reason": None}]}, ends(), DONE], "a"
    ),
    "a choice whose delta is null": Answer([says("a"), {"choices": [{"index": 0, "delta": None}]}, ends(), DONE], "a"),
    # how a call begins
    "a call as OpenAI tells it": Answer(
        [
            ROLE,
            call("c", "f", "", index=0),
            *(call(args=part, index=0) for part in ('{"city"', ':"Pa', 'ris"}')),
            CALLED,
            DONE,
        ],
        calls=[(0, "c", "f", PARIS)],
    ),
    "two calls, one after the other": Answer(
        [
            call("c", "f", "", index=0),
            call(args="{}", index=0),
            call("d", "g", "", index=1),
            call(args='{"x":1}', index=1),
            CALLED,
            DONE,
        ],
        calls=[(0, "c", "f", {}), (1, "d", "g", {"x": 1})],
    ),
    "two calls, interleaved": Answer(
        [
            call("c", "f", '{"x"', index=0),
            call("d", "g", '{"y"', index=1),
            call(args=":1}", index=0),
            call(args=":2}", index=1),
            CALLED,
            DONE,
        ],
        calls=[(0, "c", "f", {"x": 1}), (1, "d", "g", {"y": 2})],
    ),
    "arguments in the head": Answer(
        [call("c", "f", '{"', index=0), call(args='x":1}', index=0), CALLED, DONE], calls=[(0, "c", "f", {"x": 1})]
    ),
    "arguments whole": Answer([call("c", "f", '{"x":1}', index=0), CALLED, DONE], calls=[(0, "c", "f", {"x": 1})]),
    "empty pieces after whole arguments": Answer(
        [call("c", "f", "{}", index=0), call(args="", index=0), call(args=" \n", index=0), CALLED, DONE],
        calls=[(0, "c", "f", {})],
    ),
    "everything null around a fragment": Answer(
        [
            call("c", "f", "", index=0),
            chunk(
                {
                    "role": None,
                    "tool_calls": [
                        {"index": 0, "id": None, "type": None, "function": {"name": None, "arguments": "{}"}}
                    ],
                }
            ),
            chunk({"tool_calls": [{"index": 0, "function": {"arguments": None}}]}),
            chunk({"tool_calls": [{"index": 0}]}),
            CALLED,
            DONE,
        ],
        calls=[(0, "c", "f", {})],
    ),
    "tool_calls null beside text": Answer(
        [chunk({"content": "a", "tool_calls": None, "refusal": ""}), ends(), DONE], "a"
    ),
    # its index
    "index missing, two calls in one event": Answer(
        [
            chunk(
                {
                    "tool_calls": [
                        {"id": "c", "function": {"name": "f", "arguments": '{"x":1}'}},
                        {"id": "d", "function": {"name": "g", "arguments": "{}"}},
                    ]
                },
                finish="tool_calls",
            ),
            DONE,
        ],
        calls=[(0, "c", "f", {"x": 1}), (1, "d", "g", {})],
    ),
    "index missing, arguments in pieces": Answer(
        [call("c", "f", '{"x"'), call(args=":1}"), call("d", "g", '{"y"'), call(args=":2}"), CALLED, DONE],
        calls=[(0, "c", "f", {"x": 1}), (1, "d", "g", {"y": 2})],
    ),
    "index null, ids empty, the same tool twice": Answer(
        [call("", "f", '{"x":1}', index=None), call("", "f", '{"x":2}', index=None), ends(), DONE],
        calls=[(0, "", "f", {"x": 1}), (1, "", "f", {"x": 2})],
    ),
    "index starting at 1": Answer(
        [
            says("a"),
            call("c", "f", index=1),
            call(args="", index=1),
            call("d", "g", index=2),
            call(args="", index=2),
            CALLED,
            DONE,
        ],
        "a",
        [(1, "c", "f", {}), (2, "d", "g", {})],
    ),
    "index 0 again with a new id": Answer(
        [call("c", "f", '{"x":1}', index=0), call("d", "f", '{"x":2}', index=0), CALLED, DONE],
        calls=[(0, "c", "f", {"x": 1}), (1, "d", "f", {"x": 2})],
    ),
    "index 0 again with a new id, in pieces": Answer(
        [
            call("c", "f", "", index=0),
            call(args='{"x"', index=0),
            call(args=":1}", index=0),
            call("d", "f", "", index=0),
            call(args='{"x"', index=0),
            call(args=":2}", index=0),
            CALLED,
            DONE,
        ],
        calls=[(0, "c", "f", {"x": 1}), (1, "d", "f", {"x": 2})],
    ),
    "index 0 again with a new name and no id": Answer(
        [call(None, "f", '{"x":1}', index=0), call(None, "g", '{"x":2}', index=0), CALLED, DONE],
        calls=[(0, "", "f", {"x": 1}), (1, "", "g", {"x": 2})],
    ),
    "two argument objects on one call": Answer(
        [call("c", "f", '{"x":1}', index=0), call(None, "f", '{"x":2}', index=0), CALLED, DONE],
        calls=[(0, "c", "f", {"x": 1}), (1, "", "f", {"x": 2})],
    ),
    "head on index 0, tail on index 1": Answer(
        [
            call("c", "f", '{"x":1}', index=0),
            call("d", "g", "", index=0),
            call(args='{"x"', index=1),
            call(args=":2}", index=1),
            CALLED,
            DONE,
        ],
        calls=[(0, "c", "f", {"x": 1}), (1, "d", "g", {"x": 2})],
    ),
    "a parameterless call, then index 0 again": Answer(
        [call("c", "f", "", index=0), call("d", "g", "{}", index=0), CALLED, DONE],
        calls=[(0, "c", "f", {}), (1, "d", "g", {})],
    ),
    # its id
    "id late": Answer(
        [call(None, "f", "", index=0), call("c", args="{", index=0), call(args="}", index=0), CALLED, DONE],
        calls=[(0, "c", "f", {})],
    ),
    "id after the arguments began": Answer(
        [call(None, "f", '{"x"', index=0), call("c", args=":1}", index=0), CALLED, DONE],
        calls=[(0, "c", "f", {"x": 1})],
    ),
    "id on every fragment": Answer(
        [call("c", "f", "", index=0), call("c", args='{"x"', index=0), call("c", args=":1}", index=0), CALLED, DONE],
        calls=[(0, "c", "f", {"x": 1})],
    ),
    "id and name on every fragment": Answer(
        [call("c", "f", '{"x"', index=0), call("c", "f", ":{", index=0), call("c", "f", "}}", index=0), CALLED, DONE],
        calls=[(0, "c", "f", {"x": {}})],
    ),
    "id on every fragment, index missing": Answer(
        [call("c", "f", '{"x"'), call("c", args=":1}"), call("d", "g", "{"), call("d", args="}"), CALLED, DONE],
        calls=[(0, "c", "f", {"x": 1}), (1, "d", "g", {})],
    ),
    "id and name on every fragment, index missing": Answer(
        [call("c", "f", '{"x"'), call("c", "f", ":1}"), CALLED, DONE], calls=[(0, "c", "f", {"x": 1})]
    ),
    "id in pieces": Answer(
        [call("call_", index=0), call("77", "f", "", index=0), call(args="{}", index=0), CALLED, DONE],
        calls=[(0, "call_77", "f", {})],
    ),
    "id empty on fragments": Answer(
        [call("c", "f", "", index=0), call("", args="{", index=0), call("", args="}", index=0), CALLED, DONE],
        calls=[(0, "c", "f", {})],
    ),
    "id nowhere": Answer(
        [call(None, "f", '{"x"', index=0), call(args=":1}", index=0), CALLED, DONE], calls=[(0, "", "f", {"x": 1})]
    ),
    # its name
    "name late": Answer(
        [call("c", index=0), call(None, "f", index=0), call(args="{}", index=0), CALLED, DONE],
        calls=[(0, "c", "f", {})],
    ),
    "name after the arguments": Answer(
        [call("c", args='{"x"', index=0), call(None, "f", ":1}", index=0), CALLED, DONE],
        calls=[(0, "c", "f", {"x": 1})],
    ),
    "name in pieces": Answer(
        [call("c", "get_", index=0), call(None, "weather", index=0), call(args="{}", index=0), CALLED, DONE],
        calls=[(0, "c", "get_weather", {})],
    ),
    "name growing": Answer(
        [call("c", "get", index=0), call(None, "get_weather", "{}", index=0), CALLED, DONE],
        calls=[(0, "c", "get_weather", {})],
    ),
    "name empty on fragments": Answer(
        [call("c", "f", "{", index=0, type="function"), call(None, "", "}", index=0, type="function"), CALLED, DONE],
        calls=[(0, "c", "f", {})],
    ),
    # its arguments
    "arguments an object": Answer(
        [call("c", "f", {"n": BIG}, index=0), CALLED, DONE], calls=[(0, "c", "f", {"n": BIG})]
    ),
    "arguments an object, in a message": Answer(
        [
            {
                "choices": [
                    {
                        "index": 0,
                        "message": {"tool_calls": [{"id": "c", "function": {"name": "f", "arguments": {"n": BIG}}}]},
                        "finish_reason": "tool_calls",
                    }
                ]
            },
            DONE,
        ],
        calls=[(0, "c", "f", {"n": BIG})],
    ),
    "arguments an object, in the second choice of an event": Answer(
        [
            {
                "choices": [
                    {"index": 1, "delta": {"content": "b"}, "finish_reason": "stop"},
                    {
                        "index": 0,
                        "delta": {"tool_calls": [{"id": "c", "function": {"name": "f", "arguments": {"n": BIG}}}]},
                    },
                ]
            },
            CALLED,
            DONE,
        ],
        calls=[(0, "c", "f", {"n": BIG})],
    ),
    "arguments an object, in a choice without an index": Answer(
        [
            {"choices": [{"delta": {"tool_calls": [{"id": "c", "function": {"name": "f", "arguments": {"n": BIG}}}]}}]},
            CALLED,
            DONE,
        ],
        calls=[(0, "c", "f", {"n": BIG})],
    ),
    "arguments an empty object": Answer([call("c", "f", {}, index=0), CALLED, DONE], calls=[(0, "c", "f", {})]),
    "arguments with a long number": Answer(
        [call("c", "f", f'{{"n":{BIG}}}', index=0), CALLED, DONE], calls=[(0, "c", "f", {"n": BIG})]
    ),
    "arguments null": Answer(
        [chunk({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": None}}]}), CALLED, DONE],
        calls=[(0, "c", "f", {})],
    ),
    'arguments "null"': Answer([call("c", "f", "null", index=0), CALLED, DONE], calls=[(0, "c", "f", {})]),
    "arguments absent": Answer([call("c", "f", index=0), CALLED, DONE], calls=[(0, "c", "f", {})]),
    "arguments empty, then {}": Answer(
        [call("c", "f", "", index=0), call(args="{}", index=0), CALLED, DONE], calls=[(0, "c", "f", {})]
    ),
    "arguments a string in a string": Answer(
        [call("c", "f", '"{\\"x\\":1}"', index=0), CALLED, DONE], calls=[(0, "c", "f", {"x": 1})]
    ),
    "arguments in the finish event": Answer(
        [
            call("c", "f", "", index=0),
            call(args='{"x":1}', index=0, finish="tool_calls"),
            ends("tool_calls", usage=USED),
            DONE,
        ],
        calls=[(0, "c", "f", {"x": 1})],
    ),
    "arguments that only look like an object elsewhere": Answer(
        [call("c", "f", '{"arguments": {"x":1}}', index=0), CALLED, DONE],
        calls=[(0, "c", "f", {"arguments": {"x": 1}})],
    ),
    # other calls
    "a metadata-only entry": Answer(
        [
            call("c", "f", "{}", index=0),
            chunk({"tool_calls": [{"index": 0, "extra_content": {"google": {}}}]}),
            CALLED,
            DONE,
        ],
        calls=[(0, "c", "f", {})],
    ),
    "tool_calls an object": Answer(
        [chunk({"tool_calls": {"id": "c", "function": {"name": "f", "arguments": "{}"}}}), CALLED, DONE],
        calls=[(0, "c", "f", {})],
    ),
    "a custom tool": Answer(
        [
            chunk({"tool_calls": [{"index": 0, "id": "c", "type": "custom", "custom": {"name": "f", "input": ""}}]}),
            *(chunk({"tool_calls": [{"index": 0, "custom": {"input": part}}]}) for part in ('say "', 'hé"\n', "{}")),
            CALLED,
            DONE,
        ],
        calls=[(0, "c", "f", {"input": 'say "hé"\n{}'})],
    ),
    "a custom tool without input": Answer(
        [chunk({"tool_calls": [{"index": 0, "id": "c", "custom": {"name": "f", "input": ""}}]}), CALLED, DONE],
        calls=[(0, "c", "f", {"input": ""})],
    ),
    "custom null beside a function": Answer(
        [call("c", "f", '{"x":1}', index=0, custom=None), CALLED, DONE], calls=[(0, "c", "f", {"x": 1})]
    ),
    "a legacy function_call": Answer(
        [
            chunk({"function_call": {"name": "f", "arguments": ""}}),
            *(chunk({"function_call": {"arguments": part}}) for part in ('{"x"', ":1}")),
            ends("function_call"),
            DONE,
        ],
        calls=[(0, "", "f", {"x": 1})],
    ),
    "a legacy function_call whose arguments are an object": Answer(
        [chunk({"function_call": {"name": "f", "arguments": {"n": BIG}}}), ends("function_call"), DONE],
        calls=[(0, "", "f", {"n": BIG})],
    ),
    # how it ends
    "finish stop after calls": Answer([call("c", "f", "{}", index=0), ends("stop"), DONE], calls=[(0, "c", "f", {})]),
    "finish twice": Answer([says("a"), ends(), ends(usage=USED), DONE], "a"),
    "finish empty until the end": Answer([says("a", finish=""), says("b", finish=""), ends(), DONE], "ab"),
    "finish absent": Answer([{"choices": [{"index": 0, "delta": {"content": "a"}}]}, DONE], "a"),
    "finish absent after whole arguments": Answer([call("c", "f", "{}", index=0), DONE], calls=[(0, "c", "f", {})]),
    "no [DONE]": Answer([says("a"), ends()], "a"),
    "no [DONE] after calls": Answer([call("c", "f", "{}", index=0), CALLED], calls=[(0, "c", "f", {})]),
    "[DONE] padded": Answer([says("a"), ends(), "data:   [DONE] \t"], "a"),
    "[DONE] repeated": Answer([says("a"), ends(), DONE, DONE], "a"),
    "[DONE] with a type": Answer([says("a"), ends(), f"event: done\n{DONE}"], "a"),
    "length, all calls whole": Answer([call("c", "f", "{}", index=0), ends("length"), DONE], calls=[(0, "c", "f", {})]),
    # what stands between
    "comments": Answer([": ping", ": ping", says("a"), ": ping", ends(), DONE], "a"),
    "comments wrapped as data": Answer(["data: : ping", says("a"), "data: : keep-alive", ends(), DONE], "a"),
    "empty data": Answer(["data:", says("a"), "data:  ", ends(), DONE], "a"),
    "ids, retries and unknown fields": Answer(
        ["retry: 5", f"id: 1\nfoo: bar\ndata: {json.dumps(says('a'))}", ends(), DONE], "a"
    ),
    "an event over several data lines": Answer(
        ['data: {"choices":\ndata: [{"index":0,"delta":\ndata: {"content":"a"}}]}', ends(), DONE], "a"
    ),
    "error null everywhere": Answer([says("a", error=None), ends(error=None), DONE], "a"),
    # several choices
    "two choices, interleaved": Answer(
        [says("a"), says("x", n=1), says("b"), says("y", n=1), ends(), ends(n=1), DONE], "ab"
    ),
    "two choices in one event": Answer(
        [
            {"choices": [{"index": 0, "delta": {"content": "a"}}, {"index": 1, "delta": {"content": "x"}}]},
            ends(),
            ends(n=1),
            DONE,
        ],
        "a",
    ),
    "two choices, the same index and id": Answer(
        [
            call("c", "f", "", index=0),
            call("c", "f", "", index=0, n=1),
            call(args='{"x":1}', index=0),
            call(args='{"x":2}', index=0, n=1),
            CALLED,
            ends("tool_calls", n=1),
            DONE,
        ],
        calls=[(0, "c", "f", {"x": 1})],
    ),
    "one choice goes on after the other finished": Answer(
        [says("a"), says("x", n=1), ends(n=1), says("b"), chunk({"content": "c"}, finish="stop"), DONE], "abc"
    ),
}
# Their reason comes before the end, or on every event: without [DONE] they can't be told from whole ones.
ANSWERS_THAT_NEED_DONE = {
    "arguments after the finish event": Answer(
        [call("c", "f", "", index=0), CALLED, call(args='{"x":1}', index=0), DONE], calls=[(0, "c", "f", {"x": 1})]
    ),
    "arguments cut by the finish event": Answer(
        [call("c", "f", '{"x"', index=0), CALLED, call(args=":1}", index=0), DONE], calls=[(0, "c", "f", {"x": 1})]
    ),
    "a call after the finish event": Answer(
        [says("a"), ends(), call("c", "f", "{}", index=0), DONE], "a", [(0, "c", "f", {})]
    ),
    "text after the finish event": Answer([says("a"), ends(), says("b"), DONE], "ab"),
    "finish on every event": Answer([says("a", finish="stop"), says("b", finish="stop"), ends(), DONE], "ab"),
    "finish on every event of a call": Answer(
        [call("c", "f", '{"x"', index=0, finish="stop"), call(args=":1}", index=0, finish="stop"), DONE],
        calls=[(0, "c", "f", {"x": 1})],
    ),
}
ALL_ANSWERS = ANSWERS | ANSWERS_THAT_NEED_DONE


@pytest.mark.parametrize("answer", ALL_ANSWERS.values(), ids=list(ALL_ANSWERS))
def test_what_a_server_means_is_understood_however_it_is_cut(answer: Answer, cuts: Cuts) -> None:
    for chunks in cuts(stream(*answer.events)):
        assembler = StreamAssembler("openai-chat")
        for part in chunks:
            assembler.feed(part)
        assert result_of(assembler) == (answer.text, answer.calls)


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=list(ANSWERS))
def test_no_prefix_gives_another_answer(answer: Answer) -> None:
    wire = stream(*answer.events)
    for length in range(len(wire)):
        assembler = StreamAssembler("openai-chat")
        assembler.feed(wire[:length])
        try:
            result = result_of(assembler)
        except StreamError:
            continue
        assert result == (answer.text, answer.calls), f"after {length} bytes: …{wire[:length][-80:]!r}"


@pytest.mark.parametrize("answer", ANSWERS_THAT_NEED_DONE.values(), ids=list(ANSWERS_THAT_NEED_DONE))
def test_a_choice_that_went_on_after_its_reason_needs_done(answer: Answer) -> None:
    assert type(failure(*answer.events[:-1])[0]) is TruncatedStream


@pytest.mark.parametrize("answer", ANSWERS_THAT_NEED_DONE.values(), ids=list(ANSWERS_THAT_NEED_DONE))
def test_no_prefix_of_it_gives_another_call(answer: Answer) -> None:
    for length in range(len(stream(*answer.events))):
        assembler = StreamAssembler("openai-chat")
        assembler.feed(stream(*answer.events)[:length])
        try:
            _, calls = result_of(assembler)
        except StreamError:
            continue
        assert [call for call in calls if call not in answer.calls] == [], f"after {length} bytes"


# The order of things


def test_a_call_opens_with_its_arguments_and_closes_with_the_choice() -> None:
    assembler = StreamAssembler("openai-chat")
    steps: list[tuple[Event, list[Delta]]] = [
        (call("c", "f", "", index=0), []),
        (call(args='{"x"', index=0), [ToolCallStart(0, "c", "f"), ToolCallDelta(0, '{"x"')]),
        (call(args=":1}", index=0), [ToolCallDelta(0, ":1}")]),
        (CALLED, [ToolCallEnd(0), ToolCall(0, "c", "f", {"x": 1}, '{"x":1}'), Finish("tool_calls", "tool_calls")]),
        (DONE, [Done()]),
    ]
    assert [(event, assembler.feed(stream(event))) for event, _ in steps] == steps


def test_a_whole_call_closes_where_the_next_one_opens() -> None:
    assembler = StreamAssembler("openai-chat")
    assembler.feed(stream(call("c", "f", "{}", index=0)))
    assert assembler.feed(stream(call("d", "g", "{", index=1))) == [
        ToolCallEnd(0),
        ToolCall(0, "c", "f", {}, "{}"),
        ToolCallStart(1, "d", "g"),
        ToolCallDelta(1, "{"),
    ]


def test_a_call_without_an_id_is_not_held_for_ever() -> None:
    assembler = StreamAssembler("openai-chat")
    assert assembler.feed(stream(call(None, "f", '{"x":"', index=0))) == []
    assert assembler.feed(stream(call(args="y" * 70_000, index=0)))[0] == ToolCallStart(0, "", "f")


def test_reasoning_comes_before_the_text_of_its_event() -> None:
    both = chunk({"content": "so", "reasoning": "hm", "refusal": "no"})
    assert decoded(both) == [ReasoningDelta("hm"), TextDelta("so"), RefusalDelta("no")]


def test_choices_keep_apart() -> None:
    first, second = messages(
        call("c", "f", '{"x"', index=0),
        call("c", "f", '{"y"', index=0, n=1),
        says("b", n=1),
        call(args=":2}", index=0, n=1),
        call(args=":1}", index=0),
        ends("length", n=1),
        CALLED,
        DONE,
    )
    assert (first.choice, [call.args for call in first.tool_calls]) == (0, [{"x": 1}])
    assert (second.choice, second.text, [call.args for call in second.tool_calls]) == (1, "b", [{"y": 2}])
    assert (first.finish, second.finish) == (Finish("tool_calls", "tool_calls"), Finish("length", "length", 1))


def test_an_end_before_every_choice_finished_is_no_end() -> None:
    assert type(failure(says("a"), says("b", n=1), ends())[0]) is TruncatedStream
    assert len(messages(says("a"), says("b", n=1), ends(), ends(n=1))) == 2


# Reasoning and refusals

THINKING = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}], "closed": True}
ENCRYPTED = {"type": "reasoning.encrypted", "data": "gAAA"}


@pytest.mark.parametrize(
    "delta",
    [
        pytest.param({"reasoning_content": "hm", "content": None}, id="reasoning_content"),
        pytest.param({"reasoning": "hm", "content": ""}, id="reasoning"),
        pytest.param({"reasoning": "hm", "reasoning_content": "hm"}, id="both, once"),
        pytest.param({"reasoning": "hm", "reasoning_details": [{"text": "hm"}]}, id="with details, once"),
        pytest.param({"reasoning_content": None, "reasoning": "", "reasoning_details": [{"text": "hm"}]}, id="details"),
        pytest.param(
            {"reasoning_details": [{"type": "reasoning.summary", "summary": "hm"}, ENCRYPTED]}, id="a summary"
        ),
        pytest.param({"reasoning": ["h", {"text": "m"}]}, id="a list"),
        pytest.param({"reasoning": {"text": "hm"}}, id="an object"),
        pytest.param({"content": [THINKING]}, id="among the content"),
        pytest.param({"content": [THINKING | {"thinking": []}, THINKING]}, id="among the content, one empty"),
    ],
)
def test_reasoning_by_any_name(delta: dict[str, Any]) -> None:
    whole = message(chunk(delta), chunk({"content": "so", "reasoning": None, "reasoning_content": None}), ends(), DONE)
    assert (whole.reasoning, whole.text) == ("hm", "so")


@pytest.mark.parametrize("delta", [{"reasoning_details": [ENCRYPTED]}, {"reasoning": []}, {"reasoning": [None]}])
def test_reasoning_without_text_is_none(delta: dict[str, Any]) -> None:
    assert decoded(chunk(delta)) == []


def test_a_refusal_is_kept_apart_and_is_the_reason() -> None:
    whole = message(chunk({"refusal": "I can", "content": None}), chunk({"refusal": "not"}), ends(), DONE)
    assert (whole.refusal, whole.text, whole.finish) == ("I cannot", "", Finish("refusal", "stop"))


def test_a_refusal_stays_the_reason_whatever_follows() -> None:
    assert message(chunk({"refusal": "no"}), says("sorry"), ends(), DONE).finish == Finish("refusal", "stop")
    assert message(chunk({"refusal": "no"}), ends("length"), DONE).finish == Finish("length", "length")


# Finish reasons


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ("stop", "stop"),
        ("STOP", "stop"),
        ("end_turn", "stop"),
        ("length", "length"),
        ("max_tokens", "length"),
        ("tool_calls", "tool_calls"),
        ("function_call", "tool_calls"),
        ("content_filter", "content_filter"),
        ("SAFETY", "content_filter"),
        ("refusal", "refusal"),
        ("insufficient_system_resource", "other"),
    ],
)
def test_every_reason_in_one_vocabulary(raw: str, reason: Any) -> None:
    assert message(says("a"), ends(raw), DONE).finish == Finish(reason, raw)


def test_a_reason_told_twice_is_given_once() -> None:
    finishes = [delta for delta in decoded(says("a"), ends(), ends(usage=USED), DONE) if type(delta) is Finish]
    assert finishes == [Finish("stop", "stop")]


def test_of_two_reasons_the_last_counts() -> None:
    assert message(says("a"), ends("stop"), ends("length"), DONE).finish == Finish("length", "length")


def test_without_a_reason_there_is_none() -> None:
    assert message(says("a"), DONE).finish is None


def test_the_reason_behind_a_router_is_believed() -> None:
    choice = {"index": 0, "delta": {}, "finish_reason": "tool_calls", "native_finish_reason": "length"}
    error, so_far = failure(call("c", "f", '{"x":', index=0), {"choices": [choice]}, DONE)
    assert type(error) is MalformedToolArguments
    assert so_far.finish is None or so_far.finish.reason == "length"


# Usage


@pytest.mark.parametrize(
    "events",
    [
        pytest.param(
            [says("a", usage=None), ends(usage=None), {"choices": [], "usage": USED}, DONE], id="after the finish"
        ),
        pytest.param([says("a"), ends(usage=USED), DONE], id="in the finish event"),
        pytest.param([says("a"), ends(), ends(usage=USED), DONE], id="in a second finish event"),
        pytest.param([says("a", usage={"total_tokens": 1}), says("b", usage=USED), ends(), DONE], id="cumulative"),
        pytest.param([says("a", usage=USED), ends(usage=None), DONE], id="in a text event"),
        pytest.param([says("a"), ends(x_groq={"id": "x", "usage": USED}), DONE], id="x_groq"),
        pytest.param([says("a", x_groq={"id": "x"}), ends(), {"usage": USED}, DONE], id="without choices"),
        pytest.param(
            [says("a"), {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "usage": USED}]}, DONE],
            id="in the choice",
        ),
        pytest.param([says("a"), ends(), {"choices": [], "usage": USED}], id="without [DONE]"),
    ],
)
def test_usage_wherever_it_comes(events: list[Event]) -> None:
    assert message(*events).usage == Usage(3, 4, 7, USED)


def test_usage_alone_makes_a_message() -> None:
    assert message({"choices": [], "usage": USED}, DONE) == Message(usage=Usage(3, 4, 7, USED))


def test_usage_that_did_not_change_is_given_once() -> None:
    assert decoded(says("a", usage=USED), {"choices": [], "usage": USED}) == [TextDelta("a"), Usage(3, 4, 7, USED)]


@pytest.mark.parametrize("odd", [{"prompt_tokens": "3"}, {"prompt_tokens": None}, {"prompt_tokens": True}, {"cost": 1}])
def test_usage_that_is_no_number_is_unknown(odd: dict[str, Any]) -> None:
    assert decoded({"usage": odd}) == [Usage(None, None, None, odd)]


# Errors

BUSY = {"message": "busy", "type": "server_error", "code": 503}


@pytest.mark.parametrize(
    ("event", "facts"),
    [
        pytest.param({"error": BUSY}, ("busy", "server_error", 503, 503), id="an object"),
        pytest.param({"error": "busy"}, ("busy", None, None, None), id="a string"),
        pytest.param(chunk(error=BUSY), ("busy", "server_error", 503, 503), id="beside a choice"),
        pytest.param(
            chunk(finish="length", error=BUSY), ("busy", "server_error", 503, 503), id="beside a finish reason"
        ),
        pytest.param(chunk(finish="error", error=BUSY), ("busy", "server_error", 503, 503), id="with the reason error"),
        pytest.param(
            chunk({"content": ""}, finish="error", error={"message": "busy", "code": "server_error"}),
            ("busy", None, "server_error", None),
            id="with the reason error and empty text",
        ),
        pytest.param(
            f"event: error\ndata: {json.dumps({'error': BUSY | {'status_code': 400}})}",
            ("busy", "server_error", 503, 400),
            id="event: error",
        ),
        pytest.param(
            f"event: error\ndata: {json.dumps(BUSY)}", ("busy", "server_error", 503, 503), id="event: error, bare"
        ),
        pytest.param(
            f"event: error\n{json.dumps(BUSY)}", ("busy", "server_error", 503, 503), id="event: error, no data:"
        ),
        pytest.param(f"error: {json.dumps(BUSY)}", ("busy", "server_error", 503, 503), id="a field named error"),
        pytest.param(
            f"error: {json.dumps({'error': BUSY})}", ("busy", "server_error", 503, 503), id="nested in that field"
        ),
        pytest.param(json.dumps({"error": BUSY}), ("busy", "server_error", 503, 503), id="JSON without data:"),
        pytest.param(
            json.dumps({"error": BUSY}, indent=2), ("busy", "server_error", 503, 503), id="over several lines"
        ),
        pytest.param({"object": "error", **BUSY}, ("busy", "server_error", 503, 503), id="an object named error"),
        pytest.param(
            {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "busy"}},
            ("busy", "RESOURCE_EXHAUSTED", 429, 429),
            id="as Google says it",
        ),
    ],
)
@pytest.mark.parametrize("before", [[], [says("a")]], ids=["first", "after text"])
@pytest.mark.parametrize("after", [[], [DONE], [ends(), DONE]], ids=["last", "then [DONE]", "then a finish"])
def test_an_error_is_an_error(event: Event, facts: tuple[Any, ...], before: list[Event], after: list[Event]) -> None:
    error, so_far = failure(*before, event, *after)
    assert type(error) is ProviderError
    assert (error.message, error.type, error.code, error.status) == facts
    assert so_far.text == "a" * len(before)


def test_an_error_that_no_blank_line_ends_counts() -> None:
    for line in (f"error: {json.dumps(BUSY)}", json.dumps({"error": BUSY})):
        assembler = StreamAssembler("openai-chat")
        assembler.feed(stream(says("a")) + line.encode())
        with pytest.raises(ProviderError, match="busy"):
            assembler.result()


def test_the_finish_reason_error_is_an_error() -> None:
    error, so_far = failure(says("a"), ends("error"), DONE)
    assert type(error) is ProviderError
    assert so_far.text == "a"


@pytest.mark.parametrize("event", [says("b"), ends(), {"choices": []}], ids=["text", "a finish", "nothing"])
def test_whatever_an_event_of_the_type_error_holds_it_is_an_error(event: Any) -> None:
    assert type(failure(says("a"), f"event: error\ndata: {json.dumps(event)}", ends(), DONE)[0]) is ProviderError


def test_a_field_named_error_never_ends_a_stream_well() -> None:
    assert isinstance(failure(says("a"), "error: [DONE]")[0], StreamError)


def test_an_error_after_done_undoes_nothing() -> None:
    assert message(says("a"), DONE, {"error": BUSY}).text == "a"


# What is not finished

OPEN = call("c", "f", '{"x":', index=0)
WHOLE = call("d", "g", "{}", index=1)
RAW = chunk({"tool_calls": [{"index": 0, "id": "c", "custom": {"name": "f", "input": "half a sen"}}]})


@pytest.mark.parametrize(
    ("events", "kind"),
    [
        pytest.param([], TruncatedStream, id="nothing"),
        pytest.param([": ping"], TruncatedStream, id="a comment"),
        pytest.param([ROLE], TruncatedStream, id="a role"),
        pytest.param([says("a")], TruncatedStream, id="text"),
        pytest.param([says("a", finish="")], TruncatedStream, id="an empty reason"),
        pytest.param([{"choices": [], "usage": USED}], TruncatedStream, id="usage alone"),
        pytest.param([says("a"), "data: [DONE"], MalformedPayload, id="half a [DONE]"),
        pytest.param([WHOLE], TruncatedStream, id="a whole call"),
        pytest.param([OPEN], TruncatedStream, id="half a call"),
        pytest.param([OPEN, DONE], MalformedToolArguments, id="half a call, then [DONE]"),
        pytest.param([OPEN, CALLED], MalformedToolArguments, id="half a call, then a reason"),
        pytest.param([OPEN, ends("length"), DONE], MalformedToolArguments, id="half a call, then length"),
        pytest.param([OPEN, WHOLE, CALLED, DONE], MalformedToolArguments, id="half a call before a whole one"),
        pytest.param([call("c", "f", "", index=0), DONE], UnclosedToolCall, id="a head, then [DONE]"),
        pytest.param([call("c", "f", "", index=0), ends("length"), DONE], UnclosedToolCall, id="a head, then length"),
        pytest.param([call("c", "f", "", index=0), ends("length")], UnclosedToolCall, id="a head, length, no [DONE]"),
        pytest.param([call("c", None, "{}", index=0), CALLED, DONE], UnclosedToolCall, id="a call without a name"),
        pytest.param([call(args="{}", index=0), CALLED, DONE], UnclosedToolCall, id="arguments without a head"),
        pytest.param([RAW, DONE], UnclosedToolCall, id="raw text, then [DONE]"),
        pytest.param([RAW, ends("length"), DONE], UnclosedToolCall, id="raw text, then length"),
        pytest.param(
            [call("c", "f", "{}", index=0), call(args='{"x":2}', index=0), CALLED, DONE],
            MalformedToolArguments,
            id="two argument objects in one call",
        ),
        pytest.param([call("c", "f", "[]", index=0), CALLED, DONE], MalformedToolArguments, id="arguments a list"),
        pytest.param(
            [call("c", "f", [1], index=0), CALLED, DONE], MalformedToolArguments, id="arguments a list itself"
        ),
    ],
)
def test_nothing_unfinished_looks_finished(events: list[Event], kind: type[StreamError]) -> None:
    error, so_far = failure(*events)
    assert type(error) is kind
    assert {call.name for call in so_far.tool_calls} <= {"g"}


def test_a_whole_call_before_a_cut_one_is_kept() -> None:
    error, so_far = failure(call("c", "f", "{}", index=0), call("d", "g", '{"x": ', index=1), ends("length"), DONE)
    assert type(error) is MalformedToolArguments
    assert (error.index, error.id, error.name, error.args_text) == (1, "d", "g", '{"x": ')
    assert [call.name for call in so_far.tool_calls] == ["f"]
    assert so_far.finish == Finish("length", "length")


# What is not the dialect


@pytest.mark.parametrize(
    "event",
    [
        "data: {",
        "data: [DONE] x",
        "data: null",
        "data: 5",
        'data: "text"',
        "data: []",
        "data: Internal Server Error",
        {"choices": 5},
        {"choices": {"index": 0}},
        {"choices": [5]},
        {"choices": [{"index": "0", "delta": {}}]},
        {"choices": [{"index": [0], "delta": {}}]},
        {"choices": [{"index": 1.5, "delta": {}}]},
        chunk("text"),
        chunk(["content"]),
        says(5),
        says({"text": 5}),
        says([5]),
        chunk({"refusal": 5}),
        chunk({"reasoning": 5}),
        chunk({"tool_calls": [5]}),
        chunk({"tool_calls": "call"}),
        chunk({"tool_calls": [{"function": 5}]}),
        chunk({"function_call": "f"}),
        call(5, "f"),
        call("c", 5),
        ends(5),
        ends(["stop"]),
        {"usage": 5},
        {"x_groq": 5},
    ],
    ids=str,
)
def test_anything_else_is_malformed(event: Event) -> None:
    error, so_far = failure(says("a"), event, DONE)
    assert type(error) is MalformedPayload
    assert so_far.text == "a"
    assert "event 2" in str(error)


def test_arguments_after_whole_ones_are_malformed() -> None:
    error, so_far = failure(call("c", "f", "{}", index=0), CALLED, call(args='{"x":1}', index=0), DONE)
    assert type(error) is MalformedPayload
    assert [call.args for call in so_far.tool_calls] == [{}]


DEEP = {"lists": "[" * 1000 + "]" * 1000, "objects": '{"a":' * 1000 + "1" + "}" * 1000}
PLACES = {
    "arguments": '{"choices":[{"delta":{"tool_calls":[{"id":"c","function":{"name":"f","arguments":%s}}]}}]}',
    "a custom input": '{"choices":[{"delta":{"tool_calls":[{"id":"c","custom":{"name":"f","input":%s}}]}}]}',
    "legacy arguments": '{"choices":[{"delta":{"function_call":{"name":"f","arguments":%s}}}]}',
    "reasoning": '{"choices":[{"delta":{"reasoning":%s}}]}',
    "the text of reasoning": '{"choices":[{"delta":{"reasoning":{"text":%s}}}]}',
    "reasoning_details": '{"choices":[{"delta":{"reasoning_details":%s}}]}',
    "thinking": '{"choices":[{"delta":{"content":[{"type":"thinking","thinking":%s}]}}]}',
    "content": '{"choices":[{"delta":{"content":%s}}]}',
    "something unknown": '{"choices":[{"delta":{"annotations":%s}}]}',
    "a finish reason": '{"choices":[{"delta":{},"finish_reason":%s}]}',
    "an error": '{"error":%s}',
    "the message of an error": '{"error":{"message":%s}}',
    "usage": '{"usage":{"details":%s}}',
    "the name of the object": '{"object":%s}',
}


@pytest.mark.parametrize("deep", DEEP.values(), ids=list(DEEP))
@pytest.mark.parametrize("place", PLACES.values(), ids=list(PLACES))
@pytest.mark.parametrize("extras", [False, True])
def test_deep_nesting_is_never_another_exception(place: str, deep: str, extras: bool) -> None:
    event = "data: " + place % deep
    assembler = StreamAssembler("openai-chat", extras=extras)
    with pytest.raises(StreamError):
        _ = assembler.feed(stream(event, event)), assembler.result()


def test_the_arguments_of_a_call_are_bounded() -> None:
    assembler = StreamAssembler("openai-chat", limits=Limits(max_args=1000))
    assembler.feed(stream(call("c", "f", "x" * 1000, index=0)))
    with pytest.raises(LimitExceeded, match="max_args=1,000"):
        assembler.feed(stream(call(args="x", index=0)))


# Extras


def test_extras_show_what_only_some_servers_send() -> None:
    assert decoded(
        chunk({"content": "a", "annotations": [1], "channel": "", "reasoning_details": [ENCRYPTED]}),
        {"object": "moderation", "x": 1},
        {"choices": [], "usage": None},
        extras=True,
    ) == [
        TextDelta("a"),
        ProviderEvent("annotations", [1]),
        ProviderEvent("moderation", {"object": "moderation", "x": 1}),
    ]


def test_without_extras_they_are_left_out() -> None:
    assert decoded(chunk({"content": "a", "annotations": [1]}), {"object": "moderation"}) == [TextDelta("a")]


def test_two_entries_of_one_choice_in_an_event_keep_their_own_arguments() -> None:
    entries = [
        {"index": 0, "delta": {"tool_calls": [{"function": {"name": name, "arguments": {"n": 10**30 + n}}}]}}
        for n, name in enumerate(("pay", "get"))
    ]
    assembler = StreamAssembler("openai-chat")
    assembler.feed(f"data: {json.dumps({'choices': entries})}\n\ndata: [DONE]\n\n".encode())
    _, calls = assembler.result()
    assert [(call.name, call.args) for call in calls] == [("pay", {"n": 10**30}), ("get", {"n": 10**30 + 1})]
