"""The frames of AWS's binary event stream."""

from __future__ import annotations

import itertools
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reactivex import Subject

from rillet.operators import EventFrame, split_frames
from rillet.operators.errors import LimitExceeded, MalformedPayload, StreamError, TruncatedStream
from rillet.operators.split_frames import SplitFrames

Cuts = Callable[[bytes], Iterator[list[bytes]]]
Run = Callable[..., tuple[list[Any], Any]]


def header(name: bytes, kind: int, value: bytes) -> bytes:
    return struct.pack(">B", len(name)) + name + struct.pack(">B", kind) + value


def string(name: str, value: str, kind: int = 7) -> bytes:
    return header(name.encode(), kind, struct.pack(">H", len(value.encode())) + value.encode())


def raw(headers: bytes, payload: bytes, *, total: int | None = None, headers_length: int | None = None) -> bytes:
    """A frame whose checksums are right, whatever its lengths say."""
    total = 16 + len(headers) + len(payload) if total is None else total
    prelude = struct.pack(">II", total, len(headers) if headers_length is None else headers_length)
    body = prelude + struct.pack(">I", zlib.crc32(prelude)) + headers + payload
    return body + struct.pack(">I", zlib.crc32(body))


def frame(payload: bytes = b"", **headers: str) -> bytes:
    return raw(b"".join(string(f":{key.replace('_', '-')}", value) for key, value in headers.items()), payload)


WIRE = frame(b'{"a":1}', event_type="chunk", message_type="event") + frame() + frame("é".encode(), event_type="é")
FRAMES = [
    EventFrame({":event-type": "chunk", ":message-type": "event"}, b'{"a":1}'),
    EventFrame({}, b""),
    EventFrame({":event-type": "é"}, "é".encode()),
]


def test_cuts_change_nothing(cuts: Cuts, run: Run) -> None:
    for pieces in cuts(WIRE):
        assert run(split_frames(), pieces) == (FRAMES, None)


def test_nothing_gives_nothing(run: Run) -> None:
    assert run(split_frames(), []) == ([], None)
    assert run(split_frames(), [b"", b""]) == ([], None)


def test_a_frame_is_emitted_with_its_last_byte() -> None:
    source: Subject[bytes] = Subject()
    frames: list[EventFrame] = []
    source.pipe(split_frames()).subscribe(frames.append)
    source.on_next(frame(b"a")[:-1])
    assert frames == []
    source.on_next(frame(b"a")[-1:])
    assert frames == [EventFrame({}, b"a")]


def test_a_source_that_ends_inside_a_frame_is_truncated(run: Run) -> None:
    ends = [0, *itertools.accumulate(map(len, (frame(b"ab", x="y"), frame(), frame(b"c"))))]
    wire = frame(b"ab", x="y") + frame() + frame(b"c")
    for length in range(len(wire) + 1):
        frames, error = run(split_frames(), [wire[:length]])
        assert len(frames) == sum(end <= length for end in ends) - 1
        assert type(error) is (type(None) if length in ends else TruncatedStream)


def test_an_error_of_the_source_arrives_as_it_is() -> None:
    source: Subject[bytes] = Subject()
    ends: list[Exception] = []
    source.pipe(split_frames()).subscribe(lambda _: None, ends.append)
    source.on_next(frame()[:5])
    fault = OSError()
    source.on_error(fault)
    assert ends == [fault]


# Headers


@pytest.mark.parametrize(
    ("encoded", "value"),
    [
        (header(b"x", 0, b""), True),
        (header(b"x", 1, b""), False),
        (header(b"x", 2, b"\xff"), -1),
        (header(b"x", 3, b"\xff\xff"), -1),
        (header(b"x", 4, b"\0\0\0\5"), 5),
        (header(b"x", 5, b"\0\0\0\0\0\0\0\5"), 5),
        (header(b"x", 6, b"\0\2\xff\0"), b"\xff\0"),
        (string("x", "é ☕"), "é ☕"),
        (header(b"x", 8, b"\0\0\0\0\0\0\0\5"), 5),
        (header(b"x", 9, bytes(16)), bytes(16)),
    ],
)
def test_every_kind_of_header(encoded: bytes, value: Any, run: Run) -> None:
    ((only,), error) = run(split_frames(), [raw(encoded, b"p")])
    assert (only.headers, only.payload, error) == ({"x": value}, b"p", None)


