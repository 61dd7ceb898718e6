from __future__ import annotations

import ast
import copy
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rillet.operators import NO_VALUE, PartialJson
from rillet.operators.errors import LimitExceeded

Cuts = Callable[[str], Iterator[list[str]]]

TABLE = (Path(__file__).parents[2] / "docs" / "partial_json.md").read_text(encoding="utf-8")
SURROGATE = re.compile("[\ud800-\udfff]")


def rows(columns: str) -> list[tuple[str, str, str]]:
    """The first three cells of the table whose head begins with these columns."""
    _, _, table = TABLE.partition(f"| {columns} |")
    lines = table.partition("\n\n")[0].splitlines()[2:]
    return [
        (cells[0], cells[1], cells[2]) for line in lines if len(cells := re.findall(r"\| `(.*?)` (?=\|)", line)) == 3
    ]


UNFINISHED = rows("the text so far | `value` | `open_path`")
BROKEN = rows("the text so far | `value` | `broken`")


def written(cell: str) -> Any:
    return NO_VALUE if cell == "NO_VALUE" else ast.literal_eval(cell)


def read(*fragments: str) -> PartialJson:
    parser = PartialJson()
    for fragment in fragments:
        parser.feed(fragment)
    return parser


def shown(value: Any) -> Any:
    """A value of json.loads as a snapshot shows it: without lone surrogates."""
    match value:
        case str():
            return SURROGATE.sub("\ufffd", value)
        case list():
            return [shown(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
        case dict():
            return {shown(key): shown(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType]
        case _:
            return value


def loads(text: str) -> Any:
    """The standard library's value, as strict as RFC 8259; ValueError where it has none."""

    def refuse(word: str) -> Any:
        raise ValueError(word)

    def finite(digits: str) -> float:
        return refuse(digits) if float(digits) in (float("inf"), float("-inf")) else float(digits)

    return json.loads(text, parse_constant=refuse, parse_float=finite)


def same(one: Any, other: Any) -> bool:
    """Equal, in type and order too: 1 is neither 1.0 nor True."""
    return repr(one) == repr(other)


def is_prefix(snapshot: Any, final: Any, path: tuple[str | int, ...] | None) -> bool:
    """Whether the snapshot is the final value but for the one at the path, which is shorter."""
    if path is None:
        return same(snapshot, final)
    match snapshot, final:
        case str(), str():
            return path == () and final.startswith(snapshot)
        case list(), list():
            finished, steps = len(snapshot) - bool(path), list(range(len(snapshot)))
        case dict(), dict():
            finished, steps = len(snapshot) - bool(path), list(snapshot)
            if list(final)[: len(steps)] != steps:
                return False
        case _:
            return False
    if path and steps[-1] != path[0]:
        return False
    if not all(same(snapshot[step], final[step]) for step in steps[:finished]):
        return False
    return not path or is_prefix(snapshot[path[0]], final[path[0]], path[1:])


def certain(text: str) -> Any:
    """What is certain of the start of a valid document, found by closing it in the naive way."""
    closers: list[str] = []
    in_string = False
    for token in re.finditer(r'\\.|["{}\[\]]', text, re.DOTALL):
        if token[0] == '"':
            in_string = not in_string
        elif not in_string and token[0] in "{[":
            closers.append("}" if token[0] == "{" else "]")
        elif not in_string and token[0] in "}]":
            closers.pop()
    if in_string:
        text = re.sub(r"((?:^|[^\\])(?:\\\\)*)\\(?:u[0-9a-fA-F]{0,3})?\Z", r"\1", text)
        text = re.sub(r"((?:^|[^\\])(?:\\\\)*)\\u[dD][89abAB][0-9a-fA-F]{2}\Z", r"\1", text)
        text += '"'
    elif closers:  # a number that may go on, a part of a literal
        text = re.sub(r"(?:-?[0-9][-+.0-9eE]*|-|\b(?:t|tr|tru|f|fa|fal|fals|n|nu|nul))\Z", "", text)
    ends = "".join(reversed(closers))
    while True:
        try:
            return shown(json.loads(text + ends))
        except json.JSONDecodeError:
            if not text:
                return NO_VALUE
        # a key without a value, a comma, a colon
        text = re.sub(r'(?:,\s*|:\s*|"(?:[^"\\]|\\.)*"\s*|\s+|.)$', "", text, count=1, flags=re.DOTALL)


characters = st.characters(exclude_categories=()) | st.sampled_from('a"\\/\n\t\x7f\u2028é€🚀\ud83d\ude80')
texts = st.text(characters, max_size=12)
keys = st.text(st.characters() | st.sampled_from('a"\\\n🚀'), max_size=6)
numbers = st.integers() | st.integers(-(10**60), 10**60) | st.floats(allow_nan=False, allow_infinity=False)
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=12,
)
documents = st.builds(
    lambda value, ascii, indent: json.dumps(value, ensure_ascii=ascii, indent=indent),
    values,
    st.booleans(),
    st.sampled_from((None, 1, "\t")),
)


@st.composite
def fragments(draw: st.DrawFn, text: str) -> list[str]:
    places = sorted(draw(st.lists(st.integers(0, len(text)), max_size=30)))
    return [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]


def each_character(text: str) -> list[str]:
    return list(text)


def test_the_tables_are_there() -> None:
    assert (len(UNFINISHED), len(BROKEN)) == (33, 7)


def test_the_example_runs() -> None:
    _, _, example = TABLE.partition("```python\n")
    exec(compile(example.partition("```")[0], "docs/partial_json.md", "exec"), {})


@pytest.mark.parametrize(("text", "value", "path"), UNFINISHED)
def test_a_snapshot_shows_what_the_table_says(text: str, value: str, path: str, cuts: Cuts) -> None:
    for pieces in ([text], each_character(text), *cuts(text)):
        parser = read(*pieces)
        assert same(parser.value, written(value)), pieces
        assert parser.open_path == written(path), pieces
        assert parser.broken is None
        assert parser.complete == (path == "None" and value != "NO_VALUE")


@pytest.mark.parametrize(("text", "value", "broken"), BROKEN)
def test_broken_text_stays_visible_as_the_table_says(text: str, value: str, broken: str, cuts: Cuts) -> None:
    for pieces in ([text], each_character(text), *cuts(text)):
        parser = read(*pieces, ' "more"]}')
        assert same(parser.value, written(value)), pieces
        assert parser.broken == int(broken), pieces
        assert not parser.complete


@given(st.data())
def test_every_snapshot_is_a_prefix_of_the_final_value(data: st.DataObject) -> None:
    text = data.draw(documents)
    pieces = data.draw(fragments(text)) if data.draw(st.booleans()) else each_character(text)
    final = shown(json.loads(text))
    parser = PartialJson()
    handed_out: list[tuple[Any, Any]] = []
    for piece in pieces:
        parser.feed(piece)
        snapshot = parser.value
        if snapshot is NO_VALUE:
            assert parser.open_path is None
            continue
        assert is_prefix(snapshot, final, parser.open_path), (snapshot, parser.open_path)
        assert not SURROGATE.search(json.dumps(snapshot, ensure_ascii=False))
        handed_out.append((snapshot, copy.deepcopy(snapshot)))
    parser.feed("\n")
    assert same(parser.value, final)
    assert (parser.complete, parser.open_path, parser.broken) == (True, None, None)
    for snapshot, as_it_was in handed_out:
        assert same(snapshot, as_it_was)


@given(documents)
def test_a_snapshot_shows_all_that_is_certain(text: str) -> None:
    parser = PartialJson()
    for at, char in enumerate(text, 1):
        parser.feed(char)
        if isinstance(parser.value, (dict, list, str)):
            assert same(parser.value, certain(text[:at])), text[:at]


@given(st.data())
def test_keys_never_vanish(data: st.DataObject) -> None:
    text = data.draw(documents)
    parser, seen = PartialJson(), set[tuple[Any, ...]]()

    def paths(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
        yield at
        steps: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for step, inner in steps:
            yield from paths(inner, (*at, step))

    for piece in data.draw(fragments(text)):
        parser.feed(piece)
        now = set[tuple[Any, ...]]() if parser.value is NO_VALUE else set(paths(parser.value))
        assert seen <= now
        seen = now


@given(st.data())
def test_any_text_at_all_does_as_the_standard_library_says(data: st.DataObject) -> None:
    text = data.draw(st.text(st.sampled_from('{}[]:,"\\ue+-.0123dDtrufalsn \n\x00é\ud83d'), max_size=30) | documents)
    if text and data.draw(st.booleans()):  # a valid document with one character changed
        at = data.draw(st.integers(0, len(text) - 1))
        text = text[:at] + data.draw(st.sampled_from('{}[]:,"\\u-0e N\x1f')) + text[at + 1 :]
    whole, pieces = read(text), data.draw(fragments(text))
    cut = read(*pieces)
    assert same(cut.value, whole.value)
    assert (cut.open_path, cut.broken, cut.complete) == (whole.open_path, whole.broken, whole.complete)
    whole.feed(" ")
    try:
        final = loads(text)
    except ValueError:
        assert not whole.complete
    else:
        assert whole.complete
        assert same(whole.value, shown(final))


@given(documents, st.sampled_from("]},:x\x00"))
def test_broken_says_where(text: str, wrong: str) -> None:
    """The text is as it was without what came there, and no shorter start of it was broken."""
    for at in range(len(text)):
        parser = read(text[:at] + wrong)
        if parser.broken is not None:
            assert parser.broken <= at
            assert read(text[:at]).broken is None


# The classes of cases that the well-known test suites of JSON parsers have.

VALID = {
    "arrays": [
        *("[]", "[[]   ]", '[""]', '[null, 1, "1", {}]', "[1\n]", " [1]", "[1,null,null,null,2]", "[2] "),
    ],
    "numbers": [
        *("[123e65]", "[0e+1]", "[0e1]", "[ 4]", "[20e1]", "[-0]", "[-0.0]", "[-123]", "[-1]", "[1E22]", "[1E-2]"),
        *("[1E+2]", "[123e45]", "[123.456e78]", "[1e-2]", "[1e+2]", "[123]", "[123.456789]", "[1e-400]"),
        *("[-1e-400]", "[-0.000000000000000000000000000000000000000000000000000000000000000000000000000001]"),
        "[100000000000000000000]",
        "[" + "9" * 4300 + "]",
        "[0." + "1" * 5000 + "]",
    ],
    "objects": [
        *('{"asd":"sdf", "dfg":"fgh"}', '{"asd":"sdf"}', '{"a":"b","a":"c"}', '{"a":"b","a":"b"}', "{}", '{"":0}'),
        *('{"foo\\u0000bar": 42}', '{"min": -1.0e+28, "max": 1.0e+28}', '{"x":[{"id": "x"}], "id": "y"}'),
        *('{"a":[]}', '{"title":"\\u041f\\u043e" }', '{\n"a": "b"\n}', '{"a":{"b":1},"a":{"c":2}}'),
    ],
    "strings": [
        *('["\\u0060\\u012a\\u12AB"]', '["\\uD801\\udc37"]', '["\\ud83d\\ude39\\ud83d\\udc8d"]', '["\\\\u0000"]'),
        *('["\\"\\\\\\/\\b\\f\\n\\r\\t"]', '["\\\\n"]', '["\\u0012"]', '["\\uFFFF"]', '["a/*b*/c/*d//e"]'),
        *('["\\\\a"]', '["\\"" ]', '[ "asd"]', '["\U0010ffff"]', '["\uffff"]', '["\\u0000"]', '["\\u002c"]'),
        *('["π"]', '["\U0001bfff"]', '" "', '["\\uDBFF\\uDFFF"]', '["new\\u00A0line"]', '["\u2028\u2029"]'),
        *('["\\u0022"]', '["\x7f"]', '["€𝄞"]', '["aa\\u2060"]', '["\\uA66D"]', '["\\u005C"]', '["⍂㈴⍂"]'),
        *('["\\uFDD0\\uFFFE\\u200B"]', '[" "]', '""'),
    ],
    "structures": [
        *("false", "42 ", "-0.1 ", "null", '"asd"', "true", '["a"]\n', "[true]", "\r\n\t []\t", "[]", "[ ]"),
    ],
}
INVALID = {
    "arrays": [
        *("[1 true]", '["": 1]', '[""],', "[,1]", "[1,,2]", '["x",,]', '["x"]]', '["",]', "[3[4]]", "[1:2]", "[,]"),
        *("[-]", '[   , ""]', '["a",\n4\n,1,', "[1,]", "[1,,]", "[*]", '[""', "[1,", "[1,\n1\n,1", "[{}"),
        *('["\x0ba"\\f]', "[x", "[", "[1", "]", "[a", "['a']", "[1}", "[\u2060]", "[\x0c]", "[<null>]", "[\\n]"),
        *("[][]", "[⍂]"),
    ],
    "literals": [
        *("[nul]", "[tru]", "[fals]", "[truth]", "[True]", "[TRUE]", "[NULL]", "nulll", "[nan]", "[truefalse]"),
    ],
    "numbers": [
        *("[++1234]", "[+1]", "[+Inf]", "[-01]", "[-1.0.]", "[-2.]", "[-NaN]", "[.-1]", "[.2e-3]", "[0.1.2]"),
        *("[0.3e+]", "[0.3e]", "[0.e1]", "[0E+]", "[0E]", "[1.0e+]", "[1.0e-]", "[1.0e]", "[1 000.0]", "[1eE2]"),
        *("[2.e+3]", "[2.e3]", "[9.e+]", "[Inf]", "[NaN]", "[１]", "[1+2]", "[0x1]", "[0x42]", "[Infinity]"),
        *("[0e+-1]", "[-123.123foo]", "[-]", "[-Infinity]", "[-foo]", "[- 1]", "[-012]", "[-.123]", "[-1x]"),
        *("[1ea]", "[1.]", "[.123]", "[1.2a-3]", "[012]", "[1e1e1]", "[1_000]", "[0-1]", "[--1]", "-", "1.", "1e"),
        *("[٣]", "[1.8011670033376514H-308]"),
    ],
    "objects": [
        *('["x", truth]', '{[: "x"}', '{"x", null}', '{"x"::"b"}', "{🇨🇭}", '{"a":"a" 123}', "{key: 'value'}"),
        *('{"a" b}', '{:"b"}', '{"a" "b"}', '{"a":', '{"a"', "{1:1}", "{9999E9999:1}", "{null:null,null:null}"),
        *('{"id":0,,,,,}', "{'a':0}", '{"id":0,}', '{"a":"b"}/**/', '{"a":"b"}#', '{"a":"b",,"c":"d"}', '{a: "b"}'),
        *('{"a":"a', "{ }}", '{"a":"b"}a', '{"a":1]', "{", "{,", '{"a":"b"}{}', '{"a"}', '{"a":}', '{"a":1,"b"}'),
        '{"a":1 "b":2}',
    ],
    "strings": [
        *('["\\uD800\\"]', '["\\uD800\\u"]', '["\\uD800\\u1"]', '["\\uD800\\u1x"]', "[é]", '["\\x00"]'),
        *('["\\\\\\"]', '["\\\t"]', '["\\🌀"]', '["\\"]', '["\\u00A"]', '["\\uD834\\uDd"]', '["\\a"]'),
        *('["\\uqqqq"]', '[\\u0020"asd"]', "[\\n]", '"', "['single']", "abc", '["\\', '["a\x00a"]'),
        *('["new\nline"]', '["\t"]', '"\\UA66D"', '""x', '["\x1f"]', '"\\u 123"', '"\\u+123"', '"\\u0_00"'),
        '["\\u００e9"]',
    ],
    "structures": [
        *("<.>", "[<null>]", "[1]x", "[1]]", '["asd]', "aå", "[True]", "1]", '{"x": true,', "[][]", "]", "{]"),
        *("\ufeff[]", "å", "[", '{"": [', "[\xa01]", "\u2060", "", " ", "{}}", "[1}", "*", '{"a":"b"}#{}'),
        *("[\x0b1]", "//\n1 ", "[1\x00]", '[{"a":[{"a":[{"a":['),
    ],
}
EITHER = [
    *("[123.456e-789]", "[0.4e00669999999999999999999999999999999999]", "[-1e+9999]", "[1.5e+9999]", "[1e99999999999]"),
    *('["\\uDADA"]', '["\\uD888\\u1234"]', '["\\uD800\\n"]', '["\\uDd1ea"]', '["\\uD800\\uD800\\n"]', '["\\ud800"]'),
    *('["\\ud800abc"]', '["\\uDd1e\\uD834"]', '["\\uDFAA"]', '{"\\uDFAA":0}', '["\ud800"]', '["\ud83d\ude80"]'),
    *("[" + "1" * 4301 + "]", "[" * 500 + "]" * 500, "[-" + "1" * 10_000 + "]"),
]


@pytest.mark.parametrize("text", [text for group in VALID.values() for text in group])
def test_valid_documents_are_as_the_standard_library_reads_them(text: str) -> None:
    for pieces in ([text], each_character(text)):
        parser = read(*pieces)
        assert same(parser.value, json.loads(text))
        assert (parser.complete, parser.broken, parser.open_path) == (True, None, None)


@pytest.mark.parametrize("text", [text for group in INVALID.values() for text in group])
def test_invalid_documents_are_never_complete(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        loads(text)
    parsers = [read(text), read(*each_character(text))]
    assert not any(parser.complete for parser in parsers)
    assert repr(parsers[0].value) == repr(parsers[1].value)
    assert parsers[0].broken == parsers[1].broken


@pytest.mark.parametrize("text", EITHER, ids=lambda text: text[:20].encode("ascii", "backslashreplace").decode())
def test_what_parsers_may_take_or_refuse_does_not_crash(text: str) -> None:
    seen: list[object] = []
    for pieces in ([text], each_character(text)):
        parser = PartialJson()
        try:
            for piece in pieces:
                parser.feed(piece)
        except LimitExceeded:
            seen.append(("limit", repr(parser.value)))
        else:
            seen.append((repr(parser.value), parser.broken))
            assert not SURROGATE.search(repr(parser.value))
    assert seen[0] == seen[1]


# Limits


def test_nesting_has_a_limit() -> None:
    deep = read("[" * 200)
    assert deep.open_path == (0,) * 199
    before = repr(deep.value)
    for _ in range(2):
        with pytest.raises(LimitExceeded) as caught:
            deep.feed("[1")
        assert (caught.value.which, caught.value.limit) == ("max_depth", 200)
    assert repr(deep.value) == before
    assert not deep.complete


def test_only_what_is_open_counts_as_nesting() -> None:
    parser = PartialJson(max_depth=2)
    parser.feed('{"a":[],"b":{},"c":[1,"x"]}')
    assert parser.complete


@pytest.mark.parametrize("text", ['["abcdefgh', "[1,2,3,4,5", '{"abcdefg', " " * 10, "[" + "1" * 9])
def test_the_text_has_a_limit(text: str) -> None:
    for pieces in ([text + "x"], each_character(text + "x"), [text, "x"], [text[:4], text[4:] + "xy"]):
        parser = PartialJson(max_size=len(text))
        with pytest.raises(LimitExceeded) as caught:
            for piece in pieces:
                parser.feed(piece)
        assert (caught.value.which, caught.value.limit) == ("max_size", len(text))
        assert same(parser.value, read(text).value)
        with pytest.raises(LimitExceeded):
            parser.feed("x")


def test_broken_text_has_no_limit_to_hit() -> None:
    parser = PartialJson(max_size=4)
    for _ in range(3):
        parser.feed("[x]")
    assert (parser.broken, parser.value) == (1, [])


def test_there_may_be_no_limit_of_size() -> None:
    parser = PartialJson(max_size=None)
    parser.feed('"' + "a" * 10 + "\n")
    assert parser.broken == 11


# Snapshots


def test_finished_subtrees_are_shared() -> None:
    parser = read('{"a": {"b": [1, 2]}, "c": "')
    first: Any = parser.value
    parser.feed("x")
    second: Any = parser.value
    assert first is not second
    assert first["a"] is second["a"]


@pytest.mark.parametrize("text", ["", "[", '["x', '["x\\', '["x\\ud83d', "[1", "[tru", '{"k', "[]"])
def test_an_empty_fragment_changes_nothing(text: str) -> None:
    parser = read(text)
    before = parser.value
    parser.feed("")
    assert not parser.changed
    assert parser.value is before


def test_nothing_is_made_anew_where_nothing_new_is_certain() -> None:
    parser = read('{"a": 1, "b')
    first = parser.value
    for piece in ('"', ":", " ", "12", "3"):
        parser.feed(piece)
        assert parser.value is first
    parser.feed(",")
    assert parser.value == {"a": 1, "b": 123}


@given(documents)
def test_changed_says_whether_the_value_will_be_another(text: str) -> None:
    parser = PartialJson()
    for char in text + " ":
        before, path = parser.value, parser.open_path
        parser.feed(char)
        if not parser.changed:
            assert parser.value is before
            assert parser.open_path == path


def test_a_snapshot_is_made_of_plain_values() -> None:
    def types(value: Any) -> set[type]:
        inner = value.values() if type(value) is dict else value if type(value) is list else ()
        return {type(value)}.union(*map(types, inner))

    assert types(read('{"a": [1, 1.5, true, null, {"b": "').value) == {dict, list, int, float, bool, type(None), str}


def test_changing_what_was_open_in_a_snapshot_changes_no_later_one() -> None:
    parser = read('{"a": 1, "b": ["x", "')
    mine: Any = parser.value
    mine["b"].clear()
    mine.clear()
    parser.feed("y")
    assert parser.value == {"a": 1, "b": ["x", "y"]}


def test_no_value_says_what_it_is() -> None:
    assert repr(NO_VALUE) == "NO_VALUE"
    assert PartialJson().value is NO_VALUE
    assert read("null").value is None
