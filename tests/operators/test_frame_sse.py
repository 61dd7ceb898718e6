"""`FrameSse` gives what `decode_utf8`, `split_lines` and `group_events` give, only sooner."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rillet.operators import Chain, ServerSentEvent, Stage, WireEvent
from rillet.operators.decode_utf8 import DecodeUtf8
from rillet.operators.errors import InvalidUtf8, LimitExceeded, StreamError, TruncatedStream
from rillet.operators.events import make_event
from rillet.operators.frame_sse import frame_sse
from rillet.operators.group_events import GroupEvents
from rillet.operators.split_lines import SplitLines

Cuts = Callable[[bytes], Iterator[list[bytes]]]
Outcome = tuple[list[tuple[str, str]], str]


def the_three(
    *, max_bytes: int | None, max_line: int | None, max_event: int | None, eof: Any, stray: Any, half: Any
) -> Chain[bytes, WireEvent]:
    return Chain(
        DecodeUtf8(max_bytes=max_bytes),
        SplitLines(max_line=max_line, eof="dispatch" if {eof, stray, half} & {"dispatch", "fail"} else "discard"),
        GroupEvents(ServerSentEvent, max_event=max_event, eof=eof, stray=stray, half=half),
    )


def outcome(stage: Stage[bytes, WireEvent], pieces: list[bytes]) -> Outcome:
    """The events, as (event, data), and how it ended; only a `StreamError` may end it."""
    events: list[tuple[str, str]] = []
    try:
        events.extend((event.event, event.data) for event in stage.feed(pieces))
        events.extend((event.event, event.data) for event in stage.finish())
    except StreamError as error:
        return events, f"{type(error).__name__}: {error}"
    return events, ""


blocks = st.sampled_from(
    [
        b"data: a",
        b"data: {}",
        b"data: [DONE]",
        b"data:b",
        b"data",
        b"data: ",
        b"data:  c",
        "data: é ☕ 🎈\u2028".encode(),
        b"data: 123456789012345678901234567890",
        b"data: 1234567890123456789012345678901234",
        b": ping",
        b": a comment of no small length, which counts",
        b"event: x",
        b"event",
        b"id: 7",
        b"id: \0",
        b"retry: 5",
        b"error: {}",
        b'{"error":{"message":"busy"}}',
        b"{",
        b"}",
        b"odd: field",
        b"\xef\xbb\xbf",
        b"\xff",
        b"data: \xe2\x98",
        b"\x95",
        b"",
        b"",
        b"",
    ]
)
ends = st.sampled_from([b"\n", b"\n", b"\n", b"\n\n", b"\n\n", b"\r\n", b"\r\n\r\n", b"\r", b"\n\r", b""])
streams = st.lists(st.tuples(blocks, ends), max_size=12).map(lambda parts: b"".join(a + b for a, b in parts))
common = [
    b"data: a\n\n",
    "data: é🎈\n\n".encode(),
    b"data: {}\n",
    b"\n",
    b": x\n\n",
    b"data: b\n\n" * 3,
    b"event: x\ndata: a\n\n",
    b"event: \ndata: a\n\n",
    b"event: y\n",
    b"event: z\ndata: b\n\n" * 3,
    b"data: a\ndata: \ndata: b\n\n",
    b"data: a\ndata:b\n\n",
    b"data: a\nid: 1\ndata: b\n\n",
    b"data: \ndata: {}\n\n\ndata: \n\n",
]
plain_streams = st.lists(st.sampled_from(common), max_size=9).map(b"".join) | st.lists(
    st.sampled_from([block.replace(b"\n", b"\r\n") for block in common]), max_size=9
).map(b"".join)
limits = st.sampled_from([None, None, 5, 33, 34, 35, 40, 60, 100])
options = st.fixed_dictionaries(
    {
        "max_bytes": limits,
        "max_line": limits,
        "max_event": limits,
        "eof": st.sampled_from(["discard", "dispatch"]),
        "stray": st.sampled_from(["ignore", "dispatch"]),
        "half": st.sampled_from(["discard", "fail"]),
    }
)


def cut(wire: bytes, places: list[int]) -> list[bytes]:
    return [wire[a:b] for a, b in itertools.pairwise(sorted([0, len(wire), *(n % (len(wire) + 1) for n in places)]))]


@given(
    st.sampled_from([b"", b"\xef\xbb\xbf"]),
    streams | plain_streams | st.binary(max_size=40),
    st.lists(st.integers(0, 500), max_size=8),
    options,
)
def test_it_gives_what_the_three_give(bom: bytes, wire: bytes, places: list[int], options: dict[str, Any]) -> None:
    pieces = cut(bom + wire, places)
    assert outcome(frame_sse(make_event, **options), pieces) == outcome(the_three(**options), pieces)


@given(plain_streams | streams, st.integers(1, 9), st.lists(st.integers(0, 500), max_size=8))
def test_cuts_change_nothing(wire: bytes, size: int, places: list[int]) -> None:
    whole = outcome(frame_sse(make_event), [wire])
    assert outcome(frame_sse(make_event), [wire[n : n + size] for n in range(0, len(wire), size)]) == whole
    assert outcome(frame_sse(make_event), cut(wire, places)) == whole


def test_every_cut_of_a_stream_with_everything_in_it(cuts: Cuts) -> None:
    first = "\ufeff: hi\r\ndata: é\r\n\r\nevent: x\ndata: a\ndata:b\nid: 1\n\n"
    wire = (first + "data: ☕\n\n\rdata: 🎈\r\rdata: {}\n\n").encode()
    events = [("message", "é"), ("x", "a\nb"), ("message", "☕"), ("message", "🎈"), ("message", "{}")]
    for pieces in cuts(wire):
        assert outcome(frame_sse(make_event), pieces) == (events, "")


@pytest.mark.parametrize(
    ("wire", "fault"),
    [
        (b"data: a\n\ndata: \xff\n\n", InvalidUtf8),
        (b"data: a\n\ndata: \xe2\x98", TruncatedStream),
        (b"data: a\n\n: 12345678901234567890\n", LimitExceeded),
        (b"data: a\n\ndata: 12345\ndata: 12345\n\n", LimitExceeded),
    ],
)
def test_a_fault_comes_after_the_events_before_it(wire: bytes, fault: type[StreamError], cuts: Cuts) -> None:
    for pieces in cuts(wire):
        events, end = outcome(frame_sse(make_event, max_line=20, max_event=20), pieces)
        assert (events, end.partition(":")[0]) == ([("message", "a")], fault.__name__)


@pytest.mark.parametrize("limit", ["max_bytes", "max_line", "max_event"])
def test_exactly_a_limit_passes_and_one_over_fails(limit: str, cuts: Cuts) -> None:
    data = b"data: 123456789"
    size = len(data) + (2 if limit == "max_bytes" else 0)
    for pieces in cuts(data + b"\n\n"):
        exactly: dict[str, Any] = {limit: size}
        less: dict[str, Any] = {limit: size - 1}
        assert outcome(frame_sse(make_event, **exactly), pieces) == ([("message", "123456789")], "")
        events, end = outcome(frame_sse(make_event, **less), pieces)
        assert (events, end.startswith("LimitExceeded")) == ([], True)


def test_endless_input_is_stopped() -> None:
    pulled = itertools.count()
    with pytest.raises(LimitExceeded):
        list(frame_sse(make_event, max_line=1_000).feed(b"x" * 100 for _ in pulled))
    assert next(pulled) == 11


@pytest.mark.parametrize("ends", [b"\n", b"\r\n", b"\r"])
def test_an_event_a_chunk_with_and_without_a_type(ends: bytes) -> None:
    pieces = [
        b": hi\n\n",
        b"data: a\n\n",
        b"event: x\ndata: b\n\n",
        b"event: \ndata: c\n\n",
        b"event: y\n\n",
        b"data: d\n\n",
    ]
    events = [("message", "a"), ("x", "b"), ("message", "c"), ("message", "d")]
    assert outcome(frame_sse(make_event), [piece.replace(b"\n", ends) for piece in pieces]) == (events, "")


def test_a_blank_line_in_a_chunk_after_a_lone_cr_ends_the_event() -> None:
    assert outcome(frame_sse(make_event), [b": hi\n\n", b"data: a\r", b"\r\n"]) == ([("message", "a")], "")


def test_an_empty_batch_gives_nothing() -> None:
    events, fault = frame_sse(make_event).take(())
    assert (list(events), fault) == ([], None)


class Failing(Stage[bytes, bytes]):
    """A stage that fails before it gave anything."""

    def feed(self, batch: Any) -> Iterator[bytes]:
        del batch
        raise OSError
        yield b""


def test_a_fault_before_it_passes_through() -> None:
    with pytest.raises(OSError):  # noqa: PT011
        list(Chain[bytes, WireEvent](Failing(), frame_sse(make_event)).feed([b"x"]))