@pytest.mark.parametrize(
    ("headers", "name", "is_failure"),
    [
        ({"event_type": "chunk", "message_type": "event"}, "chunk", False),
        ({"exception_type": "throttlingException", "message_type": "exception"}, "throttlingException", True),
        ({"error_code": "InternalError", "message_type": "error"}, "InternalError", True),
        ({}, "message", False),
    ],
)
def test_a_frame_names_what_it_reports(headers: dict[str, str], name: str, is_failure: bool, run: Run) -> None:
    ((only,), _) = run(split_frames(), [frame(b"{}", **headers)])
    assert (only.event, only.data, only.is_failure) == (name, "{}", is_failure)


# Damage


def test_any_flipped_bit_is_seen_after_the_frames_before(run: Run) -> None:
    good, wire = frame(b"good"), frame(b"bad", x="y")
    for at, bit in itertools.product(range(len(wire)), range(8)):
        damaged = bytearray(wire)
        damaged[at] ^= 1 << bit
        for source in ([good + damaged + good], [good, bytes(damaged), good]):
            frames, error = run(split_frames(), source)
            assert (frames, type(error)) == ([EventFrame({}, b"good")], MalformedPayload)


@pytest.mark.parametrize(
    "damaged",
    [
        pytest.param(raw(b"", b"", total=0), id="a total of 0"),
        pytest.param(raw(b"", b"", total=12), id="a total of 12"),
        pytest.param(raw(b"", b"", total=15), id="a total of 15"),
        pytest.param(raw(b"", b"", headers_length=1), id="headers longer than the frame"),
        pytest.param(raw(b"", b"", headers_length=2**32 - 1), id="headers of 4 GB"),
        pytest.param(raw(header(b"x", 10, b""), b""), id="a kind of header that there is not"),
        pytest.param(raw(b"\x05x", b""), id="half a name of a header"),
        pytest.param(raw(header(b"x", 4, b"\0"), b""), id="half a number in a header"),
        pytest.param(raw(header(b"\xff", 0, b""), b""), id="a name of a header that is no UTF-8"),
        pytest.param(raw(header(b"x", 7, b"\0\1\xff"), b""), id="a header that is no UTF-8"),
        pytest.param(raw(string("x", "a") * 2, b""), id="a header twice"),
        pytest.param(b"HTTP/1.1 500 Internal Server Error", id="no frame at all"),
        pytest.param(b"data: {}\n\ndata: {}\n\n", id="another framing"),
    ],
)
def test_a_frame_that_is_none_is_malformed(damaged: bytes, cuts: Cuts, run: Run) -> None:
    for pieces in cuts(frame(b"good") + damaged):
        frames, error = run(split_frames(), pieces)
        assert (frames, type(error)) == ([EventFrame({}, b"good")], MalformedPayload)


def test_the_message_says_where_and_quotes_nothing(run: Run) -> None:
    good, damaged = frame(b"secret"), frame(b"secret")[:-1] + b"\0"
    _, error = run(split_frames(), [good * 2 + damaged])
    assert f"byte {2 * len(good)}" in str(error)
    assert "secret" not in str(error)


# Limits


def test_exactly_max_frame_passes_and_one_over_fails(cuts: Cuts, run: Run) -> None:
    good, large = frame(b"x" * 4), frame(b"x" * 5)
    for pieces in cuts(good + large):
        assert run(split_frames(max_frame=len(large)), pieces)[1] is None
        frames, error = run(split_frames(max_frame=len(good)), pieces)
        assert (len(frames), type(error)) == (1, LimitExceeded)
        assert (error.which, error.limit) == ("max_frame", len(good))


