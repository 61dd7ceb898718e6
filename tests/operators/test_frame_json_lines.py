"""`FrameJsonLines` gives what `decode_utf8` and `split_json_lines` give, only sooner."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rillet.operators import Chain, Stage, WireEvent
from rillet.operators.decode_utf8 import DecodeUtf8
from rillet.operators.errors import InvalidUtf8, LimitExceeded, StreamError, TruncatedStream
from rillet.operators.frame_json_lines import FrameJsonLines
from rillet.operators.split_json_lines import SplitJsonLines

Cuts = Callable[[bytes], Iterator[list[bytes]]]
Outcome = tuple[list[tuple[str, str]], str]


def the_two(*, max_bytes: int | None, max_line: int | None) -> Chain[bytes, WireEvent]:
    return Chain(DecodeUtf8(max_bytes=max_bytes), SplitJsonLines(max_line=max_line))


def outcome(stage: Stage[bytes, WireEvent], pieces: list[bytes]) -> Outcome:
    """The lines, as (event, data), and how it ended; only a `StreamError` may end it."""
    lines: list[tuple[str, str]] = []
    try:
        lines.extend((line.event, line.data) for line in stage.feed(pieces))
        lines.extend((line.event, line.data) for line in stage.finish())
    except StreamError as error:
        return lines, f"{type(error).__name__}: {error}"
    return lines, ""


parts = st.sampled_from(
    [
        b"{}",
        b'{"a":1}',
        '{"é":"☕ 🎈\u2028"}'.encode(),
        b"123456789012345678901234567890",
        b" \t",
        b"\xef\xbb\xbf",
        b"\xff",
        b"\xe2\x98",
        b"\x95",
        b"",
    ]
)
ends = st.sampled_from([b"\n", b"\n", b"\n", b"\r\n", b"\r", b"\n\r", b""])
streams = st.lists(st.tuples(parts, ends), max_size=12).map(lambda pairs: b"".join(a + b for a, b in pairs))
limits = st.sampled_from([None, None, 5, 29, 30, 31, 60])


def cut(wire: bytes, places: list[int]) -> list[bytes]:
    return [wire[a:b] for a, b in itertools.pairwise(sorted([0, len(wire), *(n % (len(wire) + 1) for n in places)]))]


@given(streams | st.binary(max_size=40), st.lists(st.integers(0, 500), max_size=8), limits, limits)
def test_it_gives_what_the_two_give(
    wire: bytes, places: list[int], max_bytes: int | None, max_line: int | None
) -> None:
    pieces = cut(wire, places)
    shortly = outcome(FrameJsonLines(max_bytes=max_bytes, max_line=max_line), pieces)
    assert shortly == outcome(the_two(max_bytes=max_bytes, max_line=max_line), pieces)


@given(streams, st.lists(st.integers(0, 500), max_size=8))
def test_cuts_change_nothing(wire: bytes, places: list[int]) -> None:
    assert outcome(FrameJsonLines(), cut(wire, places)) == outcome(FrameJsonLines(), [wire])


def test_every_cut_of_a_stream_with_everything_in_it(cuts: Cuts) -> None:
    wire = '\ufeff{"a":"é"}\r\n\r\n{"b":"☕"}\n \n{"c":"🎈"}\r{}'.encode()
    lines = [("message", data) for data in ('{"a":"é"}', '{"b":"☕"}', '{"c":"🎈"}', "{}")]
    for pieces in cuts(wire):
        assert outcome(FrameJsonLines(), pieces) == (lines, "")


@pytest.mark.parametrize(
    ("wire", "fault"),
    [
        (b"{}\n\xff\n", InvalidUtf8),
        (b"{}\n\xe2\x98", TruncatedStream),
        (b"{}\n123456789012345678901\n", LimitExceeded),
    ],
)
def test_a_fault_comes_after_the_lines_before_it(wire: bytes, fault: type[StreamError], cuts: Cuts) -> None:
    for pieces in cuts(wire):
        lines, end = outcome(FrameJsonLines(max_line=20), pieces)
        assert (lines, end.partition(":")[0]) == ([("message", "{}")], fault.__name__)


def test_endless_input_is_stopped() -> None:
    pulled = itertools.count()
    with pytest.raises(LimitExceeded):
        list(FrameJsonLines(max_line=1_000).feed(b"x" * 100 for _ in pulled))
    assert next(pulled) == 11


def test_an_empty_batch_gives_nothing() -> None:
    lines, fault = FrameJsonLines().take(())
    assert (list(lines), fault) == ([], None)
