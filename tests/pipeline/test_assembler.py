from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any, Literal

import pytest
import reactivex
from hypothesis import given
from hypothesis import strategies as st
from reactivex import Observable
from reactivex import operators as ops

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
    assemble_tools,
    decode_deltas,
    decode_utf8,
    group_events,
    require_done,
    split_lines,
)
from rillet.operators.errors import (
    InvalidUtf8,
    LimitExceeded,
    MalformedPayload,
    MalformedToolArguments,
    StreamError,
    TruncatedStream,
    UnclosedToolCall,
)
from rillet.pipeline import Limits, SSEParser, StreamAssembler, deltas, find_protocol, parse_sse
from rillet.pipeline.protocols import PLAIN

Cuts = Callable[[bytes], Iterator[list[bytes]]]
Eof = Literal["discard", "dispatch"]


def wire(*payloads: dict[str, Any] | str, end: str = "\n") -> bytes:
    """Each payload as an event; a string is an event as it stands."""
    events = (
        payload if isinstance(payload, str) else f"data: {json.dumps(payload, ensure_ascii=False)}"
        for payload in payloads
    )
    return "".join(event.replace("\n", end) + end * 2 for event in events).encode()


def text(delta: str) -> dict[str, Any]:
    return {"type": "text", "delta": delta}


def start(index: int, name: str) -> dict[str, Any]:
    return {"type": "tool_call_start", "index": index, "id": f"call_{index}", "name": name}


def args(index: int, fragment: str) -> dict[str, Any]:
    return {"type": "tool_call_delta", "index": index, "args": fragment}


def end(index: int) -> dict[str, Any]:
    return {"type": "tool_call_end", "index": index}


DONE = "data: [DONE]"
CALLS_OPEN: list[dict[str, Any] | str] = [
    ": welcome",
    text("Café "),
    start(0, "order"),
    args(0, '{"dessert": "crè'),
    text("☕ "),
    start(1, "book"),
    args(1, '{"table"'),
    args(0, "me brû"),
    args(1, ": 7}"),
    args(0, 'lée"}'),
]
CAFE = wire(*CALLS_OPEN, end(1), end(0), f"event: done\n{DONE}", end="\r\n")
CAFE_ANSWER = (
    "Café ☕ ",
    [
        ToolCall(0, "call_0", "order", {"dessert": "crème brûlée"}, '{"dessert": "crème brûlée"}'),
        ToolCall(1, "call_1", "book", {"table": 7}, '{"table": 7}'),
    ],
)
HELLO = wire(text("Hello "), start(0, "f"), args(0, "{}"), end(0), text("world"), DONE)


def in_pieces(whole: bytes, size: int) -> list[bytes]:
    return [whole[n : n + size] for n in range(0, len(whole), size)]


def fed(assembler: StreamAssembler, chunks: list[bytes]) -> StreamAssembler:
    for chunk in chunks:
        assembler.feed(chunk)
    return assembler


# StreamAssembler


@pytest.mark.parametrize("size", range(1, 8))
def test_interleaved_calls_with_accents_arrive_whole(size: int) -> None:
    assert fed(StreamAssembler(), in_pieces(CAFE, size)).result() == CAFE_ANSWER


@pytest.mark.parametrize("size", range(1, 8))
def test_cut_before_the_first_end_there_is_no_answer(size: int) -> None:
    cut = CAFE[: CAFE.index(b"tool_call_end")]
    with pytest.raises(ValueError, match="inside an event") as caught:
        fed(StreamAssembler(), in_pieces(cut, size)).result()
    assert type(caught.value) is TruncatedStream
    assert caught.value.partial == (Message("Café ☕ "),)


def test_cuts_change_nothing(cuts: Cuts) -> None:
    for chunks in cuts(CAFE):
        assert fed(StreamAssembler(), chunks).result() == CAFE_ANSWER


def test_no_prefix_is_an_answer() -> None:
    for length in range(len(CAFE) - 3):  # the last LF but one of CRLF CRLF adds nothing to the CR before it
        assembler = fed(StreamAssembler(), [CAFE[:length]])
        with pytest.raises(TruncatedStream):
            assembler.result()


