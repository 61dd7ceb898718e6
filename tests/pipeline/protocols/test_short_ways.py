"""Events that are read a shorter way give what the plain way gives: the same deltas, and the same kind of fault."""

from __future__ import annotations

import json
from importlib import import_module
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire_events import EVENTS, OPENINGS, Unlearnt, mostly

from rillet.operators import Delta, ServerSentEvent, TextDelta, ToolCallDelta
from rillet.operators.decode_deltas import DecodeDeltas
from rillet.operators.stage import collected
from rillet.pipeline.protocols import PROTOCOLS
from rillet.pipeline.protocols.chat_choice import Choice
from rillet.pipeline.protocols.gemini import GeminiDecoder
from rillet.pipeline.protocols.openai_chat import OpenAIChatDecoder

Outcome = tuple[list[list[Delta]], type[Exception] | None]

types = mostly(st.just("message"), st.sampled_from(["error", "content_block_delta"]))


def outcome(protocol: str, events: list[tuple[str, str]]) -> Outcome:
    """The deltas, event by event, and the fault."""
    stage, deltas = DecodeDeltas(PROTOCOLS[protocol]), list[list[Delta]]()
    for kind, data in events:
        given, fault = stage.take((ServerSentEvent(kind, data),))
        deltas.append(list(given))
        if fault is not None:
            return deltas, type(fault)
    last, fault = collected(stage.finish)
    return [*deltas, last], fault and type(fault)


