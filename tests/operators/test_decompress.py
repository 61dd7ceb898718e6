"""`decompress`: what a compressed body was, piece by piece, and never more than came whole."""

from __future__ import annotations

import gzip
import random
import sys
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from compressors import CODECS, Codec, zstd
from hypothesis import given
from hypothesis import strategies as st
from reactivex import Subject
from reactivex import operators as rxops

from rillet.operators import decode_utf8, decompress
from rillet.operators.decompress import Decompress
from rillet.operators.errors import StreamError, TransportError, TruncatedStream

Cuts = Callable[[bytes], Iterator[list[bytes]]]
Run = Callable[..., tuple[list[Any], Any]]
TEXT = "Ein Bächlein, klein: 小川 🏞 ".encode() * 9


each_codec = pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)


def packed(codec: Codec, data: bytes = TEXT) -> bytes:
    compressor = codec[1]()
    return bytes(compressor.compress(data) + compressor.flush())


@each_codec
def test_cuts_change_nothing(cuts: Cuts, run: Run, codec: Codec) -> None:
    for pieces in cuts(packed(codec)):
        given, error = run(decompress(codec[0]), pieces)
        assert (b"".join(given), error) == (TEXT, None)


@each_codec
@given(data=st.binary(max_size=2_000), size=st.integers(1, 300), times=st.integers(1, 60))
def test_what_was_packed_comes_out(run: Run, codec: Codec, data: bytes, size: int, times: int) -> None:
    body = packed(codec, data * times)
    given, error = run(decompress(codec[0]), [body[n : n + size] for n in range(0, len(body), size)])
    assert (b"".join(given), error) == (data * times, None)
    assert all(given)


@each_codec
def test_a_body_that_lacks_its_last_byte_or_more_never_completes(run: Run, codec: Codec) -> None:
    body = packed(codec)
    for length in range(1, len(body)):
        given, error = run(decompress(codec[0]), [body[:length]])
        assert type(error) is TruncatedStream
        assert error.bytes_seen == length
        assert TEXT.startswith(b"".join(given))


@each_codec
def test_each_flush_shows_at_once(codec: Codec) -> None:
    compressor, source = codec[1](), Subject[bytes]()
    seen: list[bytes] = []
    source.pipe(decompress(codec[0])).subscribe(seen.append)
    for n in range(20):
        source.on_next(compressor.compress(b"event %d\n\n" % n) + compressor.flush(zlib.Z_SYNC_FLUSH))
        assert b"".join(seen).endswith(b"event %d\n\n" % n)