def test_feed_gives_the_deltas_as_they_complete() -> None:
    assembler = StreamAssembler()
    assert assembler.feed(wire(text("a"), start(0, "f"))) == [TextDelta("a"), ToolCallStart(0, "call_0", "f")]
    assert assembler.feed(b"data: ") == []
    assert assembler.feed(wire(args(0, "{}"), end(0))[6:]) == [
        ToolCallDelta(0, "{}"),
        ToolCallEnd(0),
        ToolCall(0, "call_0", "f", {}, "{}"),
    ]
    assert assembler.feed(wire(DONE)) == [Done()]


@pytest.mark.parametrize(
    "late",
    [
        pytest.param(b"\xff", id="a damaged byte"),
        pytest.param(b"data: " + b"x" * 200, id="a line too long"),
        pytest.param(b": ping\n" * 30, id="an event too long"),
        pytest.param(b"data: {\n\n", id="no JSON"),
        pytest.param(wire(end(7)), id="the end of no call"),
        pytest.param(wire(start(0, "f"), args(0, "{"), end(0), DONE), id="a malformed call"),
        pytest.param(wire(text("late"), DONE), id="another answer"),
    ],
)
def test_whatever_comes_after_done_is_not_looked_at(late: bytes, cuts: Cuts) -> None:
    for chunks in cuts(HELLO + late):
        assembler = StreamAssembler(limits=Limits(max_line=100, max_event=100))
        assert fed(assembler, chunks).result()[0] == "Hello world"


def test_after_done_feed_gives_nothing() -> None:
    assembler = fed(StreamAssembler(), [HELLO])
    assert assembler.feed(b"\xff" + wire(text("late"))) == []
    answer = assembler.result()
    assert assembler.feed(wire(text("later"))) == []
    assert assembler.result() == answer == ("Hello world", [ToolCall(0, "call_0", "f", {}, "{}")])


def test_after_a_result_that_failed_feed_fails_the_same_way() -> None:
    assembler = fed(StreamAssembler(), [wire(text("a"))])
    with pytest.raises(TruncatedStream) as first:
        assembler.result()
    with pytest.raises(TruncatedStream) as later:
        assembler.feed(wire(DONE))
    assert later.value is first.value


def test_feed_after_a_result_that_the_end_made_whole_is_a_mistake_of_the_caller() -> None:
    chunk = 'data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}'
    assembler = fed(StreamAssembler("openai-chat"), [wire(chunk)])
    assert assembler.result() == ("a", [])
    with pytest.raises(RuntimeError):
        assembler.feed(wire(DONE))


def test_a_failed_assembler_stays_failed() -> None:
    assembler = fed(StreamAssembler(), [wire(text("a"))])
    with pytest.raises(MalformedPayload) as first:
        assembler.feed(wire("data: {"))
    for again in (lambda: assembler.feed(wire(DONE)), assembler.result, assembler.result):
        with pytest.raises(MalformedPayload) as later:
            again()
        assert later.value is first.value
    assert assembler.message.text == "a"


def test_an_unfinished_result_stays_unfinished() -> None:
    assembler = fed(StreamAssembler(), [wire(text("a"))])
    with pytest.raises(TruncatedStream) as first:
        assembler.result()
    with pytest.raises(TruncatedStream) as second:
        assembler.result()
    assert second.value is first.value


def test_an_error_says_what_had_arrived() -> None:
    assembler = fed(StreamAssembler(), [wire(text("a"), start(0, "f"), args(0, "{}"), end(0))])
    broken = wire(text("b"), "data: {")
    with pytest.raises(MalformedPayload) as caught:
        assembler.feed(broken)
    error = caught.value
    assert error.partial == assembler.messages == (Message("ab", tool_calls=(ToolCall(0, "call_0", "f", {}, "{}"),)),)
    assert (error.retry_safe, error.bytes_seen) == (
        False,
        len(wire(text("a"), start(0, "f"), args(0, "{}"), end(0)) + broken),
    )


def test_before_the_first_delta_it_is_safe_to_try_again() -> None:
    with pytest.raises(TruncatedStream) as caught:
        fed(StreamAssembler(), [wire(": ping")]).result()
    assert (caught.value.retry_safe, caught.value.partial, caught.value.bytes_seen) == (True, (), 8)


