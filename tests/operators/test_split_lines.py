from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reactivex import Subject

from rillet.operators import split_lines
from rillet.operators.errors import LimitExceeded
from rillet.operators.split_lines import SplitLines

Cuts = Callable[[str], Iterator[list[str]]]
Run = Callable[..., tuple[list[Any], Any]]

NO_LINE_ENDS = "\v\f\x1c\x1d\x1e\x85\u2028\u2029"


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        pytest.param("a\nb\n\nc\n", ["a", "b", "", "c"], id="LF"),
        pytest.param("a\r\nb\r\n\r\nc\r\n", ["a", "b", "", "c"], id="CRLF"),
        pytest.param("a\rb\r\rc\r", ["a", "b", "", "c"], id="CR"),
        pytest.param("a\n\rb\r\n\nc\r\r\n", ["a", "", "b", "", "c", ""], id="mixed"),
        pytest.param("\n\r\r\n", ["", "", ""], id="nothing but ends"),
        pytest.param(f"a{NO_LINE_ENDS}b\n", [f"a{NO_LINE_ENDS}b"], id="nothing else ends a line"),
        pytest.param("", [], id="empty"),
    ],
)
def test_cuts_change_nothing(text: str, lines: list[str], cuts: Cuts, run: Run) -> None:
    for pieces in cuts(text):
        assert run(split_lines(), pieces) == (lines, None)


def test_an_empty_piece_between_cr_and_lf_changes_nothing(run: Run) -> None:
    assert run(split_lines(), ["a\r", "", "\nb\n"]) == (["a", "b"], None)


def test_a_cr_ends_its_line_at_once() -> None:
    source: Subject[str] = Subject()
    lines: list[str] = []
    source.pipe(split_lines()).subscribe(lines.append)
    source.on_next("data: a\r")
    assert lines == ["data: a"]


@pytest.mark.parametrize("text", ["a\nunfinished", "a\r\nunfinished", "a\runfinished"])
def test_the_unfinished_line_is_discarded_or_dispatched(text: str, cuts: Cuts, run: Run) -> None:
    for pieces in cuts(text):
        assert run(split_lines(), pieces) == (["a"], None)
        assert run(split_lines(eof="dispatch"), pieces) == (["a", "unfinished"], None)


@pytest.mark.parametrize("text", ["a\n", "a\r\n", "a\r"])
def test_after_a_finished_line_there_is_nothing_to_dispatch(text: str, cuts: Cuts, run: Run) -> None:
    for pieces in cuts(text):
        assert run(split_lines(eof="dispatch"), pieces) == (["a"], None)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_exactly_max_line_passes(end: str, cuts: Cuts, run: Run) -> None:
    for pieces in cuts(f"12345{end}x{end}12345"):
        assert run(split_lines(max_line=5, eof="dispatch"), pieces) == (["12345", "x", "12345"], None)


@pytest.mark.parametrize("text", ["ab\n\n123456\nc\n", "ab\r\r123456\r", "ab\n\n123456"])
def test_one_over_fails_after_the_lines_before(text: str, cuts: Cuts, run: Run) -> None:
    for pieces in cuts(text):
        lines, error = run(split_lines(max_line=5), pieces)
        assert type(error) is LimitExceeded
        assert (lines, error.which, error.limit) == (["ab", ""], "max_line", 5)


def test_none_lifts_the_limit(run: Run) -> None:
    assert run(split_lines(max_line=None), ["x" * 5_000_000, "\n"]) == (["x" * 5_000_000], None)


def test_by_default_there_is_a_limit(run: Run) -> None:
    assert type(run(split_lines(), ["x" * 5_000_000, "\n"])[1]) is LimitExceeded


@pytest.mark.parametrize("eof", ["discard", "dispatch"])
def test_an_endless_line_is_stopped(eof: Any) -> None:
    pulled = itertools.count()
    endless = ("x" * 100 for _ in pulled)
    with pytest.raises(LimitExceeded):
        list(SplitLines(max_line=1000, eof=eof).feed(endless))
    assert next(pulled) == 11


@given(st.lists(st.text(alphabet="ab\r\n\u2028", max_size=4)))
def test_any_text_gives_what_one_split_of_the_whole_gives(pieces: list[str]) -> None:
    stage = SplitLines(eof="dispatch")
    *lines, tail = re.split("\r\n|\r|\n", "".join(pieces))
    assert [*stage.feed(pieces), *stage.finish()] == lines + [tail] * bool(tail)
