from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rillet.operators import parse_arguments
from rillet.operators.errors import MalformedToolArguments


@pytest.mark.parametrize("text", ["", " ", "\n\t ", "null", " null ", "{}", " { } ", '"{}"', '" {} "'])
def test_no_arguments(text: str) -> None:
    assert parse_arguments(text) == {}


@pytest.mark.parametrize(
    ("text", "args"),
    [
        ('{"city":"Paris"}', {"city": "Paris"}),
        (' \r\n{ "a" : [ 1 , -2.5e3 , true , false , null ] }\t', {"a": [1, -2500.0, True, False, None]}),
        ('{"a":"crème brûlée ☕ \\ud83d\\ude80"}', {"a": "crème brûlée ☕ 🚀"}),
        ('{"a":1,"a":2}', {"a": 2}),
        ('{"":{"":""}}', {"": {"": ""}}),
        ('{"a":"\\u0000"}', {"a": "\0"}),
    ],
)
def test_one_object(text: str, args: dict[str, Any]) -> None:
    assert parse_arguments(text) == args


def test_a_string_that_holds_an_object_is_unwrapped_once() -> None:
    once = json.dumps('{"a":1}')
    assert parse_arguments(once) == {"a": 1}
    with pytest.raises(MalformedToolArguments):
        parse_arguments(json.dumps(once))


@pytest.mark.parametrize("digits", [1, 18, 19, 20, 30, 308, 309, 400, 4300])
@pytest.mark.parametrize("sign", ["", "-"])
def test_integers_are_exact_at_any_size(digits: int, sign: str) -> None:
    number = int(sign + "7" * digits)
    assert parse_arguments(f'{{"n":{number}}}') == {"n": number}
    assert parse_arguments(json.dumps(f'{{"n":[{number}]}}')) == {"n": [number]}


def test_a_long_fraction_stays_a_number() -> None:
    assert parse_arguments('{"n":0.1000000000000000000000001}') == {"n": 0.1}


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "1",
        "1.5",
        "true",
        "false",
        '"text"',
        '"null"',
        '""',
        '" "',
        '"[1]"',
        "[{}]",
        '{"a":1',
        '{"a":1}}',
        '{"a":1}{"b":2}',
        '{"a":1} x',
        '{"a":1,}',
        "{'a':1}",
        "{a:1}",
        '{"a":01}',
        '{"a":+1}',
        '{"a":.5}',
        '{"a":NaN}',
        '{"a":Infinity}',
        '{"a":-Infinity}',
        '{"a":1e400}',
        '{"a":"\n"}',
        '{"a":"\\x41"}',
        '{"a":"\\ud800"}',
        '{"a":"\ud800"}',
        '{"a":1}\0',
        "\ufeff{}",
        "\u00a0{}",
        "// none\n{}",
        "NULL",
        "nul",
        "[" * 2000 + "]" * 2000,
        '{"a":' * 1100 + "1" + "}" * 1100,
        '{"a":' + "1" * 4301 + "}",
    ],
    ids=lambda text: text[:24].encode("ascii", "backslashreplace").decode(),
)
def test_anything_else_is_malformed(text: str) -> None:
    with pytest.raises(MalformedToolArguments) as caught:
        parse_arguments(text)
    assert (caught.value.args_text, caught.value.index, caught.value.id, caught.value.name) == (text, 0, "", "")
    assert len(str(caught.value)) < 150


def test_deep_nesting_is_never_another_exception() -> None:
    for depth in (500, 900, 1000, 1020):
        for number in ("1", "1" * 30):  # a long one is parsed by another parser
            with contextlib.suppress(MalformedToolArguments):
                assert type(parse_arguments('{"a":' * depth + number + "}" * depth)) is dict


def test_the_message_never_quotes_the_text() -> None:
    with pytest.raises(MalformedToolArguments) as caught:
        parse_arguments('{"password":"hunter2"')
    assert "password" not in str(caught.value)
    assert "hunter2" not in str(caught.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text(), JSON), st.booleans())
def test_any_object_survives_the_way(args: dict[str, Any], escaped: bool) -> None:
    assert parse_arguments(json.dumps(args, ensure_ascii=escaped)) == args


@given(st.dictionaries(st.text(), JSON, min_size=1), st.data())
def test_any_object_cut_anywhere_is_malformed(args: dict[str, Any], data: st.DataObject) -> None:
    text = json.dumps(args)
    cut = text[: data.draw(st.integers(1, len(text) - 1))]
    with pytest.raises(MalformedToolArguments):
        parse_arguments(cut)


@given(st.text(alphabet='{}[]":,0123456789.eE+-\\ untrlfaseNI\ud800') | st.text())
def test_any_text_gives_an_object_or_that_one_error(text: str) -> None:
    try:
        args = parse_arguments(text)
    except MalformedToolArguments:
        return
    assert type(args) is dict


def test_digits_of_an_escape_are_no_integer() -> None:
    assert parse_arguments(r'{"a":"\u53611234567890123456"}') == {"a": "\u53611234567890123456"}
    assert parse_arguments(r'{"a":"\"1234567890123456789","n":12345678901234567890123}') == {
        "a": '"1234567890123456789',
        "n": 12345678901234567890123,
    }