def test_malformed_arguments_leave_the_other_calls() -> None:
    assembler = StreamAssembler()
    with pytest.raises(MalformedToolArguments) as caught:
        assembler.feed(wire(start(0, "f"), args(0, "{"), end(0), start(1, "g"), args(1, "{}"), end(1), DONE))
    assert (caught.value.index, caught.value.name, caught.value.args_text) == (0, "f", "{")
    assert assembler.message.tool_calls == (ToolCall(1, "call_1", "g", {}, "{}"),)


def test_done_inside_a_call_is_no_answer() -> None:
    with pytest.raises(UnclosedToolCall) as caught:
        StreamAssembler().feed(wire(start(0, "f"), args(0, "{}"), DONE))
    assert (caught.value.index, caught.value.id, caught.value.args_text) == (0, "call_0", "{}")


def test_an_unknown_protocol_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="openai-chat"):
        StreamAssembler("openai")
    with pytest.raises(ValueError, match="plain"):
        deltas(reactivex.empty(), "plane")


def test_a_protocol_of_ones_own_is_taken() -> None:
    assert fed(StreamAssembler(PLAIN), [HELLO]).result() == fed(StreamAssembler("plain"), [HELLO]).result()


def test_an_event_that_no_blank_line_ends_counts_only_with_eof_dispatch() -> None:
    unfinished = HELLO.rstrip()
    with pytest.raises(TruncatedStream):
        fed(StreamAssembler(), [unfinished]).result()
    assert fed(StreamAssembler(eof="dispatch"), [unfinished]).result()[0] == "Hello world"
    with pytest.raises(TruncatedStream):
        fed(StreamAssembler(eof="dispatch"), [unfinished[:-1]]).result()


def test_extras_come_on_request() -> None:
    odd = wire({"type": "odd", "x": 1})
    assert StreamAssembler().feed(odd) == []
    assert StreamAssembler(extras=True).feed(odd) == [ProviderEvent("odd", {"type": "odd", "x": 1})]


LONGEST_LINE = len(wire(start(0, "f"))) - 2
LIMITS = [
    pytest.param("max_bytes", len(HELLO), id="max_bytes"),
    pytest.param("max_line", LONGEST_LINE, id="max_line"),
    pytest.param("max_event", LONGEST_LINE, id="max_event"),
    pytest.param("max_args", 2, id="max_args"),
]


@pytest.mark.parametrize(("which", "limit"), LIMITS)
def test_exactly_at_a_limit_passes(which: str, limit: int, cuts: Cuts) -> None:
    for chunks in cuts(HELLO):
        assert fed(StreamAssembler(limits=Limits(**{which: limit})), chunks).result()[0] == "Hello world"


@pytest.mark.parametrize(("which", "limit"), LIMITS)
def test_one_over_a_limit_fails_after_what_came_before(which: str, limit: int, cuts: Cuts) -> None:
    for chunks in cuts(HELLO):
        assembler = StreamAssembler(limits=Limits(**{which: limit - 1}))
        with pytest.raises(LimitExceeded) as caught:
            fed(assembler, chunks)
        assert (caught.value.which, caught.value.limit) == (which, limit - 1)
        assert assembler.message.text.startswith("Hello ")


def test_none_lifts_every_limit() -> None:
    assembler = StreamAssembler(limits=Limits(None, None, None, None))
    long = json.dumps({"x": "y" * 17 * 1024 * 1024})
    answer = fed(assembler, [wire(start(0, "f"), args(0, long), end(0), DONE)]).result()
    assert len(answer[1][0].args_text) == len(long)


# SSEParser and parse_sse


MIXED = (
    "\ufeff: привет\r\n\r\nevent: greeting\r\nid: 1\r\ndata: Добрый день, 世\r\ndata: и 🚀\r\n: bye\r\n\r\n"
    "data: incomplete\r\n"
).encode()


def test_two_data_lines_are_one_event() -> None:
    assert SSEParser().feed(b"data: a\ndata: b\n\n") == [("message", "a\nb")]


def test_every_cut_of_every_alphabet_gives_one_event(cuts: Cuts) -> None:
    for chunks in cuts(MIXED):
        parser = SSEParser()
        pairs = [pair for chunk in chunks for pair in parser.feed(chunk)]
        assert pairs == list(parse_sse(chunks)) == [("greeting", "Добрый день, 世\nи 🚀")]


