"""The short way for text that differs from event to event changes nothing but the cost."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire_events import Unlearnt

from rillet.operators import Delta, ServerSentEvent, TextDelta
from rillet.operators.decode_deltas import DecodeDeltas
from rillet.operators.stage import collected
from rillet.pipeline.protocols import openai_chat
from rillet.pipeline.protocols.text_template import TextTemplate

TEXTS = st.text(max_size=8) | st.sampled_from(
    ["Hi", "a b", '"', "\\", "\n", "\u2028", "\x7f", "é", "🚀", '","x":"', '"}']
)
FILLERS = st.none() | st.text(alphabet='aB1"\\', max_size=5)
CHOICES = st.integers(0, 2)
ENDINGS = st.sampled_from([None, None, None, "stop"])


def chunk(text: str, filler: str | None, choice: int, finish: str | None) -> dict[str, Any]:
    delta = {"index": choice, "delta": {"content": text}, "finish_reason": finish}
    return {"id": "c", "choices": [delta], **({} if filler is None else {"obfuscation": filler})}


def deltas_of(events: list[str]) -> tuple[list[Delta], type[Exception] | None]:
    stage = DecodeDeltas(openai_chat.OPENAI_CHAT)
    deltas, fault = stage.take([ServerSentEvent("message", data) for data in events])
    last, end = collected(stage.finish)
    fault = fault or end
    return [*deltas, *last], fault and type(fault)


def learn(template: TextTemplate, data: str, key: str, text: str) -> bool:
    return template.learn(ServerSentEvent("message", data), key, text, TextDelta)


def read(template: TextTemplate, data: str) -> Delta | None:
    return next(iter(template.read(ServerSentEvent("message", data))), None)


@given(
    st.lists(st.builds(chunk, TEXTS, FILLERS, CHOICES, ENDINGS), max_size=12),
    st.sampled_from([(",", ":"), (", ", ": ")]),
    st.booleans(),
)
def test_with_and_without_it_the_deltas_are_the_same(
    chunks: list[dict[str, Any]], separators: tuple[str, str], ascii_only: bool
) -> None:
    events = [json.dumps(chunk, separators=separators, ensure_ascii=ascii_only) for chunk in chunks]
    learnt = deltas_of(events)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(openai_chat, "TextTemplate", Unlearnt)
        assert deltas_of(events) == learnt


EVENT = '{"id":"c","choices":[{"delta":{"content":"%s"}}],"usage":null}'
PADDED = '{"content":"%s","obfuscation":"%s"}'


@pytest.mark.parametrize("text", ["b", "longer than before", "é 漢", "{}[]:,", 'a "b"\n\\', "\u2028", "\\n"])
def test_an_event_like_the_one_learnt_is_read(text: str) -> None:
    template = TextTemplate()
    assert learn(template, EVENT % "a", "content", "a")
    for ascii_only in (False, True):
        inside = json.dumps(text, ensure_ascii=ascii_only)[1:-1]
        assert read(template, EVENT % inside) == TextDelta(text)


@pytest.mark.parametrize(
    "data",
    [
        EVENT % "",
        EVENT % "a\\x",
        EVENT % "a\\ud800",
        EVENT % "a\\\n",
        EVENT % "a\\",
        EVENT % 'a","more":"b',
        EVENT % "a" + " ",
        (EVENT % "a")[:-1],
        (EVENT % "a").replace("null", "{}"),
        (EVENT % "a").replace('"c"', '"d"'),
        EVENT % "tab\there",
    ],
)
def test_anything_else_is_not(data: str) -> None:
    template = TextTemplate()
    assert learn(template, EVENT % "a", "content", "a")
    assert read(template, data) is None


def test_a_filler_may_differ_and_nothing_behind_it() -> None:
    template = TextTemplate()
    assert learn(template, PADDED % ("a", "xy"), "content", "a")
    assert read(template, PADDED % ("b", "z")) == TextDelta("b")
    assert read(template, PADDED % ("b", 'z","error":"1')) is None


def test_a_filler_may_stand_among_blanks_and_line_ends() -> None:
    template, spread = TextTemplate(), '{\n "content": "%s",\n "obfuscation": "%s"\n}'
    assert learn(template, spread % ("a", "xyz"), "content", "a")
    assert read(template, spread % ("b", "x")) == TextDelta("b")
    assert read(template, (spread % ("b", "x"))[:-1] + ', "more": 1}') is None


@pytest.mark.parametrize("filler", ['"', "}", ""])
def test_a_filler_that_is_cut_is_not_taken_for_one(filler: str) -> None:
    template = TextTemplate()
    assert learn(template, PADDED % ("a", "xy"), "content", "a")
    assert read(template, '{"content":"b","obfuscation":"' + filler) is None


@pytest.mark.parametrize(
    ("data", "text"), [(EVENT % "b", "a"), (EVENT % "", ""), ('{"a":{"content":"x"},"content":"x"}', "x")]
)
def test_what_can_not_be_told_apart_is_not_learnt(data: str, text: str) -> None:
    assert not learn(TextTemplate(), data, "content", text)


def test_a_server_whose_events_all_differ_is_given_up() -> None:
    template = TextTemplate()
    learnt = [learn(template, f'{{"id":{n},"content":"a"}}', "content", "a") for n in range(20)]
    assert learnt == [True] * 8 + [False] * 12


def test_what_was_forgotten_is_not_read() -> None:
    template = TextTemplate()
    assert learn(template, EVENT % "a", "content", "a")
    template.forget()
    assert read(template, EVENT % "b") is None


def test_an_event_of_another_type_is_not_read() -> None:
    template = TextTemplate()
    assert learn(template, EVENT % "a", "content", "a")
    assert template.read(ServerSentEvent("error", EVENT % "b")) == ()