def test_a_frame_that_is_too_long_fails_before_it_has_arrived() -> None:
    stage = SplitFrames(max_frame=1_000)
    with pytest.raises(LimitExceeded, match="max_frame"):
        list(stage.feed([frame(b"x" * 1_000)[:12]]))


def test_exactly_max_bytes_passes_and_one_over_fails(cuts: Cuts, run: Run) -> None:
    for pieces in cuts(WIRE):
        assert run(split_frames(max_bytes=len(WIRE)), pieces) == (FRAMES, None)
        frames, error = run(split_frames(max_bytes=len(WIRE) - 1), pieces)
        assert (frames, type(error)) == (FRAMES[:-1], LimitExceeded)
        assert (error.which, error.limit) == ("max_bytes", len(WIRE) - 1)


def test_none_lifts_the_limits(run: Run) -> None:
    frames, error = run(split_frames(max_frame=None, max_bytes=None), [frame(b"x" * 5_000_000)])
    assert (len(frames[0].payload), error) == (5_000_000, None)


def test_an_endless_frame_is_stopped() -> None:
    pulled = itertools.count()
    prelude = struct.pack(">II", 20_000_000, 0)
    begin = prelude + struct.pack(">I", zlib.crc32(prelude))
    endless = (begin if n == 0 else b"x" * 100 for n in pulled)
    with pytest.raises(LimitExceeded):
        list(SplitFrames(max_bytes=1_000).feed(endless))
    assert next(pulled) == 11


def test_endless_frames_are_stopped() -> None:
    pulled = itertools.count()
    endless = (frame(b"x" * 84) for _ in pulled)
    with pytest.raises(LimitExceeded):
        list(SplitFrames(max_bytes=1_000).feed(endless))
    assert next(pulled) == 11


def test_frames_come_as_they_are_asked_for() -> None:
    stage = SplitFrames()
    frames = stage.feed([frame(b"a"), frame(b"b")[:-1] + b"\0"])
    assert next(frames).payload == b"a"
    with pytest.raises(MalformedPayload):
        next(frames)


def test_bytes_seen_counts_what_was_fed() -> None:
    stage = SplitFrames()
    list(stage.feed([WIRE[:5], b"", WIRE[5:40]]))
    assert stage.bytes_seen == 40


# Anything


@given(st.binary(max_size=60), st.binary(max_size=60), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
def test_whatever_the_lengths_say_only_stream_errors_are_raised(
    headers: bytes, payload: bytes, total: int, headers_length: int
) -> None:
    for wire in (
        raw(headers, payload),
        raw(headers, payload, total=total % 200),
        raw(headers, payload, headers_length=headers_length % 200),
        raw(headers, payload, total=total, headers_length=headers_length),
    ):
        stage = SplitFrames()
        try:
            _ = list(stage.feed([wire])), list(stage.finish())
        except StreamError:
            continue


@given(st.lists(st.binary(max_size=20)), st.lists(st.integers(0, 400), max_size=5))
def test_any_frames_at_any_cuts(payloads: list[bytes], places: list[int]) -> None:
    wire = b"".join(frame(payload, x="é") for payload in payloads)
    at = sorted({0, len(wire), *(place for place in places if place < len(wire))})
    stage = SplitFrames()
    frames = list(stage.feed(wire[a:b] for a, b in itertools.pairwise(at)))
    assert [*frames, *stage.finish()] == [EventFrame({":x": "é"}, payload) for payload in payloads]


@given(st.binary(max_size=200), st.integers(1, 50))
def test_any_bytes_give_the_same_at_any_cuts(wire: bytes, size: int) -> None:
    def outcome(pieces: list[bytes]) -> tuple[list[EventFrame], str]:
        stage, frames = SplitFrames(), list[EventFrame]()
        try:
            frames.extend(stage.feed(pieces))
            frames.extend(stage.finish())
        except StreamError as error:
            return frames, type(error).__name__
        return frames, ""

    pieces = [wire[n : n + size] for n in range(0, len(wire), size)]
    assert outcome([wire]) == outcome(pieces)