@pytest.mark.parametrize(
    "unfinished", [b"data: incomplete\n", b"data: incomplete", b"data: {}\n", b"data: [DONE]", b""]
)
def test_an_unfinished_event_is_discarded(unfinished: bytes) -> None:
    assert list(parse_sse([unfinished])) == []


def test_lines_of_no_field_are_ignored() -> None:
    assert list(parse_sse([b'error: x\n{"error": 1}\n\ndata: a\n\n'])) == [("message", "a")]


def test_parse_sse_reads_no_further_than_asked() -> None:
    pulled = itertools.count()
    pairs = parse_sse(b"data: %d\n\n" % n for n in pulled)
    assert (next(pairs), next(pairs), next(pulled)) == (("message", "0"), ("message", "1"), 2)


@pytest.mark.parametrize(
    ("limits", "too_long"),
    [
        pytest.param({"max_line": 7}, b"data: 12\n\n", id="max_line"),
        pytest.param({"max_event": 7}, b"data: 1\n:\n\n", id="max_event"),
        pytest.param({"max_event": 20}, b": 8 bytes\n" * 3, id="max_event, comments alone"),
        pytest.param({"max_total": 10}, b"\n", id="max_total"),
        pytest.param({}, b"data: " + b"x" * 65_531, id="max_line by default"),
        pytest.param({}, b"data: 78\n" * 32_768 + b":\n", id="max_event by default"),
        pytest.param({}, b":2345678901234\n\n" * 524_288, id="max_total by default"),
    ],
)
def test_a_limit_is_raised_after_the_events_before(limits: dict[str, int], too_long: bytes) -> None:
    pairs = parse_sse([b"data: a\n\n" + b"\n" * ("max_total" in limits), too_long], **limits)
    assert next(pairs) == ("message", "a")
    with pytest.raises(LimitExceeded):
        next(pairs)


@pytest.mark.parametrize(
    ("limits", "just_short_enough"),
    [
        pytest.param({"max_line": 7}, b"data: 1\n\n", id="max_line"),
        pytest.param({"max_event": 8}, b"data: 1\n:\n\n", id="max_event"),
        pytest.param({"max_total": 9}, b"data: a\n\n", id="max_total"),
        pytest.param({}, b"data: " + b"x" * 65_530 + b"\n\n", id="max_line by default"),
        pytest.param({}, b"data: 78\n" * 32_768 + b"\n", id="max_event by default"),
        pytest.param({}, b":2345678901234\n\n" * 524_287 + b"data: 12345678\n\n", id="max_total by default"),
        pytest.param({"max_event": None}, b"data: 7890\n" * 26_215 + b"\n", id="no max_event"),
        pytest.param({"max_line": None}, b"data: " + b"x" * 65_531 + b"\n\n", id="no max_line"),
        pytest.param({"max_total": None}, b":2345678901234\n\n" * 524_288 + b"data: a\n\n", id="no max_total"),
    ],
)
def test_just_within_a_limit_passes(limits: dict[str, Any], just_short_enough: bytes) -> None:
    assert len(list(parse_sse([just_short_enough], **limits))) == 1
    parser = SSEParser(**({"max_line": 65_536, "max_event": 262_144, "max_total": 8_388_608} | limits))
    assert len(parser.feed(just_short_enough)) == 1


@pytest.mark.parametrize("endless", [b"data: xx", b":", b"data: x\n", b": ping\n", b"\n\n\n\n", b"event: x\n\n"])
def test_nothing_endless_is_read_for_ever(endless: bytes) -> None:
    pulled = itertools.count()
    with pytest.raises(LimitExceeded):
        list(parse_sse((endless for _ in pulled), max_line=100, max_event=200, max_total=1000))
    assert next(pulled) * len(endless) <= 1000 + 2 * len(endless)


def test_a_damaged_byte_is_raised_at_once_after_what_came_before() -> None:
    endless = itertools.chain([b"data: a\n\n", b"data: b\n\n\xff"], itertools.repeat(b"data: c\n\n"))
    pairs = parse_sse(endless)
    assert [next(pairs), next(pairs)] == [("message", "a"), ("message", "b")]
    with pytest.raises(InvalidUtf8) as caught:
        next(pairs)
    assert caught.value.offset == 18