@each_codec
@given(place=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_a_damaged_body_gives_a_stream_error_or_what_the_format_lets_pass(
    run: Run, codec: Codec, place: int, bit: int
) -> None:
    body = bytearray(packed(codec))
    body[place % len(body)] ^= 1 << bit
    _, error = run(decompress(codec[0]), [bytes(body)])
    assert error is None or type(error) in (TransportError, TruncatedStream)


@pytest.mark.parametrize("name", ["gzip", "zlib", "zstd"])  # the formats with a checksum
def test_a_damaged_checksum_is_noticed(run: Run, name: str) -> None:
    body = bytearray(packed(CODECS[name]))
    body[-5 if name == "gzip" else -1] ^= 1
    given, error = run(decompress(CODECS[name][0]), [bytes(body)])
    assert type(error) is TransportError
    assert error.__cause__ is not None
    assert TEXT.startswith(b"".join(given))


@each_codec
@given(junk=st.binary(min_size=1, max_size=200))
def test_junk_fails_with_a_stream_error_alone(run: Run, codec: Codec, junk: bytes) -> None:
    _, error = run(decompress(codec[0]), [junk])
    assert error is None or isinstance(error, StreamError)


@each_codec
def test_an_empty_body_is_empty(run: Run, codec: Codec) -> None:
    assert run(decompress(codec[0]), []) == ([], None)
    assert run(decompress(codec[0]), [b"", b""]) == ([], None)
    assert run(decompress(codec[0]), [packed(codec, b"")]) == ([], None)


@pytest.mark.parametrize("name", ["gzip", "x-gzip", "zstd"])
def test_members_follow_one_another(cuts: Cuts, run: Run, name: str) -> None:
    codec = CODECS[name]
    body = packed(codec, b"one, ") + packed(codec, b"") + packed(codec, b"two")
    for pieces in cuts(body):
        given, error = run(decompress(codec[0]), pieces)
        assert (b"".join(given), error) == (b"one, two", None)
    assert type(run(decompress(codec[0]), [body[:-1]])[1]) is TruncatedStream


def test_a_second_brotli_body_is_damage_however_it_is_cut(cuts: Cuts, run: Run) -> None:
    for pieces in cuts(b";;"):  # the shortest, twice
        assert type(run(decompress("br"), pieces)[1]) is TransportError, pieces


@each_codec
@pytest.mark.parametrize("apart", [True, False])
def test_what_follows_the_end_is_no_part_of_the_body(run: Run, codec: Codec, apart: bool) -> None:
    pieces = [packed(codec), b"\xff junk"]
    given, error = run(decompress(codec[0]), pieces if apart else [b"".join(pieces)])
    assert isinstance(error, StreamError)
    assert TEXT.startswith(b"".join(given))


@each_codec
def test_a_bomb_comes_in_small_pieces_as_they_are_taken(codec: Codec) -> None:
    body = packed(codec, bytes(4 << 20))
    flow = Decompress(codec[0]).feed((body,))
    first = [len(next(flow)) for _ in range(8)]
    assert max(first) <= 96 * 1024
    assert sum(first) + sum(map(len, flow)) == 4 << 20


@each_codec
def test_a_subscriber_that_leaves_inside_on_next_gets_nothing_more(codec: Codec) -> None:
    source, seen = Subject[bytes](), list[object]()
    source.pipe(decompress(codec[0]), rxops.take(1)).subscribe(seen.append, seen.append, lambda: seen.append("over"))
    source.on_next(packed(codec, bytes(4 << 20)))
    assert len(seen) == 2
    assert seen[1] == "over"
    assert not source.observers


@each_codec
def test_a_subscriber_that_raises_hears_of_it_once(codec: Codec) -> None:
    source, errors, failure = Subject[bytes](), list[Exception](), RuntimeError("mine")

    def raises(piece: bytes) -> None:
        raise failure

    source.pipe(decompress(codec[0])).subscribe(raises, errors.append)
    source.on_next(packed(codec))
    assert errors == [failure]
    assert not source.observers


def test_an_upstream_error_passes_and_is_not_taken_for_truncation() -> None:
    source, errors, failure = Subject[bytes](), list[Exception](), TruncatedStream("upstream")
    source.pipe(decompress("gzip")).subscribe(on_error=errors.append)
    source.on_next(gzip.compress(TEXT)[:20])
    source.on_error(failure)
    assert errors == [failure]


def test_each_subscription_has_its_own_state() -> None:
    source = Subject[bytes]()
    operator = source.pipe(decompress("gzip"))
    body = gzip.compress(TEXT)
    first, second = list[bytes](), list[bytes]()
    operator.subscribe(first.append)
    source.on_next(body[:30])
    operator.subscribe(second.append, lambda error: None)
    source.on_next(body[30:])
    assert b"".join(first) == TEXT
    assert second == []


def test_a_foreign_operator_may_stand_on_either_side(run: Run) -> None:
    halves = rxops.map(lambda piece: bytes(piece))
    body = gzip.compress(TEXT)
    for operators in (decompress("gzip"), decode_utf8()), (halves, decompress("gzip"), halves, decode_utf8()):
        given, error = run(lambda source, chain=operators: source.pipe(*chain), [body[:40], body[40:]])
        assert ("".join(given), error) == (TEXT.decode(), None)


@pytest.mark.parametrize("encoding", ["", "compress", "GZIP", "identity"])
def test_an_unknown_encoding_is_told_at_assembly(encoding: str) -> None:
    with pytest.raises(ValueError, match="no content encoding"):
        decompress(encoding)


@pytest.mark.parametrize("encoding", ["br", "zstd"])
def test_a_missing_package_is_told_at_assembly(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("brotli", "backports.zstd", "compression.zstd"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ModuleNotFoundError):
        decompress(encoding)


def test_a_frame_that_wants_more_memory_than_http_allows_is_refused(run: Run) -> None:
    """RFC 9659: 8 MiB; the format's own 128 MiB and more would be given before a byte is there."""
    for window_log, fails in ((23, False), (24, True)):
        options = {zstd.CompressionParameter.window_log: window_log}
        compressor = zstd.ZstdCompressor(options=options)
        body = compressor.compress(random.Random(1).randbytes(1_000), compressor.FLUSH_BLOCK) + compressor.flush()
        _, error = run(decompress("zstd"), [body])
        assert (type(error) is TransportError) is fails


def test_many_small_members_in_one_chunk_are_copied_in_small_parts() -> None:
    """Each member hands back what follows it: were that the whole chunk, thousands of members would copy it each."""
    fed: list[int] = []

    class Watched(Decompress):
        def _unpacked(self, data: bytes) -> Iterator[bytes]:
            fed.append(len(data))
            return super()._unpacked(data)

    body = gzip.compress(b"") * 5_000
    assert list(Watched("gzip").feed((body,))) == []
    assert max(fed) <= 16 * 1024
    assert sum(fed) == len(body)
