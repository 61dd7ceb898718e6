from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reactivex import Subject

from rillet.operators import decode_utf8
from rillet.operators.decode_utf8 import DecodeUtf8
from rillet.operators.errors import InvalidUtf8, LimitExceeded, StreamError, TruncatedStream

Cuts = Callable[[bytes], Iterator[list[bytes]]]
Run = Callable[..., tuple[list[Any], Any]]

BOM = b"\xef\xbb\xbf"
TEXT = "Café ☕, 漢字, 🚀 and e\u0301"
DAMAGED = [
    pytest.param(b"ok\xffno", 2, id="a byte that never occurs"),
    pytest.param(b"ok\xc3(no", 2, id="a head without its tail"),
    pytest.param(b"ok\x80no", 2, id="a tail without its head"),
    pytest.param(b"ok\xe2\x98 no", 2, id="a character cut short"),
    pytest.param(b"ok\xed\xa0\x80no", 2, id="a surrogate"),
    pytest.param(b"ok\xc0\xafno", 2, id="an overlong form"),
    pytest.param(b"ok\xf4\x90\x80\x80no", 2, id="beyond the last code point"),
    pytest.param(BOM + b"ok\xff", 5, id="after a byte order mark"),
]


def test_cuts_change_nothing(cuts: Cuts, run: Run) -> None:
    for chunks in cuts(TEXT.encode()):
        texts, error = run(decode_utf8(), chunks)
        assert ("".join(texts), error) == (TEXT, None)


def test_each_character_comes_with_its_last_byte() -> None:
    stage = DecodeUtf8()
    given = [list(stage.feed((bytes([byte]),))) for byte in "é☕🚀".encode()]
    assert given == [[], ["é"], [], [], ["☕"], [], [], [], ["🚀"]]


@pytest.mark.parametrize(
    ("wire", "text"),
    [
        pytest.param(BOM + b"x", "x", id="dropped at the start"),
        pytest.param(BOM + BOM + b"x", "\ufeffx", id="once"),
        pytest.param(b"x" + BOM, "x\ufeff", id="kept elsewhere"),
        pytest.param(BOM, "", id="alone"),
    ],
)
def test_byte_order_mark(wire: bytes, text: str, cuts: Cuts, run: Run) -> None:
    for chunks in cuts(wire):
        texts, error = run(decode_utf8(), chunks)
        assert ("".join(texts), error) == (text, None)
        assert "" not in texts


@pytest.mark.parametrize(("wire", "offset"), DAMAGED)
def test_a_damaged_byte_is_named_after_what_came_before(wire: bytes, offset: int, cuts: Cuts, run: Run) -> None:
    for chunks in cuts(wire):
        texts, error = run(decode_utf8(), chunks)
        assert type(error) is InvalidUtf8
        assert ("".join(texts), error.offset) == ("ok", offset)


@pytest.mark.parametrize(("wire", "offset"), DAMAGED)
def test_a_damaged_byte_is_raised_at_once(wire: bytes, offset: int) -> None:
    source: Subject[bytes] = Subject()
    seen: list[object] = []
    source.pipe(decode_utf8()).subscribe(seen.append, seen.append)
    source.on_next(wire)
    assert seen[0] == "ok"
    assert type(seen[1]) is InvalidUtf8
    assert not source.observers


@pytest.mark.parametrize("cut", [b"\xc3", b"\xe2\x98", b"\xf0\x9f\x9a", BOM[:2]])
def test_an_end_inside_a_character_is_a_truncated_stream(cut: bytes, cuts: Cuts, run: Run) -> None:
    for chunks in cuts(b"ok" + cut):
        texts, error = run(decode_utf8(), chunks)
        assert type(error) is TruncatedStream
        assert "".join(texts) == "ok"


def test_replace_puts_the_replacement_character_where_browsers_do(cuts: Cuts, run: Run) -> None:
    for chunks in cuts(b"a\xffb\xf0\x9f\x9ac\xe2\x98"):
        texts, error = run(decode_utf8(errors="replace"), chunks)
        assert ("".join(texts), error) == ("a\ufffdb\ufffdc\ufffd", None)


def test_exactly_max_bytes_pass(cuts: Cuts, run: Run) -> None:
    for chunks in cuts(b"12345"):
        texts, error = run(decode_utf8(max_bytes=5), chunks)
        assert ("".join(texts), error) == ("12345", None)


def test_one_byte_over_fails_after_max_bytes_of_text(cuts: Cuts, run: Run) -> None:
    for chunks in cuts(b"123456"):
        texts, error = run(decode_utf8(max_bytes=5), chunks)
        assert type(error) is LimitExceeded
        assert ("".join(texts), error.which, error.limit) == ("12345", "max_bytes", 5)


def test_a_limit_inside_a_character_is_still_the_limit(cuts: Cuts, run: Run) -> None:
    for chunks in cuts("1é".encode()):
        texts, error = run(decode_utf8(max_bytes=2), chunks)
        assert type(error) is LimitExceeded
        assert texts == ["1"]


def test_a_damaged_byte_before_the_limit_is_the_fault(cuts: Cuts, run: Run) -> None:
    for chunks in cuts(b"1\xff345"):
        assert type(run(decode_utf8(max_bytes=3), chunks)[1]) is InvalidUtf8


def test_none_lifts_the_limit() -> None:
    stage = DecodeUtf8(max_bytes=None)
    stage.bytes_seen = 2**40
    assert list(stage.feed((b"x",))) == ["x"]


@given(st.lists(st.binary(max_size=6)))
def test_any_bytes_give_what_python_decodes(chunks: list[bytes]) -> None:
    stage = DecodeUtf8()
    texts: list[str] = []
    fault: StreamError | None = None
    try:
        for batch in (stage.feed(chunks), stage.finish()):
            texts.extend(batch)
    except (InvalidUtf8, TruncatedStream) as error:
        fault = error
    whole = b"".join(chunks)
    try:
        expected, reason, start = whole.decode(), None, None
    except UnicodeDecodeError as error:
        expected, reason, start = whole[: error.start].decode(), error.reason, error.start
    assert "".join(texts) == expected.removeprefix("\ufeff")
    if reason is None:
        assert fault is None
    elif reason == "unexpected end of data":
        assert type(fault) is TruncatedStream
    else:
        assert type(fault) is InvalidUtf8
        assert fault.offset == start


@given(st.lists(st.binary(max_size=6)))
def test_any_bytes_are_replaced_as_python_does(chunks: list[bytes]) -> None:
    stage = DecodeUtf8(errors="replace")
    text = "".join([*stage.feed(chunks), *stage.finish()])
    assert text == b"".join(chunks).decode(errors="replace").removeprefix("\ufeff")