def test_an_end_inside_a_character_is_a_truncated_stream() -> None:
    pairs = parse_sse([b"data: a\n\n", b"\xc3"])
    assert next(pairs) == ("message", "a")
    with pytest.raises(TruncatedStream):
        next(pairs)


def test_a_failed_parser_keeps_what_came_before_and_stays_failed() -> None:
    parser = SSEParser()
    with pytest.raises(InvalidUtf8) as first:
        parser.feed(b"data: a\n\n\xff")
    assert parser.latest == [("message", "a")]
    with pytest.raises(InvalidUtf8) as second:
        parser.feed(b"data: b\n\n")
    assert second.value is first.value
    assert parser.latest == []


# The same stages, however they are joined


def lifted(source: Observable[bytes], protocol: str, eof: Eof, *between: Any) -> Observable[Delta]:
    """The six operators one by one, with `between` after each."""
    six: list[Any] = [
        decode_utf8(),
        split_lines(eof="dispatch"),
        group_events(eof=eof, stray="dispatch", half="fail"),
        decode_deltas(find_protocol(protocol)),
        assemble_tools(),
        require_done(),
    ]
    return source.pipe(*(part for operator in six for part in (operator, *between)))


def outcome(observable: Observable[Delta]) -> tuple[list[Delta], StreamError | None]:
    items: list[Delta] = []
    ends: list[Any] = []
    observable.subscribe(items.append, ends.append, lambda: ends.append(None))
    (error,) = ends
    return items, error


def assembled(chunks: list[bytes], protocol: str, eof: Eof) -> tuple[tuple[Message, ...], StreamError | None]:
    assembler = StreamAssembler(protocol, eof=eof)
    fault: StreamError | None = None
    try:
        fed(assembler, chunks).result()
    except StreamError as error:
        fault = error
    return assembler.messages, fault


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
ARGUMENTS = st.sampled_from(
    ["", "{}", "null", '{"a": 1}', '{"a": "é"}', '{"n": 12345678901234567890123}', '"{}"', "{", "[]"]
)


@st.composite
def fragments(draw: st.DrawFn) -> list[str]:
    """The arguments of a call, cut anywhere."""
    whole = draw(ARGUMENTS)
    at = draw(st.integers(0, len(whole)))
    return draw(st.sampled_from([[whole], [whole[:at], whole[at:]], [""], ["", whole]]))


@st.composite
def plain_call(draw: st.DrawFn) -> list[dict[str, Any]]:
    index = draw(st.integers(0, 2))
    return [start(index, "f"), *(args(index, fragment) for fragment in draw(fragments())), end(index)]


def choice(delta: Any, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta} | more]}


@st.composite
def chat_call(draw: st.DrawFn) -> list[dict[str, Any]]:
    """A call as one server or another tells it: the index, the id and the name each whole, empty, late or missing."""
    place: dict[str, Any] = draw(st.sampled_from([{"index": 0}, {"index": 1}, {"index": 2}, {"index": None}, {}]))
    id: dict[str, Any] = draw(st.sampled_from([{"id": "c"}, {"id": "d"}, {"id": ""}, {}]))
    name: dict[str, Any] = draw(st.sampled_from([{"name": "f"}, {"name": "f"}, {"name": "g"}, {"name": ""}]))
    legacy, again = draw(st.sampled_from([True, *[False] * 5])), draw(st.booleans())
    events = []
    for n, fragment in enumerate(draw(fragments())):
        function = {"arguments": fragment} | (name if n == 0 or again else {})
        entry = place | (id if n == 0 or again else {}) | {"function": function}
        events.append(choice({"function_call": function} if legacy else {"tool_calls": [entry]}))
    return events