def both_ways(protocol: str, events: list[tuple[str, str]]) -> tuple[Outcome, Outcome]:
    """What the events give by the short ways, and by the plain one."""
    shortly = outcome(protocol, events)
    module = import_module(f"rillet.pipeline.protocols.{protocol.replace('-', '_')}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "TextTemplate", Unlearnt)
        patch.setattr(OpenAIChatDecoder, "_piece", lambda *_: None)
        patch.setattr(GeminiDecoder, "_piece", lambda *_: ())
        patch.setattr(Choice, "go_on", lambda *_: None)
        return shortly, outcome(protocol, events)


@pytest.mark.parametrize("protocol", EVENTS)
@given(data=st.data())
def test_the_short_ways_are_the_plain_one(protocol: str, data: st.DataObject) -> None:
    opening = [OPENINGS[protocol]] if protocol in OPENINGS and data.draw(st.booleans()) else []
    payloads = opening + data.draw(st.lists(EVENTS[protocol], max_size=10))
    separators, ascii_only = data.draw(st.sampled_from([(",", ":"), (", ", ": ")])), data.draw(st.booleans())
    # Twice the same event is the beginning of a short way.
    payloads = [
        payload for payload in payloads for _ in range(1 if payload in opening else data.draw(st.integers(1, 2)))
    ]
    events = [
        (data.draw(types), json.dumps(payload, separators=separators, ensure_ascii=ascii_only)) for payload in payloads
    ]
    shortly, plainly = both_ways(protocol, events)
    assert shortly == plainly


def a_call(**entry: Any) -> str:
    return json.dumps({"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, **entry}]}}]})


SAID = '{"choices":[{"index":0,"delta":{"content":"%s"}%s}]}'
END = ',"finish_reason":"tool_calls"'
STOP = ',"finish_reason":"stop"'
HALF = a_call(id="c1", function={"name": "f", "arguments": '{"a":'})
SECOND = a_call(index=1, id="c2", function={"name": "g", "arguments": "{}"})
HEAD = a_call(id="c1", function={"name": "f", "arguments": "{}"})


GEMINI = '{"candidates":[{"index":0,"content":{"parts":[{"text":"%s"}]}%s}]}'
REFUSAL = '{"type":"response.refusal.delta","output_index":0,"delta":"%s"}'
BLOCK = '{"type":"content_block_start","index":0,"content_block":{"type":"%s","id":"t","name":"f"}}'
FRAGMENT = '{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"%s"}}'
STEP = '{"event_type":"step.start","index":0,"step":{"type":"%s","id":"t","name":"f"}}'
ARGUMENTS = '{"event_type":"step.delta","index":0,"delta":{"type":"arguments_delta","arguments":"%s"}}'
COMPLETION = '{"choices":[{"index":%d,"text":"%s","finish_reason":%s}]}'
RESPONSE_CALL = '{"type":"response.output_item.added","output_index":0,"item":{"type":"%s","name":"f"}}'
RESPONSE_FRAGMENT = '{"type":"response.function_call_arguments.delta","output_index":0,"delta":"%s"}'
RESPONSE_WHOLE = '{"type":"response.function_call_arguments.done","output_index":0,"arguments":"%s"}'


@pytest.mark.parametrize(
    ("protocol", "events"),
    [
        ("openai-chat", [HEAD, a_call(function={"name": "g", "arguments": "{}"})]),
        ("openai-chat", [HEAD, a_call(id="c2", function={"arguments": "{}"})]),
        ("openai-chat", [HEAD, *[a_call(function={"arguments": args}) for args in (" ", "1")]]),
        ("openai-chat", [SAID % ("a", ""), SAID % ("b", ',"finish_reason":"stop"'), SAID % ("c", "")]),
        (
            "openai-chat",
            [*[SAID % (text, "") for text in "abc"], SAID % ("", ',"finish_reason":"stop"'), SAID % ("d", "")],
        ),
        ("openai-chat", [SAID % ("a", ""), SAID % ("a", ""), SAID % ("", ',"finish_reason":"stop"'), SAID % ("c", "")]),
        ("openai-chat", [HALF, *[a_call(function={"arguments": args}) for args in ("1", "2", "}")], SAID % ("", END)]),
        (
            "openai-chat",
            [HALF, SECOND, *[a_call(function={"arguments": args}) for args in ("1", "}")], SAID % ("", END)],
        ),
        (
            "openai-completions",
            [COMPLETION % (0, "a", "null"), COMPLETION % (0, "", '"stop"'), COMPLETION % (0, "b", "null")],
        ),
        (
            "openai-completions",
            [COMPLETION % (0, "a", "null"), COMPLETION % (0, "b", '"stop"'), COMPLETION % (0, "b", "null")],
        ),
        ("openai-completions", [COMPLETION % (0, "a", '"stop"'), COMPLETION % (0, "b", '"stop"')]),
        ("gemini", [GEMINI % ("a", ""), GEMINI % ("b", ',"finishReason":"STOP"')]),
        ("gemini", [GEMINI % ("a", ""), GEMINI % ("b", ',"finishReason":"STOP"'), GEMINI % ("c", "")]),
        ("openai-responses", [REFUSAL % "a", REFUSAL % "b", '{"type":"response.completed","response":{}}']),
        (
            "openai-responses",
            [RESPONSE_CALL % "function_call", *[RESPONSE_FRAGMENT % n for n in "123"], RESPONSE_WHOLE % "123"],
        ),
        (
            "openai-responses",
            [RESPONSE_CALL % "function_call", *[RESPONSE_FRAGMENT % n for n in "123"], RESPONSE_WHOLE % "12"],
        ),
        ("openai-responses", [RESPONSE_CALL % "custom_tool_call", *[RESPONSE_FRAGMENT % n for n in ("a", '\\"')]]),
        ("anthropic", [BLOCK % "tool_use", FRAGMENT % "1", BLOCK % "server_tool_use", FRAGMENT % "2"]),
        ("google-interactions", [STEP % "function_call", ARGUMENTS % "1", STEP % "thought", ARGUMENTS % "2"]),
    ],
)
def test_what_only_looks_like_more_of_the_same(protocol: str, events: list[str]) -> None:
    shortly, plainly = both_ways(protocol, [("message", data) for data in events])
    assert shortly == plainly


@pytest.mark.parametrize("protocol", EVENTS)
def test_every_template_is_of_use(protocol: str) -> None:
    """The event after the first of its kind is read without parsing it."""
    event = {
        "openai-chat": '{"choices":[{"index":0,"delta":{"content":"%s"},"finish_reason":null}],"obfuscation":"x"}',
        "openai-completions": '{"choices":[{"text":"%s","index":0,"finish_reason":null}],"model":"m"}',
        "openai-responses": '{"type":"response.output_text.delta","sequence_number":7,"output_index":0,"delta":"%s"}',
        "anthropic": '{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"%s"}   }',
        "gemini": '{"candidates":[{"content":{"parts":[{"text":"%s"}]},"index":0}]}',
        "google-interactions": '{"delta":{"text":"%s","type":"text"},"event_type":"step.delta","index":0}',
        "cohere": '{"type":"content-delta","index":0,"delta":{"message":{"content":{"text":"%s"}}}}',
        "ollama": '{"model":"m","created_at":"2025","message":{"role":"assistant","content":"%s"},"done":false}',
        "plain": '{"type":"text","delta":"%s"}',
    }[protocol]
    stage = DecodeDeltas(PROTOCOLS[protocol])
    assert stage.template is not None
    for text in ("a", "b"):
        stage.take([ServerSentEvent("message", event % text)])
    event = event.replace("2025", "2026").replace("7", "8").replace("   }", "}")
    assert stage.template.read(ServerSentEvent("message", event % "c")) == (TextDelta("c"),)
    assert stage.template.read(ServerSentEvent("message", event % 'd \\"é\\n\\u00e9')) == (TextDelta('d "é\né'),)
    assert stage.template.read(ServerSentEvent("message", event % "\\ud800")) == ()
    assert stage.template.read(ServerSentEvent("error", event % "c")) == ()


@pytest.mark.parametrize("protocol", OPENINGS)
def test_every_template_is_of_use_for_arguments(protocol: str) -> None:
    """And it is of none once the call is closed."""
    event, end = {
        "openai-chat": (a_call(function={"arguments": "%s"}), SAID % ("", ',"finish_reason":"stop"')),
        "openai-responses": (
            '{"type":"response.function_call_arguments.delta","output_index":0,"delta":"%s"}',
            '{"type":"response.output_item.done","output_index":0,"item":{"type":"function_call"}}',
        ),
        "anthropic": (
            '{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"%s"}}',
            '{"type":"content_block_stop","index":0}',
        ),
        "google-interactions": (
            '{"event_type":"step.delta","index":0,"delta":{"type":"arguments_delta","arguments":"%s"}}',
            '{"event_type":"step.stop","index":0}',
        ),
        "cohere": (
            '{"type":"tool-call-delta","index":0,"delta":{"message":{"tool_calls":{"function":{"arguments":"%s"}}}}}',
            '{"type":"tool-call-end","index":0}',
        ),
        "plain": ('{"type":"tool_call_delta","index":0,"args":"%s"}', '{"type":"tool_call_end","index":0}'),
    }[protocol]
    stage = DecodeDeltas(PROTOCOLS[protocol])
    assert stage.template is not None
    for data in (json.dumps(OPENINGS[protocol]), event % "{", event % " "):
        stage.take([ServerSentEvent("message", data)])
    assert stage.template.read(ServerSentEvent("message", event % "}")) == (ToolCallDelta(0, "}"),)
    stage.take([ServerSentEvent("message", end)])
    assert stage.template.read(ServerSentEvent("message", event % "}")) == ()
