"""Events that are read from their bytes give what framing and parsing give: with every chunk the same deltas."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Sequence
from importlib import import_module
from itertools import chain as joined
from itertools import pairwise
from typing import Any, Literal, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire_events import EVENTS, OPENINGS, Unlearnt, mostly

from rillet.operators import (
    Chain,
    Delta,
    Done,
    ReasoningDelta,
    ServerSentEvent,
    TextDelta,
    ToolCallDelta,
    Usage,
)
from rillet.operators.decode_deltas import DecodeDeltas
from rillet.operators.errors import StreamError, TransportError
from rillet.operators.events import make_event
from rillet.operators.frame_sse import FrameSse, frame_sse
from rillet.operators.meter import Meter, metering
from rillet.operators.skim_sse import SkimSse
from rillet.operators.stage import collected
from rillet.pipeline import Limits
from rillet.pipeline.chain import DEFAULT_LIMITS, DeltaChain
from rillet.pipeline.protocols import PROTOCOLS
from rillet.pipeline.protocols.text_template import _TRIES, TextTemplate, _compiled

Outcome: TypeAlias = tuple[list[list[Delta]], str, int, int | None, tuple[int, int]]
"""The deltas, chunk by chunk; the fault; how many events, and bytes up to the fault; what was metered."""

SSE = [name for name in EVENTS if PROTOCOLS[name].framing == "sse"]
LineEnd: TypeAlias = Literal["\n", "\r\n", "\r"]


def outcome(
    protocol: str,
    chunks: Iterable[bytes],
    limits: Limits = DEFAULT_LIMITS,
    *,
    extras: bool = False,
    breaks: bool = False,
) -> Outcome:
    """What the chunks give; in the end, the source may break off."""
    meter, fault, deltas = Meter(), None, list[list[Delta]]()
    with metering(meter):
        chain = DeltaChain(protocol, limits=limits, extras=extras)
    for chunk in chunks:
        given, fault = chain.take((chunk,))
        deltas.append(list(given))
        if fault is not None or chain.closed:
            break
    else:
        last, fault = collected((lambda: chain.fail(TransportError("gone"))) if breaks else chain.finish)
        deltas.append(last)
    assert fault is None or isinstance(fault, StreamError)
    heartbeats = meter.heartbeats if fault is None else 0  # after a fault, some more may have been framed
    counted = meter.deltas, heartbeats
    return deltas, f"{type(fault).__name__}: {fault}", chain.events_seen, fault and fault.bytes_seen, counted


def both_ways(protocol: str, chunks: Sequence[bytes], *options: Limits, **more: bool) -> tuple[Outcome, Outcome]:
    """What the chunks give with a template, and without."""
    shortly = outcome(protocol, chunks, *options, **more)
    module = import_module(f"rillet.pipeline.protocols.{protocol.replace('-', '_')}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "TextTemplate", Unlearnt)
        patch.setattr("rillet.pipeline.chain.SkimSse", lambda frame, decode, _: Chain(frame, decode))
        return shortly, outcome(protocol, chunks, *options, **more)


class Layout:
    """How a server writes its events."""

    def __init__(self, line_end: LineEnd, space: str, *, typed: bool, before: str, indented: bool) -> None:
        self._line_end = line_end
        self._space = space
        self._typed = typed
        self._before = before
        self._indent = 1 if indented else None

    def bytes_of(self, payload: dict[str, Any], *, ascii_only: bool) -> bytes:
        """One event."""
        data = json.dumps(payload, ensure_ascii=ascii_only, indent=self._indent)
        kind = payload.get("type")
        lines = [self._before] if self._before else []
        lines += [f"event:{self._space}{kind}"] if self._typed and isinstance(kind, str) else []
        lines += [f"data:{self._space}{line}" for line in data.split("\n")]
        return self._line_end.join([*lines, "", ""]).encode(errors="replace")


layouts = st.builds(
    Layout,
    st.sampled_from(["\n", "\n", "\r\n", "\r"]),
    st.sampled_from([" ", " ", ""]),
    typed=st.booleans(),
    before=mostly(st.just(""), st.sampled_from([": ping", "id: 7", "retry: 5"])),
    indented=mostly(st.just(False), st.just(True)),
)


@st.composite
def streams(draw: st.DrawFn, protocol: str) -> bytes:
    """Events, each of them once or some times, mostly in one layout; a byte may be wrong."""
    layout, ascii_only = draw(layouts), draw(st.booleans())
    payloads = [OPENINGS[protocol]] if protocol in OPENINGS and draw(st.booleans()) else []
    for payload in draw(st.lists(EVENTS[protocol], max_size=8)):
        payloads += [payload] * draw(st.integers(1, 4))
    body = bytearray()
    for payload in payloads:
        written = layout if draw(st.integers(0, 19)) else draw(layouts)
        body += written.bytes_of(payload, ascii_only=ascii_only)
    body += draw(st.sampled_from([b"", b"", b"data: [DONE]\n\n", b"data: {", b'{"error":{"message":"no"}}\n']))
    if body and draw(st.integers(0, 9)) == 7:
        body[draw(st.integers(0, len(body) - 1))] = draw(st.integers(0, 255))
    return bytes(body)


@st.composite
def chunked(draw: st.DrawFn, body: bytes) -> list[bytes]:
    """The bytes in chunks: an event each, or cut anywhere."""
    if draw(st.booleans()):
        return [piece + b"\n\n" for piece in body.split(b"\n\n")]
    size = draw(st.sampled_from([1, 7, 60, 300, 10_000]))
    dice = random.Random(draw(st.integers(0, 2**16)))
    places = [0]
    while places[-1] < len(body):
        places.append(min(places[-1] + dice.randint(1, 2 * size), len(body)))
    return [body[a:b] for a, b in pairwise(places)]


@pytest.mark.parametrize("protocol", SSE)
@given(data=st.data())
def test_with_and_without_it_every_chunk_gives_the_same(protocol: str, data: st.DataObject) -> None:
    body = data.draw(streams(protocol))
    small = st.none() | st.integers(1, 2 * len(body) + 1)
    limits = data.draw(mostly(st.just(Limits()), st.builds(Limits, small, small, small, small)))
    extras, breaks = data.draw(st.booleans()), data.draw(st.booleans())
    shortly, plainly = both_ways(protocol, data.draw(chunked(body)), limits, extras=extras, breaks=breaks)
    if shortly[1].startswith("InvalidUtf8"):  # in what waits for the rest of its event, it is found a little later
        assert [*joined(*shortly[0])] == [*joined(*plainly[0])]
        assert shortly[1] == plainly[1]
    else:
        assert shortly == plainly


CHAT = '{"id":"c","choices":[{"index":%d,"delta":{"content":"%s"},"finish_reason":null}]}'
GEMINI = (
    '{"candidates":[{"index":0,"content":{"parts":[{"text":"%s"}]}}],'
    '"usageMetadata":{"promptTokenCount":3,"candidatesTokenCount":%d},"responseId":"r"}'
)
RESPONSE = (
    '{"type":"response.output_text.delta","delta":"%s","item_id":"%s","obfuscation":"x","output_index":0,'
    '"sequence_number":%d}'
)


def chain_after(protocol: str, *events: str) -> DeltaChain:
    """A chain that has read some events, each in a chunk."""
    chain = DeltaChain(protocol)
    for event in events:
        assert chain.take((event.encode(),))[1] is None
    return chain


def sse(data: str, blank: str = "\n\n") -> str:
    return f"data: {data}{blank}"


def skimmed(chain: DeltaChain, chunk: str, monkeypatch: pytest.MonkeyPatch) -> list[Delta]:
    """What a chunk gives of which nothing is framed."""

    def refuse(*_: object) -> None:
        raise AssertionError("it was framed")

    with monkeypatch.context() as patch:
        patch.setattr("rillet.operators.frame_sse.FrameSse.take", refuse)
        given, fault = chain.take((chunk.encode(),))
    assert fault is None
    return list(given)


@pytest.mark.parametrize("blank", ["\n\n", "\r\n\r\n"])
def test_an_event_like_the_last_is_not_framed(blank: str, monkeypatch: pytest.MonkeyPatch) -> None:
    chain = chain_after("openai-chat", *(sse(CHAT % (0, text), blank) for text in ("", "a", "b")))
    chunk = sse(CHAT % (0, "c"), blank) + sse(CHAT % (0, 'é\\n\\"'), blank)
    assert skimmed(chain, chunk, monkeypatch) == [TextDelta("c"), TextDelta('é\n"')]
    assert chain.events_seen == 5
    assert chain.message().text == 'abcé\n"'


def test_the_beginning_of_one_waits_for_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    chain = chain_after("openai-chat", *(sse(CHAT % (0, text)) for text in ("", "a", "b")))
    whole = sse(CHAT % (0, "c"))
    for cut in range(1, len(whole)):
        assert skimmed(chain, whole[:cut], monkeypatch) == []
        assert skimmed(chain, whole[cut:] + whole, monkeypatch) == [TextDelta("c")] * 2


def test_choices_that_take_turns_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    heads = [sse(CHAT % (index, "")) for index in range(3)]
    chain = chain_after("openai-chat", *heads, sse(CHAT % (0, "a")), sse(CHAT % (1, "b")))
    chunk = sse(CHAT % (2, "c")) + sse(CHAT % (0, "d"))
    assert skimmed(chain, chunk, monkeypatch) == [TextDelta("c", 2), TextDelta("d", 0)]


def test_figures_come_with_every_piece_of_text(monkeypatch: pytest.MonkeyPatch) -> None:
    events = [sse(GEMINI % (text, count), "\r\n\r\n") for count, text in enumerate("abcdd")]
    chain = chain_after("gemini", *events[:3])
    last = {"promptTokenCount": 3, "candidatesTokenCount": 4}
    assert skimmed(chain, events[4], monkeypatch) == [TextDelta("d"), Usage(3, 4, None, last)]
    assert skimmed(chain, events[4], monkeypatch) == [TextDelta("d")]


def test_figures_on_several_lines_are_read() -> None:
    event = sse(GEMINI % ("a", 1)).replace(',"candidatesTokenCount', ',\ndata: "candidatesTokenCount').encode()
    assert event.count(b"\ndata: ") == 1
    shortly, plainly = both_ways("gemini", [event] * 4)
    assert shortly == plainly


def test_what_the_dialect_does_not_read_may_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    events = [sse(RESPONSE % (text, f"msg_{number}", number)) for number, text in enumerate("abc", 9)]
    chain = chain_after("openai-responses", *events[:2])
    assert skimmed(chain, events[2], monkeypatch) == [TextDelta("c")]


def counting() -> CountingSkim:
    """A stage of `openai-chat` that counts."""
    decode = DecodeDeltas(PROTOCOLS["openai-chat"])
    assert decode.template is not None
    return CountingSkim(frame_sse(make_event), decode, decode.template)


def blocks_read(body: bytes, size: int) -> int:
    """How many blocks were framed and parsed of a stream in chunks of some size."""
    stage = counting()
    for at in range(0, len(body), size):
        _, fault = stage.take((body[at : at + size],))
        assert fault is None
    assert not list(stage.finish())
    return stage.blocks


class CountingSkim(SkimSse):
    """One that counts the blocks it has read by its two stages."""

    blocks = 0

    def _read(self, data: bytes, deltas: list[Delta]) -> Exception | None:
        self.blocks += 1
        return super()._read(data, deltas)


@pytest.mark.parametrize(
    ("size", "blank"),
    [
        *((size, "\n\n") for size in (1, 16, 70, 100, 10_000)),
        # A CR ends an event at once: where the last CRLF is cut, nothing waits for its LF.
        *((size, "\r\n\r\n") for size in (16, 70, 100, 10_000)),
    ],
)
def test_chunks_of_any_size_are_skimmed(size: int, blank: str) -> None:
    event = sse(CHAT % (0, "a"), blank).encode()
    first = -(-len(event) // size)  # so many chunks does the first event have, which is not known
    assert blocks_read(event * 50, size) <= (2 * first + 2 if blank == "\n\n" else 50)


@pytest.mark.parametrize("ping", [": ping\n\n", "event: ping\ndata: {}\n\n"])
def test_pings_do_not_end_the_skimming(ping: str) -> None:
    event = sse(CHAT % (0, "a")).encode()
    stage = counting()
    for chunk in (event[:20], event[20:], *[ping.encode()] * 20, *[event] * 50):
        stage.take((chunk,))
    assert stage.blocks <= 2 + 20 + 4


def test_a_last_line_end_in_pieces_is_no_layout_seen_in_vain() -> None:
    event = sse(CHAT % (0, "a"), "\r\n\r\n").encode()
    stage = counting()
    for chunk in [event[:-1], event[-1:]] * 12:
        stage.take((chunk,))
    before = stage.blocks
    for _ in range(50):
        stage.take((event,))
    assert stage.blocks <= before + 3


def test_a_long_event_in_small_chunks_is_no_layout_seen_in_vain() -> None:
    event, long = (sse(CHAT % (0, text)).encode() for text in ("a", "x" * 5_000))
    stage = counting()
    for chunk in (event, *[long[at : at + 64] for at in range(0, len(long), 64)]):
        stage.take((chunk,))
    before = stage.blocks
    for _ in range(50):
        stage.take((event,))
    assert stage.blocks <= before + 3


def test_a_layout_that_can_t_be_learnt_is_given_up() -> None:
    stage, waited = counting(), list[bool]()
    event = sse(CHAT % (0, "a") + "\nid: 1").encode()
    for _ in range(12):
        blocks = stage.blocks
        stage.take((event[:50],))
        waited.append(stage.blocks == blocks)
        stage.take((event[50:],))
    # The first event makes the choice, the second is learnt.
    assert waited == [False, False, *[True] * _TRIES, False, False]


@pytest.mark.parametrize("chunk", [": ping\n", ": ping"])
def test_a_comment_counts_before_the_layout_was_seen(chunk: str) -> None:
    """It must not wait for what may never come: it says that the stream is alive."""
    first = sse(CHAT % (0, "")) + "id: 1\n" + sse(CHAT % (0, "a"))
    shortly, plainly = both_ways("openai-chat", [first.encode(), chunk.encode()], breaks=True)
    assert shortly == plainly
    meter = Meter()
    with metering(meter):
        chain = DeltaChain("openai-chat")
    chain.take((first.encode(),))
    before = meter.heartbeats
    chain.take((chunk.encode(),))
    assert meter.heartbeats == before + chunk.endswith("\n")


def test_nothing_is_known_after_the_end() -> None:
    decode = DecodeDeltas(PROTOCOLS["plain"])
    assert decode.template is not None
    stage = SkimSse(frame_sse(make_event), decode, decode.template)
    said = '{"type":"text","delta":"%s"}'
    body = "".join(map(sse, (said % "a", said % "b", said % "c", "[DONE]", said % "d")))
    deltas, fault = stage.take((body.encode(),))
    assert (deltas, fault) == ([TextDelta("a"), TextDelta("b"), TextDelta("c"), Done()], None)
    assert stage.take((sse(said % "e").encode(),)) == ([], None)


@pytest.mark.parametrize(
    "rest",
    [
        CHAT % (0, "\\ud800"),
        CHAT % (0, "\\x"),
        CHAT % (0, ""),
        CHAT % (1, "x"),
        CHAT.replace("null", '"stop"') % (0, "x"),
        (CHAT % (0, "x"))[:-1],
        (CHAT % (0, "x")) + " ",
        (CHAT % (0, "x")) + "\ndata: ",
        (CHAT % (0, "x")) + "\nevent: error",
        (CHAT % (0, "x")) + "\rdata: x",
        (CHAT % (0, "x")) + "\nid: 5",
    ],
)
def test_what_only_looks_like_the_last(rest: str) -> None:
    body = "".join(sse(data) for data in (CHAT % (0, ""), CHAT % (0, "a"), CHAT % (0, "b"), rest, CHAT % (0, "c")))
    for chunks in ([body.encode()], [event.encode() + b"\n\n" for event in body.split("\n\n")]):
        shortly, plainly = both_ways("openai-chat", chunks)
        assert shortly == plainly


@pytest.mark.parametrize("index", ["1.0", "true", "-1", "10e-1", "1e0", "01", '"1"', "null"])
def test_an_index_may_be_written_in_an_odd_way(index: str) -> None:
    odd = CHAT.replace("%d", index)
    bodies = [CHAT % (0, ""), CHAT % (1, ""), odd % "a", odd % "b", CHAT % (1, "c"), odd % "d"]
    shortly, plainly = both_ways("openai-chat", [sse(body).encode() for body in bodies])
    assert shortly == plainly


SAID = '{"choices":[{"index":%s,"delta":{"content":"%s"}}]}'
COMPLETION = '{"choices":[{"index":0,"text":"%s"}],"usage":{"prompt_tokens":1}}'
TWO = '{"choices":[{"index":0,"finish_reason":"stop"},{"index":1,"text":"%s"}]}'
FILLED = '{"choices":[{"index":0,"delta":{"content":"%s","obfuscation":"%s"}}]}'
NUMBERED = '{"type":"response.output_text.delta","sequence_number":%s,"output_index":0,"delta":"%s"}'
FIGURES = '{"candidates":[{"index":0,"content":{"parts":[{"text":"%s"}]}}],"usageMetadata":{"promptTokenCount":%s}}'
ESCAPED_KEY = r'{"x":{"content":"%s"},"choices":[{"index":0,"delta":{"c\u006fntent":"a"}}]}'
ESCAPED_INDEX = r'{"choices":[{"ind\u0065x":0,"delta":{"content":"%s"}}],"index":1}'
DEEP = '1,"x":' + "[" * 987 + "]" * 987
LONG = '1,"x":[' + "1," * 5_000 + "1]"


@pytest.mark.parametrize(
    ("protocol", "events"),
    [
        ("openai-completions", [COMPLETION % "a", COMPLETION % "b"]),
        ("openai-completions", [TWO % "a", TWO % "b"]),
        ("openai-chat", [SAID % (0, ""), FILLED % ("a", ""), FILLED % ("b", "x")]),
        ("openai-responses", [NUMBERED % ("1234567890123456", "a"), NUMBERED % ("06", "b")]),
        ("openai-chat", [SAID % (0, ""), ESCAPED_KEY % "a", ESCAPED_KEY % "b"]),
        ("openai-chat", [SAID % (0, ""), SAID % (1, ""), ESCAPED_INDEX % "a", ESCAPED_INDEX % "b"]),
        ("gemini", [FIGURES % ("a", "1e5"), FIGURES % ("a", "1e5"), FIGURES % ("b", "1e999")]),
        *(
            ("gemini", [FIGURES % ("a", f'1,"x":"{text}"')] * 2 + [FIGURES % ("b", f'1,"x":"{other}"')])
            for text, other in ((r"\u1234", r"\u5"), (r"\ud834\udd1e", r"\ud734\udd1e"))
        ),
        ("gemini", [FIGURES % ("a", LONG), FIGURES % ("b", LONG)]),
        ("openai-chat", [SAID % (0, ""), '{"object":"error",' + (SAID % (0, "a"))[1:]]),
        (
            "openai-chat",
            [SAID % (0, ""), '{"choices":[{"index":0,"delta":{"content":"a"},"x_groq":{"usage":{"x":1}}}]}'],
        ),
        ("gemini", [FIGURES % ("a", 1), '{"candidates":[null]}', '{"candidates":[{"content":{"parts":[1]}}]}']),
    ],
)
@pytest.mark.parametrize("extras", [False, True])
def test_an_event_of_which_more_is_read_than_its_text(protocol: str, events: list[str], extras: bool) -> None:
    chunks = [sse(event).encode() for event in events]
    for cut in (chunks, [b"".join(chunks)]):
        shortly, plainly = both_ways(protocol, cut, extras=extras)
        assert shortly == plainly


BEFORE = [sse(CHAT % (0, text)).encode() for text in ("", "a", "b")]
NEXT = sse(CHAT % (0, "c")).encode()


@pytest.mark.parametrize(
    "chunks",
    [
        [NEXT[:-1], b": ping\n", b": ping\n", b": ping\n"],
        [NEXT[:-2] + b"\r", b"\r\n"],
        [NEXT[:-2] + b"\r", b"\n", b"\r\n"],
        [NEXT[:-2], b"\r\r" + NEXT[:-2] + b"\r", b"\r"],
        [NEXT[:50], b"\xff"],
        [NEXT * 20 + b": ping\n\n" + NEXT],
    ],
)
@pytest.mark.parametrize("breaks", [False, True])
def test_what_comes_while_something_waits(chunks: list[bytes], breaks: bool) -> None:
    shortly, plainly = both_ways("openai-chat", [*BEFORE, *chunks], breaks=breaks)
    assert shortly[:3] == plainly[:3]
    assert shortly[4] == plainly[4]


@pytest.mark.parametrize("figures", [LONG, DEEP])
def test_a_long_or_deep_value_is_not_made_a_pattern(figures: str) -> None:
    """Compiling it would take seconds, and reading it as the text of a pattern more of the stack than there is."""
    event = ServerSentEvent("message", FIGURES % ("a", figures))
    assert not TextTemplate().learn_both(event, "text", "a", "usageMetadata", lambda text, _: (TextDelta(text),))


@pytest.mark.parametrize("wrong", [b"\xff", b"\xe2\x82", b"\x00", b"\xed\xa0\x80"])
@pytest.mark.parametrize("place", ["text", "filler"])
def test_bytes_that_are_no_text_are_told_where_they_are(wrong: bytes, place: str) -> None:
    event = b'data: {"choices":[{"index":0,"delta":{"content":"%b"}}],"obfuscation":"%b"}\n\n'
    chunks = [event % (text, b"x") for text in (b"", b"a", b"b")]
    chunks.append(event % ((wrong, b"x") if place == "text" else (b"c", wrong)))
    shortly, plainly = both_ways("openai-chat", chunks)
    assert shortly == plainly
    assert shortly[1] != "NoneType: None"


STOPPED = '{"choices":[{"index":%d,"delta":{},"finish_reason":"stop"}]}'
GEMINI_STOP = '{"candidates":[{"index":0,"content":{"parts":[{"text":"%s"}]},"finishReason":"STOP"}]}'
MESSAGE = '{"choices":[{"index":1,"message":{"content":"whole"}}]}'


@pytest.mark.parametrize(
    ("protocol", "events", "end"),
    [
        ("gemini", [FIGURES % ("a", 1), FIGURES % ("b", 2), GEMINI_STOP % "c", FIGURES % ("d", 3)], "TruncatedStream"),
        (
            "openai-chat",
            [
                *(SAID % (0, ""), SAID % (1, ""), SAID % (0, "a"), STOPPED % 0),
                *(SAID % (1, "b"), SAID % (1, "c"), SAID % (0, "d"), STOPPED % 1),
            ],
            "TruncatedStream",
        ),
        (
            "openai-chat",
            [SAID % (0, ""), SAID % (1, ""), SAID % (0, "a"), SAID % (1, "b"), MESSAGE, STOPPED % 0, STOPPED % 1],
            "NoneType",
        ),
    ],
)
def test_what_is_known_at_sight_counts_for_what_follows(protocol: str, events: list[str], end: str) -> None:
    """A reason that more text follows was none, and a choice that spoke is not said again."""
    shortly, plainly = both_ways(protocol, [sse(event).encode() for event in events])
    assert shortly == plainly
    assert shortly[1].partition(":")[0] == end


def test_the_limit_of_a_stream_counts_what_is_skipped() -> None:
    chunks = [sse(SAID % (0, text)).encode() for text in ("", *"abcdefghijklmnopqrstuvwxyz")]
    for many in (chunks, [b"".join(chunks)]):
        shortly, plainly = both_ways("openai-chat", many, Limits(max_bytes=1_000))
        assert shortly == plainly
        assert shortly[1].startswith("LimitExceeded")


def test_a_filler_at_the_end_may_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    filled = '{"choices":[{"index":0,"delta":{"content":"%s"}}],"id":"chatcmpl-1","p":"%s"}'
    chain = chain_after("openai-chat", *(sse(filled % (text, "x")) for text in ("", "a", "b")))
    assert skimmed(chain, sse(filled % ("c", "abcdef")), monkeypatch) == [TextDelta("c")]


def test_what_differs_from_stream_to_stream_is_no_pattern() -> None:
    """A pattern for each stream takes as long to compile as a hundred events to read."""
    filled = '{"choices":[{"index":0,"delta":{"content":"%s"}}],"created":17623170%d,"id":"chatcmpl-%d","p":"x"}'
    before = _compiled.cache_info().misses
    for number in range(10, 30):
        chain_after("openai-chat", *(sse(filled % (text, number, number)) for text in ("", "a", "b")))
    assert _compiled.cache_info().misses <= before + 2


def framed_by(chain: DeltaChain, chunk: bytes, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of what is framed of a chunk, piece by piece."""
    sizes: list[int] = []
    real = FrameSse.take

    def take(self: FrameSse[Any], batch: Sequence[bytes]) -> Any:
        sizes.append(sum(map(len, batch)))
        return real(self, batch)

    with monkeypatch.context() as patch:
        patch.setattr(FrameSse, "take", take)
        assert chain.take((chunk,))[1] is None
    return sizes


