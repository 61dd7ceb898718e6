"""Newline-delimited JSON."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reactivex import Subject

from rillet.operators import JsonLine, split_json_lines
from rillet.operators.errors import LimitExceeded
from rillet.operators.split_json_lines import SplitJsonLines

Cuts = Callable[[str], Iterator[list[str]]]
Run = Callable[..., tuple[list[Any], Any]]


def lines(*texts: str) -> list[JsonLine]:
    return [JsonLine(text) for text in texts]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param('{"a":1}\n{"b":"é ☕"}\n', ['{"a":1}', '{"b":"é ☕"}'], id="LF"),
        pytest.param('{"a":1}\r\n{"b":2}\r\n', ['{"a":1}', '{"b":2}'], id="CRLF"),
        pytest.param('{"a":1}\r{"b":2}\r', ['{"a":1}', '{"b":2}'], id="CR"),
        pytest.param('\n{"a":1}\n\n \t\n{"b":2}\n\n', ['{"a":1}', '{"b":2}'], id="blank lines"),
        pytest.param(' {"a":1} \n', [' {"a":1} '], id="blanks around"),
        pytest.param('{"a":"\u2028"}\n', ['{"a":"\u2028"}'], id="nothing else ends a line"),
        pytest.param("no JSON\n{\n[]\n5\n", ["no JSON", "{", "[]", "5"], id="they are not parsed"),
        pytest.param("", [], id="empty"),
    ],
)
def test_cuts_change_nothing(text: str, expected: list[str], cuts: Cuts, run: Run) -> None:
    for pieces in cuts(text):
        assert run(split_json_lines(), pieces) == (lines(*expected), None)


def test_a_line_is_emitted_the_moment_it_ends() -> None:
    source: Subject[str] = Subject()
    found: list[JsonLine] = []
    source.pipe(split_json_lines()).subscribe(found.append)
    source.on_next('{"a":1}')
    assert found == []
    source.on_next("\n{")
    assert found == lines('{"a":1}')


@pytest.mark.parametrize("last", ["{}", '{"b":"é"}', ' {"b":[1]} '])
def test_a_last_line_without_its_end_counts_where_it_is_one_whole_object(last: str, cuts: Cuts, run: Run) -> None:
    for pieces in cuts('{"a":1}\n' + last):
        assert run(split_json_lines(), pieces) == (lines('{"a":1}', last), None)


def test_no_beginning_of_a_last_line_counts(run: Run) -> None:
    last = '{"b":{"c":["é",12]}}'
    for length in range(len(last)):
        assert run(split_json_lines(), ['{"a":1}\n', last[:length]]) == (lines('{"a":1}'), None)


@pytest.mark.parametrize("last", ["1", "true", "[]", '"a"', "null", "{}{}", "{} x", "[DONE]", "{'a':1}", '{"a":NaN}'])
def test_no_other_last_line_counts(last: str, run: Run) -> None:
    assert run(split_json_lines(), ["{}\n", last]) == (lines("{}"), None)


def test_a_last_line_nested_without_end_does_not_count(run: Run) -> None:
    assert run(split_json_lines(), ["{}\n", '{"a":' * 5_000 + "1" + "}" * 5_000]) == (lines("{}"), None)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", ""])
def test_exactly_max_line_passes(end: str, cuts: Cuts, run: Run) -> None:
    for pieces in cuts('{"a":1}\n{"b":2}' + end):
        assert run(split_json_lines(max_line=7), pieces) == (lines('{"a":1}', '{"b":2}'), None)


@pytest.mark.parametrize("long", ['{"b":12}\n{}\n', '{"b":12}', " " * 8 + "\n", "x" * 50])
def test_one_over_fails_after_the_lines_before(long: str, cuts: Cuts, run: Run) -> None:
    for pieces in cuts('{"a":1}\n\n' + long):
        found, error = run(split_json_lines(max_line=7), pieces)
        assert (found, type(error)) == (lines('{"a":1}'), LimitExceeded)
        assert (error.which, error.limit) == ("max_line", 7)


def test_none_lifts_the_limit(run: Run) -> None:
    assert run(split_json_lines(max_line=None), ["x" * 5_000_000, "\n"]) == (lines("x" * 5_000_000), None)


def test_by_default_there_is_a_limit(run: Run) -> None:
    assert type(run(split_json_lines(), ["x" * 5_000_000, "\n"])[1]) is LimitExceeded


def test_an_endless_line_is_stopped() -> None:
    pulled = itertools.count()
    with pytest.raises(LimitExceeded):
        list(SplitJsonLines(max_line=1_000).feed("x" * 100 for _ in pulled))
    assert next(pulled) == 11


def test_an_error_of_the_source_arrives_as_it_is_and_gives_no_last_line() -> None:
    source: Subject[str] = Subject()
    found: list[JsonLine] = []
    ends: list[Exception] = []
    source.pipe(split_json_lines()).subscribe(found.append, ends.append)
    source.on_next('{}\n{"a":1}')
    fault = OSError()
    source.on_error(fault)
    assert (found, ends) == (lines("{}"), [fault])


def test_a_line_has_no_type_of_its_own() -> None:
    assert JsonLine("{}").event == "message"


objects: Any = st.dictionaries(st.text(max_size=3), st.text(max_size=3) | st.integers(), max_size=3)


@given(st.lists(objects), st.integers(1, 9), st.sampled_from(["\n", "\r\n", "\r"]), st.booleans())
def test_any_objects_at_any_cuts(values: list[Any], size: int, end: str, ended: bool) -> None:
    text = end.join(json.dumps(value, ensure_ascii=False) for value in values) + end * ended
    stage = SplitJsonLines()
    found = [*stage.feed(text[n : n + size] for n in range(0, len(text), size)), *stage.finish()]
    assert [json.loads(line.data) for line in found] == values
