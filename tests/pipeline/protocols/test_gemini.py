"""Gemini's streamGenerateContent, of the Gemini API and of Vertex."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from rillet.operators import (
    Delta,
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
    LimitExceeded,
    MalformedPayload,
    MalformedToolArguments,
    ProviderError,
    StreamError,
    TruncatedStream,
    UnclosedToolCall,
)
from rillet.pipeline import Limits, StreamAssembler
from rillet.pipeline.protocols.gemini import MAX_GAP

Event = dict[str, Any] | str
Check = Callable[..., None]
BIG = 123456789012345678901234567890


def stream(*events: Event) -> bytes:
    """Each event as data, with CRLF; a string as it stands."""
    blocks = (event if isinstance(event, str) else f"data: {json.dumps(event, ensure_ascii=False)}" for event in events)
    return "".join(f"{block}\r\n\r\n" for block in blocks).encode()


def decoded(*events: Event, extras: bool = False) -> list[Delta]:
    return StreamAssembler("gemini", extras=extras).feed(stream(*events))


def messages(*events: Event) -> tuple[Message, ...]:
    assembler = StreamAssembler("gemini")
    _ = assembler.feed(stream(*events)), assembler.result()
    return assembler.messages


def message(*events: Event) -> Message:
    (only,) = messages(*events)
    return only


def failure(*events: Event) -> tuple[StreamError, Message]:
    assembler = StreamAssembler("gemini")
    with pytest.raises(StreamError) as caught:
        _ = assembler.feed(stream(*events)), assembler.result()
    return caught.value, assembler.message


def chunk(*parts: Any, finish: Any = None, n: Any = 0, **more: Any) -> dict[str, Any]:
    """One event with one candidate; `more` goes beside it."""
    candidate: dict[str, Any] = {"content": {"parts": list(parts), "role": "model"}}
    candidate |= {"index": n} if n else {}
    candidate |= {"finishReason": finish} if finish is not None else {}
    return {"candidates": [candidate], **more}


def says(text: Any, **more: Any) -> dict[str, Any]:
    return chunk({"text": text}, **more)


def call(**function: Any) -> dict[str, Any]:
    return chunk({"functionCall": function})


def opens(name: str = "f") -> dict[str, Any]:
    return call(name=name, willContinue=True)


def grows(path: Any, **value: Any) -> dict[str, Any]:
    return call(partialArgs=[{"jsonPath": path, **value}], willContinue=True)


CLOSES = call()
STOPS = says("", finish="STOP")


def used(prompt: int, answer: int) -> dict[str, int]:
    return {"promptTokenCount": prompt, "candidatesTokenCount": answer, "totalTokenCount": prompt + answer}


FULL: list[Any] = [
    chunk({"text": "Let me ", "thought": True}, usageMetadata={"promptTokenCount": 5}),
    chunk({"text": "see…", "thought": True}),
    says("Caf", usageMetadata=used(5, 1)),
    says("é ☕ 🎈"),
    chunk(
        {"functionCall": {"name": "weather", "args": {"city": "Zürich 雪", "n": BIG}}, "thoughtSignature": "c2ln"},
        {"functionCall": {"name": "now", "args": {}, "id": "call_1"}},
        usageMetadata=used(5, 8),
    ),
    says("", finish="STOP", usageMetadata=used(5, 9)),
]
EXPECTED = Message(
    "Café ☕ 🎈",
    "Let me see…",
    tool_calls=(
        ToolCall(0, "", "weather", {"city": "Zürich 雪", "n": BIG}, f'{{"city":"Zürich 雪","n":{BIG}}}'),
        ToolCall(1, "call_1", "now", {}, "{}"),
    ),
    finish=Finish("tool_calls", "STOP"),
    usage=Usage(5, 9, 14, used(5, 9)),
)
GROWING: list[Any] = [
    opens("weather"),
    grows("$.city", stringValue="Zür", willContinue=True),
    grows("$.city", stringValue="ich 雪", willContinue=True),
    grows("$.city", stringValue=""),
    grows("$.days[0].n", numberValue=BIG),
    CLOSES,
    call(name="now"),
    STOPS,
]
GROWN = Message(
    tool_calls=(
        ToolCall(
            0,
            "",
            "weather",
            {"city": "Zürich 雪", "days": [{"n": BIG}]},
            f'{{"city":"Zürich 雪","days":[{{"n":{BIG}}}]}}',
        ),
        ToolCall(1, "", "now", {}, "{}"),
    ),
    finish=Finish("tool_calls", "STOP"),
)
both = pytest.mark.parametrize(("events", "expected"), [(FULL, EXPECTED), (GROWING, GROWN)], ids=["whole", "growing"])


@both
def test_however_it_is_cut(events: list[Event], expected: Message, check_cuts: Check) -> None:
    check_cuts("gemini", stream(*events), expected)


@both
def test_no_prefix_gives_another_answer(events: list[Event], expected: Message, check_prefixes: Check) -> None:
    check_prefixes("gemini", stream(*events), expected)


def test_one_bad_value_is_an_error_or_changes_no_arguments(check_bad_shapes: Check) -> None:
    check_bad_shapes("gemini", stream, FULL, "args")


def test_one_bad_value_around_a_growing_call_changes_no_arguments(check_bad_shapes: Check) -> None:
    check_bad_shapes("gemini", lambda head: stream(head, *GROWING[1:]), GROWING[:1], "willContinue")
    check_bad_shapes("gemini", lambda *tail: stream(*GROWING[:5], *tail), GROWING[5:])


# Parts


def test_a_whole_call_gives_all_its_deltas_at_once() -> None:
    assert decoded(says("a"), call(name="f", args={"x": "é"})) == [
        TextDelta("a"),
        ToolCallStart(0, "", "f"),
        ToolCallDelta(0, '{"x":"é"}'),
        ToolCallEnd(0),
        ToolCall(0, "", "f", {"x": "é"}, '{"x":"é"}'),
    ]


@pytest.mark.parametrize("function", [{}, {"args": None}, {"args": {}}, {"id": None}])
def test_a_call_may_be_without_arguments(function: dict[str, Any]) -> None:
    assert [call.args for call in message(call(name="f", **function), STOPS).tool_calls] == [{}]


@pytest.mark.parametrize(
    "candidate", [{}, {"content": {}}, {"content": None}, {"content": {"role": "model"}}, {"content": {"parts": None}}]
)
def test_content_and_parts_may_be_missing(candidate: dict[str, Any]) -> None:
    assert message(says("a"), {"candidates": [{**candidate, "finishReason": "STOP"}]}).text == "a"


@pytest.mark.parametrize("event", [{}, {"modelVersion": "m"}, {"candidates": []}, {"candidates": None}, "data:", ": x"])
def test_an_event_may_have_no_candidates(event: Event) -> None:
    assert message(event, says("a"), event, STOPS, event).text == "a"


def test_thoughts_are_reasoning() -> None:
    parts = [{"text": "hm", "thought": True}, {"text": "a", "thought": False}, {"text": "", "thoughtSignature": "s"}]
    assert decoded(chunk(*parts)) == [ReasoningDelta("hm"), TextDelta("a")]


SERVER_PARTS: list[dict[str, Any]] = [
    {"executableCode": {"language": "PYTHON", "code": "1"}},
    {"codeExecutionResult": {"outcome": "OUTCOME_OK"}},
    {"inlineData": {"mimeType": "image/png", "data": "AA=="}},
    {"toolCall": {"toolType": "GOOGLE_SEARCH_WEB", "args": {"queries": ["x"]}, "id": "s"}},
    {"toolResponse": {"id": "s"}},
]


def test_tools_that_the_provider_runs_are_no_calls() -> None:
    assert message(chunk(*SERVER_PARTS), STOPS) == Message(finish=Finish("stop", "STOP"))
    assert decoded(chunk(*SERVER_PARTS), extras=True) == [
        ProviderEvent(kind, payload) for part in SERVER_PARTS for kind, payload in part.items()
    ]


def test_extras_show_signatures() -> None:
    assert decoded(chunk({"text": "a", "thoughtSignature": "s"}), extras=True) == [
        TextDelta("a"),
        ProviderEvent("thoughtSignature", "s"),
    ]


def test_candidates_are_choices_with_calls_of_their_own() -> None:
    part = {"functionCall": {"name": "f", "args": {}}}
    first, second = messages(says("a"), chunk(part, n=1), chunk(part), chunk(finish="STOP"), chunk(finish="STOP", n=1))
    assert (first.text, [(call.index, call.choice) for call in first.tool_calls]) == ("a", [(0, 0)])
    assert [(call.index, call.choice) for call in second.tool_calls] == [(0, 1)]


def test_candidates_are_bounded() -> None:
    event = {"candidates": [{"index": n, "content": {"parts": [{"text": "a"}]}} for n in range(10_000)]}
    assert type(failure(event)[0]) is MalformedPayload


# Calls whose arguments grow


def grown(*events: Event) -> Any:
    (call,) = message(opens(), *events, CLOSES, STOPS).tool_calls
    return call.args


@pytest.mark.parametrize(
    ("path", "args"),
    [
        ("$.a", {"a": 1}),
        ("$.a.b", {"a": {"b": 1}}),
        ("$.a[0]", {"a": [1]}),
        ("$.a[2]", {"a": [None, None, 1]}),
        ("$.a[0].b[0][1]", {"a": [{"b": [[None, 1]]}]}),
        ("$['a b'].c", {"a b": {"c": 1}}),
        ('$["a.b"]', {"a.b": 1}),
        (r"$['it\'s']", {"it's": 1}),
        ("$['']", {"": 1}),
        ("$.é-1", {"é-1": 1}),
    ],
)
def test_every_path_names_its_place(path: str, args: dict[str, Any]) -> None:
    assert grown(grows(path, numberValue=1)) == args


@pytest.mark.parametrize(
    ("value", "result"),
    [
        ({"stringValue": "é"}, "é"),
        ({"numberValue": BIG}, BIG),
        ({"numberValue": 0.5}, 0.5),
        ({"boolValue": False}, False),
        ({"nullValue": "NULL_VALUE"}, None),
        ({"nullValue": None}, None),
    ],
)
def test_every_kind_of_value(value: dict[str, Any], result: Any) -> None:
    assert grown(grows("$.a", **value)) == {"a": result}


def test_strings_are_appended_wherever_they_are() -> None:
    pieces = [("$.a[0]", "x"), ("$.b", "é"), ("$.a[0]", "y"), ("$.a[1].c", "z"), ("$.b", "雪"), ("$.a[0]", "")]
    assert grown(*(grows(path, stringValue=piece) for path, piece in pieces)) == {"a": ["xy", {"c": "z"}], "b": "é雪"}


def test_a_place_has_one_value_whatever_its_path_is_called() -> None:
    _, so_far = failure(opens(), grows("$.a", stringValue="x"), grows("$['a']", stringValue="y"), CLOSES)
    assert [call.args for call in so_far.tool_calls] in ([], [{"a": "xy"}])


def test_several_values_may_come_in_one_event_and_with_the_name() -> None:
    values = [{"jsonPath": "$.a", "numberValue": 1}, {"jsonPath": "$.b", "boolValue": True}]
    (only,) = message(call(name="f", args={"c": None}, partialArgs=values), STOPS).tool_calls
    assert only.args == {"c": None, "a": 1, "b": True}


def test_an_event_of_a_call_may_hold_nothing() -> None:
    assert grown(call(willContinue=True), grows("$.a"), grows("$.b", numberValue=1)) == {"b": 1}


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([CLOSES, opens("g"), CLOSES, STOPS], id="by an empty one"),
        pytest.param([opens("g"), STOPS], id="by the next one, and by STOP"),
        pytest.param([call(partialArgs=[]), call(name="g"), chunk({"functionCall": {}}, finish="STOP")], id="at once"),
    ],
)
def test_a_growing_call_is_closed(events: list[Event]) -> None:
    calls = message(opens(), grows("$.x", numberValue=1), *events).tool_calls
    assert [(call.index, call.name, call.args) for call in calls] == [(0, "f", {"x": 1}), (1, "g", {})]


def test_a_growing_call_is_not_shown_before_it_is_closed() -> None:
    assert decoded(opens(), grows("$.x", stringValue="half")) == []


@pytest.mark.parametrize(("raw", "reason"), [("MAX_TOKENS", "length"), ("SAFETY", "content_filter"), ("ODD", "other")])
def test_a_growing_call_cut_by_the_end_is_not_closed(raw: str, reason: Any) -> None:
    error, so_far = failure(call(name="g", args={}), opens("f"), grows("$.x", stringValue="half"), chunk(finish=raw))
    assert isinstance(error, UnclosedToolCall)
    assert (error.index, error.name) == (1, "f")
    assert ([call.name for call in so_far.tool_calls], so_far.finish) == (["g"], Finish(reason, raw))


@pytest.mark.parametrize("end", [[CLOSES, STOPS], [opens("g"), CLOSES, STOPS], [STOPS]], ids=["{}", "the next", "STOP"])
def test_a_string_that_said_it_would_go_on_is_not_finished(end: list[Event]) -> None:
    error, so_far = failure(opens(), grows("$.x", stringValue="rm -rf /tmp/", willContinue=True), *end)
    assert isinstance(error, UnclosedToolCall | MalformedToolArguments | MalformedPayload)
    assert "f" not in [call.name for call in so_far.tool_calls]


@pytest.mark.parametrize(
    "path",
    ["", "$", "a", "$.", "$..a", "$.a.", "$.a[", "$.a[-1]", "$.a[x]", "$['a]", "$.a[99999]", f"$.a[{10**12}]", None, 5],
)
def test_a_path_that_names_no_place_is_malformed(path: Any) -> None:
    error, so_far = failure(opens(), grows(path, numberValue=1), CLOSES, STOPS)
    assert (type(error), so_far.tool_calls) == (MalformedPayload, ())


def test_paths_may_leave_out_a_few_items_of_a_list() -> None:
    assert len(grown(grows(f"$.a[{MAX_GAP - 1}]", numberValue=1))["a"]) == MAX_GAP
    assert type(failure(opens(), grows(f"$.a[{MAX_GAP}]", numberValue=1))[0]) is MalformedPayload


def test_all_the_paths_of_a_call_are_bounded() -> None:
    steps = ".a" * 198
    paths = [{"jsonPath": f"${steps}.b{n}", "nullValue": None} for n in range(1_000)]
    assert type(failure(opens(), call(partialArgs=paths, willContinue=True), CLOSES, STOPS)[0]) is MalformedPayload


def test_a_path_may_not_be_longer_than_200_steps() -> None:
    assert grown(grows("$" + ".a" * 200, numberValue=1))
    assert type(failure(opens(), grows("$" + ".a" * 201, numberValue=1))[0]) is MalformedPayload


@pytest.mark.parametrize("first", ["$.a", "$.a.b", "$.a[0]"])
@pytest.mark.parametrize("second", ["$.a.b.c", "$.a.b", "$.a[0]", "$.a[0].b", "$[0]"])
def test_a_path_that_contradicts_an_earlier_one_is_malformed(first: str, second: str) -> None:
    if not second.startswith(first):
        error, so_far = failure(opens(), grows(first, stringValue="x"), grows(second, stringValue="y"), CLOSES, STOPS)
        assert (type(error), so_far.tool_calls) == (MalformedPayload, ())


@pytest.mark.parametrize("path", ["$.a.b", "$.a[0]", "$.a.b.c", "$.a[0].b", "$.a.b[0]"])
def test_a_path_below_a_null_contradicts_it(path: str) -> None:
    assert type(failure(opens(), grows("$.a", nullValue=None), grows(path, numberValue=1), CLOSES, STOPS)[0]) is (
        MalformedPayload
    )


def test_arguments_without_the_name_are_not_lost() -> None:
    assembler = StreamAssembler("gemini")
    try:
        _ = assembler.feed(stream(opens(), call(args={"x": 1}), STOPS)), assembler.result()
    except StreamError:
        assert assembler.message.tool_calls == ()
    else:
        assert [call.args for call in assembler.message.tool_calls] == [{"x": 1}]


@pytest.mark.parametrize(
    "second", [{"stringValue": "x"}, {"stringValue": 5}, {"stringValue": None}, {"numberValue": None, "stringValue": 1}]
)
def test_a_string_is_appended_to_a_string_alone(second: dict[str, Any]) -> None:
    first = {"boolValue": True}
    assert type(failure(opens(), grows("$.a", **first), grows("$.a", **second), CLOSES, STOPS)[0]) is MalformedPayload


def test_the_items_that_paths_leave_out_do_not_add_up() -> None:
    """A few bytes must not make a thousand items again and again."""
    paths = [{"jsonPath": f"$.a[{n}]", "nullValue": None} for n in range(999, 400_000, 1_000)]
    error, _ = failure(opens(), call(partialArgs=paths, willContinue=True), CLOSES, STOPS)
    assert isinstance(error, MalformedPayload | LimitExceeded)


@pytest.mark.parametrize("function", [{"willContinue": True}, {"partialArgs": []}, {"args": {"x": 1}}])
def test_what_goes_on_without_a_name_needs_an_open_call(function: dict[str, Any]) -> None:
    assert type(failure(says("a"), call(**function), STOPS)[0]) is MalformedPayload


def test_an_empty_call_where_none_is_open_closes_nothing() -> None:
    assert message(says("a"), CLOSES, chunk({"functionCall": None}), STOPS).tool_calls == ()


# Usage and finish


def test_usage_is_cumulative_and_given_where_it_changed() -> None:
    figures = [
        delta
        for delta in decoded(
            *(says("a", usageMetadata=usage) for usage in (used(3, 1), used(3, 1), {"totalTokenCount": 1}, used(3, 2)))
        )
        if type(delta) is Usage
    ]
    assert figures == [Usage(3, 1, 4, used(3, 1)), Usage(3, 2, 5, used(3, 2))]


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ("STOP", "stop"),
        ("MAX_TOKENS", "length"),
        ("SAFETY", "content_filter"),
        ("RECITATION", "content_filter"),
        ("BLOCKLIST", "content_filter"),
        ("PROHIBITED_CONTENT", "content_filter"),
        ("SPII", "content_filter"),
        ("IMAGE_SAFETY", "content_filter"),
        ("MALFORMED_FUNCTION_CALL", "other"),
        ("OTHER", "other"),
    ],
)
def test_every_reason_in_one_vocabulary(raw: str, reason: Any) -> None:
    assert message(says("a", finish=raw)) == Message("a", finish=Finish(reason, raw))


@pytest.mark.parametrize(("raw", "reason"), [("STOP", "tool_calls"), ("MAX_TOKENS", "length")])
def test_stop_after_calls_means_the_calls(raw: str, reason: Any) -> None:
    assert message(call(name="f"), chunk(finish=raw)).finish == Finish(reason, raw)


def test_a_stop_alone_is_an_answer() -> None:
    assert message(STOPS) == Message(finish=Finish("stop", "STOP"))


@pytest.mark.parametrize("more", [says("b"), call(name="f"), opens()], ids=["text", "a call", "half a call"])
def test_a_reason_that_more_follows_was_none(more: Event) -> None:
    assert type(failure(says("a", finish="STOP"), more)[0]) is TruncatedStream
    assert message(says("a", finish="STOP"), more, STOPS).text[0] == "a"


# Errors

BUSY = {"error": {"code": 503, "message": "busy", "status": "UNAVAILABLE"}}


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(BUSY, id="as data"),
        pytest.param(f"event: error\r\ndata: {json.dumps(BUSY['error'])}", id="event: error, bare"),
        pytest.param(json.dumps(BUSY), id="without data:"),
        pytest.param(json.dumps(BUSY, indent=2), id="over several lines"),
        pytest.param(json.dumps(BUSY, indent=2).replace("\n", "\r\n"), id="over several lines, CRLF"),
    ],
)
@pytest.mark.parametrize("before", [[], [says("a")]], ids=["first", "after text"])
@pytest.mark.parametrize("end", [b"", b"\r\n\r\n"], ids=["not ended", "ended"])
def test_an_error_is_an_error(event: Event, before: list[Event], end: bytes) -> None:
    assembler = StreamAssembler("gemini")
    with pytest.raises(ProviderError) as caught:
        _ = assembler.feed(stream(*before, event).removesuffix(b"\r\n\r\n") + end), assembler.result()
    error = caught.value
    assert (error.message, error.type, error.code, error.status) == ("busy", "UNAVAILABLE", 503, 503)
    assert (error.retry_safe, assembler.message.text) == (not before, "a" * len(before))


@pytest.mark.parametrize(("more", "said"), [({}, "the prompt was blocked"), ({"blockReasonMessage": "no"}, "no")])
@pytest.mark.parametrize("end", [b"", b"\r\n\r\n"], ids=["not ended", "ended"])
def test_a_blocked_prompt_is_an_error(more: dict[str, Any], said: str, end: bytes) -> None:
    assembler = StreamAssembler("gemini")
    blocked = stream({"promptFeedback": {"blockReason": "SAFETY", "safetyRatings": []} | more})
    with pytest.raises(ProviderError) as caught:
        _ = assembler.feed(blocked.removesuffix(b"\r\n\r\n") + end), assembler.result()
    assert (caught.value.type, caught.value.message, caught.value.retry_safe) == ("SAFETY", said, True)


# What is not finished, and what is not the dialect


@pytest.mark.parametrize(
    "events",
    [[], [": ping"], [says("a")], [call(name="f", args={})], [opens()], [{"candidates": []}], [says("a"), "[DONE]"]],
)
def test_without_a_reason_it_is_truncated(events: list[Event]) -> None:
    assert type(failure(*events)[0]) is TruncatedStream


def test_every_candidate_that_spoke_needs_a_reason() -> None:
    assert type(failure(says("a"), says("b", n=1), chunk(finish="STOP"))[0]) is TruncatedStream


@pytest.mark.parametrize(
    "event",
    [
        "data: {",
        "data: [DONE]",
        "data: []",
        'data: ["functionCall"]',
        'data: {"functionCall"',
        {"candidates": 5},
        {"candidates": ["x"]},
        {"candidates": [{"content": 5}]},
        chunk(5),
        says(5),
        chunk({"functionCall": 5}),
        call(name=5),
        call(name="f", args=5),
        call(name="f", args=[1]),
        call(name="f", id=5),
        call(name="f", partialArgs=5),
        chunk(finish=5),
        {"usageMetadata": 5},
        {"promptFeedback": 5},
        {"promptFeedback": {"blockReason": 5}},
        f"data: {json.dumps(call(name='f', args={'n': 0})).replace(': 0', ': ' + '9' * 5_000)}",
    ],
    ids=lambda event: str(event)[:60],
)
def test_anything_else_is_malformed(event: Event) -> None:
    error, so_far = failure(says("a"), event, STOPS)
    assert type(error) is MalformedPayload
    assert (so_far.text, so_far.tool_calls) == ("a", ())


@pytest.mark.parametrize("part", [{"text": "\ud800"}, {"functionCall": {"name": "\ud800"}}], ids=["text", "name"])
def test_half_a_surrogate_is_malformed_beside_a_call_too(part: dict[str, Any]) -> None:
    event = json.dumps(chunk(part, {"functionCall": {"name": "f"}}))
    assert type(failure(f"data: {event}", STOPS)[0]) is MalformedPayload


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_what_json_has_not_is_malformed_beside_a_call_too(number: str) -> None:
    event = json.dumps(chunk({"functionCall": {"name": "f"}}, usageMetadata={"x": 0})).replace(": 0", f": {number}")
    assert type(failure(f"data: {event}", STOPS)[0]) is MalformedPayload


def test_broken_json_is_called_broken_json_beside_a_call_too() -> None:
    assert "is not JSON" in str(failure('data: {"functionCall"')[0])


DEEP = {"lists": "[" * 990 + "]" * 990, "objects": '{"a":' * 990 + "1" + "}" * 990}
PLACES = [
    '{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","args":{"x":%s}}}]}}]}',
    '{"candidates":[{"content":{"parts":[{"text":%s}]}}]}',
    '{"candidates":[{"content":{"parts":[{"odd":%s}]}}]}',
    '{"candidates":[{"finishReason":%s}]}',
    '{"usageMetadata":{"promptTokenCount":%s}}',
    '{"error":%s}',
    '{"error":{"message":%s}}',
]


@pytest.mark.parametrize("deep", DEEP.values(), ids=list(DEEP))
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("extras", [False, True])
def test_deep_nesting_is_never_another_exception(place: str, deep: str, extras: bool) -> None:
    assembler = StreamAssembler("gemini", extras=extras)
    with pytest.raises(StreamError):
        _ = assembler.feed(stream("data: " + place % deep, "data: " + place % deep)), assembler.result()


def test_a_string_may_come_in_very_many_pieces() -> None:
    piece = stream(grows("$.a", stringValue="x" * 3_000))
    assembler = StreamAssembler("gemini")
    for part in (stream(opens()), *[piece] * 3_000, stream(CLOSES)):
        assembler.feed(part)
    assert assembler.message.tool_calls[0].args == {"a": "x" * 9_000_000}


def test_the_arguments_of_a_growing_call_are_bounded() -> None:
    assembler = StreamAssembler("gemini", limits=Limits(max_args=1_000))
    with pytest.raises(LimitExceeded, match="max_args=1,000"):
        assembler.feed(stream(opens(), *[grows("$.a", stringValue="x" * 100)] * 11, CLOSES))