def test_all_but_the_first_events_of_a_large_chunk_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    events = [sse(CHAT % (0, text)).encode() for text in ("", *"abcdefghij")]
    assert framed_by(DeltaChain("openai-chat"), b"".join(events), monkeypatch) == [len(events[0]), len(events[1])]


def test_events_that_are_not_known_are_not_read_one_by_one_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    chain = chain_after("openai-chat", *(sse(CHAT % (0, text)) for text in ("", "a", "b")))
    pings = b": ping\n\n" * 100
    assert len(framed_by(chain, pings, monkeypatch)) <= 20
    assert len(framed_by(chain, pings, monkeypatch)) <= 2


def test_several_chunks_at_once_give_all_their_deltas() -> None:
    chain = chain_after("openai-chat", *(sse(CHAT % (0, text)) for text in ("", "a", "b")))
    given, fault = chain.take([sse(CHAT % (0, text)).encode() for text in "cd"])
    assert (list(given), fault) == ([TextDelta("c"), TextDelta("d")], None)


def test_a_type_in_a_chunk_of_its_own_is_not_overlooked() -> None:
    event = sse(CHAT % (0, "x")).encode()
    shortly, plainly = both_ways("openai-chat", [*BEFORE, b"event: error\n", event, event])
    assert shortly == plainly
    assert shortly[1].startswith("ProviderError")