ODD_CHAT_EVENTS: list[dict[str, Any]] = [
    choice({"role": "assistant", "content": None}),
    choice({"content": "☕", "reasoning": "hm"}),
    choice({"reasoning_details": [{"text": "hm"}, {"type": "encrypted"}]}),
    choice({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, "so"]}),
    choice({"refusal": "no"}),
    choice({"tool_calls": [{"id": "o", "function": {"name": "f", "arguments": {"n": 2**70}}}]}),
    choice({"tool_calls": [{"id": "t", "type": "custom", "custom": {"name": "f", "input": 'raw "text"'}}]}),
    choice({"content": "b"}, index=1),
    choice({}, index=1, finish_reason="length"),
    choice({}, finish_reason="tool_calls"),
    choice({}, finish_reason="stop", usage={"prompt_tokens": 1}),
    {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}},
    {"choices": [], "x_groq": {"usage": {"total_tokens": 3}}},
    {"error": {"message": "busy", "code": 503}},
    {"object": "error", "message": "busy"},
    choice({}, finish_reason="error"),
]
CHAT_END = st.sampled_from([[choice({}, finish_reason="tool_calls")], [choice({}, finish_reason="stop")], []])
PLAIN_PART = st.one_of(
    st.text(max_size=4).map(lambda piece: [text(piece)]),
    plain_call(),
    st.sampled_from([[{"type": "error", "message": "busy"}], [{"type": "odd"}], [start(0, "g")], [end(1)]]),
)
CHAT_PART = st.one_of(
    st.text(max_size=4).map(lambda piece: [choice({"content": piece})]),
    chat_call(),
    chat_call(),
    st.sampled_from(ODD_CHAT_EVENTS).map(lambda event: [event]),
)
DONE_EVENT = wire(DONE)
LINES = st.sampled_from(
    [
        "\n",
        "\r\n",
        "\r",
        ": ping\n",
        "event: error\n",
        "event: done\n",
        "id: 1\n",
        "retry: 9\n",
        "data: [DONE]\n\n",
        'error: {"message":"x"}\n',
        '{"error":{"message":"x"}}\n',
        "data: {\n",
        "data: }\n",
        "data: null\n\n",
        "data: : ping\n\n",
        "\ufeff",
    ]
).map(str.encode) | st.binary(max_size=4)


def spoilt(value: Any, draw: st.DrawFn) -> Any:
    """The same with something in it, anywhere, replaced by junk or gone."""
    if isinstance(value, list) and value and draw(st.booleans()):
        at = draw(st.integers(0, len(value) - 1))
        return [*value[:at], spoilt(value[at], draw), *value[at + 1 :]]
    if isinstance(value, dict) and value and draw(st.sampled_from([True, True, False])):
        key = draw(st.sampled_from(sorted(value)))
        rest = {name: item for name, item in value.items() if name != key}
        return rest if draw(st.booleans()) else {**rest, key: spoilt(value[key], draw)}
    return draw(JUNK)


@st.composite
def streams(draw: st.DrawFn, part: st.SearchStrategy[list[Any]], ending: st.SearchStrategy[list[Any]]) -> bytes:
    """Something like a stream: good parts and odd ones, perhaps one event spoilt, garbage between, any ending."""
    events = [event for part in draw(st.lists(part, max_size=5)) for event in part] + draw(ending)
    damage = draw(st.sampled_from(["none", "none", "none", "spoilt", "lost", "lines", "cut"]))
    if events and damage in ("spoilt", "lost"):
        at = draw(st.integers(0, len(events) - 1))
        events[at : at + 1] = [spoilt(events[at], draw)] if damage == "spoilt" else []
    line_end = draw(st.sampled_from(["\n", "\n", "\r\n", "\r"]))
    pieces = [f"data: {json.dumps(event, ensure_ascii=draw(st.booleans()))}{line_end * 2}".encode() for event in events]
    if damage == "lines":
        pieces.insert(draw(st.integers(0, len(pieces))), b"".join(draw(st.lists(LINES, min_size=1, max_size=3))))
    whole = b"".join(pieces) + draw(st.sampled_from([DONE_EVENT, DONE_EVENT, b""]))
    whole += draw(st.sampled_from([b"", b"", b"", b"\xff", b"data: {\n\n", b"data: late"]))
    return whole[: draw(st.integers(0, len(whole)))] if damage == "cut" else whole


ANY_STREAM = st.one_of(
    st.tuples(st.just("plain"), streams(PLAIN_PART, st.just([]))),
    st.tuples(st.just("openai-chat"), streams(CHAT_PART, CHAT_END)),
    st.tuples(st.just("openai-chat"), streams(CHAT_PART, CHAT_END)),
    st.tuples(st.sampled_from(["plain", "openai-chat"]), st.binary()),
)
CUT_AT = st.lists(st.integers(0, 1500), max_size=12)
EOFS = st.sampled_from(["discard", "dispatch"])