def test_arguments_are_kept_for_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    start = '{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t","name":"f"}}'
    delta = '{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"%s"}}'
    chain = chain_after("anthropic", sse(start), sse(delta % "{"), sse(delta % " "))
    assert skimmed(chain, sse(delta % "}"), monkeypatch) == [ToolCallDelta(0, "}")]
    given, _ = chain.take((sse('{"type":"content_block_stop","index":0}').encode(),))
    assert len(given) == 2
    assert [call.args_text for call in chain.message().tool_calls] == ["{ }"]


def test_reasoning_is_followed_by_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shape learnt last is the one that counts, and going back to an earlier one costs one event."""
    thought = CHAT.replace("content", "reasoning_content")
    chain = chain_after("openai-chat", *(sse(thought % (0, text)) for text in ("", "a", "b")))
    assert skimmed(chain, sse(thought % (0, "c")), monkeypatch) == [ReasoningDelta("c")]
    for text in "de":
        chain.take((sse(CHAT % (0, text)).encode(),))
    assert skimmed(chain, sse(CHAT % (0, "f")), monkeypatch) == [TextDelta("f")]


def test_small_chunks_of_a_large_event_are_not_read_again_and_again() -> None:
    """What waits for the rest of an event, and is looked at again with every chunk, is bounded."""
    chain = chain_after("openai-chat", *(sse(CHAT % (0, text)) for text in ("", "a", "b")))
    stage = chain.stages[0]
    assert isinstance(stage, SkimSse)
    template = stage._template
    looked_at: list[int] = []
    real = template.skim

    def skim(data: bytes, at: int) -> tuple[list[Delta], int, int]:
        looked_at.append(len(data))
        return real(data, at)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TextTemplate, "skim", lambda _, data, at: skim(data, at))
        for n in range(0, 100_000, 100):
            chain.take((sse(CHAT % (0, "x" * 100_000)).encode()[n : n + 100],))
    assert max(looked_at) < 5_000