def cut_at(whole: bytes, places: list[int]) -> list[bytes]:
    at = sorted(place % (len(whole) + 1) for place in places)
    return [whole[a:b] for a, b in zip([0, *at], [*at, len(whole)], strict=True)]


@given(ANY_STREAM, CUT_AT, EOFS)
def test_any_bytes_end_in_done_or_in_one_stream_error(stream: tuple[str, bytes], places: list[int], eof: Eof) -> None:
    protocol, whole = stream
    items, error = outcome(deltas(reactivex.from_iterable(cut_at(whole, places)), protocol, eof=eof))
    assert Done() not in items[:-1]
    if error is None:
        assert items[-1] == Done()
    else:
        assert isinstance(error, StreamError)
        assert Done() not in items
        assert error.retry_safe is not bool(items)


@given(ANY_STREAM, CUT_AT, EOFS)
def test_joined_apart_or_without_rx_it_is_the_same(stream: tuple[str, bytes], places: list[int], eof: Eof) -> None:
    protocol, whole = stream
    chunks = cut_at(whole, places)
    source = reactivex.from_iterable(chunks)
    items, error = outcome(deltas(reactivex.of(whole), protocol, eof=eof))
    for same in (
        deltas(source, protocol, eof=eof),
        lifted(source, protocol, eof),
        lifted(source, protocol, eof, ops.map(lambda item: item)),
    ):
        its_items, its_error = outcome(same)
        assert (its_items, type(its_error), str(its_error)) == (items, type(error), str(error))
    messages, fault = assembled(chunks, protocol, eof)
    assert (type(fault), str(fault)) == (type(error), str(error))
    assert error is None or error.partial == messages
    texts = [item.text for item in items if type(item) is TextDelta and item.choice == 0]
    assert "".join(texts) == next((message.text for message in messages if message.choice == 0), "")


@given(ANY_STREAM, CUT_AT)
def test_no_call_is_made_up(stream: tuple[str, bytes], places: list[int]) -> None:
    """A tool call was started, its fragments are its arguments, and it comes right after its end."""
    protocol, whole = stream
    items, _ = outcome(deltas(reactivex.from_iterable(cut_at(whole, places)), protocol))
    begun: dict[tuple[int, int], ToolCallStart] = {}
    fragments: dict[tuple[int, int], str] = {}
    for before, item in zip([None, *items], items, strict=False):
        if isinstance(item, ToolCallStart):
            begun[item.choice, item.index], fragments[item.choice, item.index] = item, ""
        elif isinstance(item, ToolCallDelta):
            fragments[item.choice, item.index] += item.args
        elif isinstance(item, ToolCall):
            key = item.choice, item.index
            assert before == ToolCallEnd(item.index, item.choice)
            assert (item.id, item.name, item.args_text) == (begun[key].id, begun[key].name, fragments[key])


@pytest.mark.parametrize(
    "half", ["d", "data", "data:", 'data: {"choices":[{"index":1,"de', "data: {}\ndata: [", "data: [DON"]
)
@pytest.mark.parametrize("eof", ["discard", "dispatch"])
def test_a_clean_end_inside_an_event_is_a_cut(half: str, eof: Eof) -> None:
    finished = 'data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}\n\n'
    assert fed(StreamAssembler("openai-chat", eof=eof), [finished.encode()]).result() == ("a", [])
    with pytest.raises(TruncatedStream, match="inside an event"):
        fed(StreamAssembler("openai-chat", eof=eof), [finished.encode(), half.encode()]).result()


@pytest.mark.parametrize("rest", [": ping", "id: 7", "data: [DONE]", 'data: {"choices":[]}', "event: x\n"])
def test_what_is_no_half_event_does_not_spoil_a_clean_end(rest: str) -> None:
    finished = 'data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}\n\n'
    assert fed(StreamAssembler("openai-chat"), [finished.encode(), rest.encode()]).result() == ("a", [])


@pytest.mark.parametrize("protocol", ["plain", "openai-chat"])
def test_a_stream_of_another_dialect_is_not_an_empty_answer(protocol: str) -> None:
    with pytest.raises(MalformedPayload, match=f"nothing was {protocol}"):
        fed(StreamAssembler(protocol), [b'data: {"symbol":"X"}\n\ndata: [DONE]\n\n']).result()
