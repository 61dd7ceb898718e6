"""Events that are read a shorter way give what the plain way gives: the same deltas, and the same kind of fault."""

from __future__ import annotations

import json
from importlib import import_module
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rillet.operators import Delta, ServerSentEvent, TextDelta, ToolCallDelta, WireEvent
from rillet.operators.decode_deltas import DecodeDeltas, TemplatedDecoder
from rillet.operators.stage import collected
from rillet.pipeline.protocols import PROTOCOLS
from rillet.pipeline.protocols.chat_choice import Choice
from rillet.pipeline.protocols.gemini import GeminiDecoder
from rillet.pipeline.protocols.openai_chat import OpenAIChatDecoder
from rillet.pipeline.protocols.text_template import TextTemplate

Outcome = tuple[list[list[Delta]], type[Exception] | None]

texts = st.sampled_from(["a", "Hi there", "é 漢🚀", '"', "\\", "\n", "\u2028", "", '","x":"', '"}'])
odd = st.sampled_from([None, "", 0, 5, True, [], {}, ["x"], {"text": "x"}, "\ud800"])


def mostly(common: Any, rare: Any) -> Any:
    """What ends a stream must be rare, or none gets anywhere."""
    return st.integers(0, 19).flatmap(lambda number: rare if number == 7 else common)


rarely_odd = mostly(texts, odd)
counts = st.integers(0, 3)


def optional(**values: Any) -> Any:
    """An object with these keys, each of which may be missing."""
    return st.fixed_dictionaries({}, optional=values)


calls = st.lists(
    st.fixed_dictionaries(
        {"index": mostly(st.integers(0, 1), odd)},
        optional={
            "id": mostly(st.sampled_from(["c1", "c2", None, ""]), odd),
            "function": optional(
                name=mostly(st.sampled_from(["f", "g", None, ""]), odd),
                arguments=mostly(st.sampled_from(['{"a":', "1", "}", "{}", "", None]), st.just({"b": 10**20})),
            )
            | odd,
            "custom": mostly(st.none(), st.just({"name": "f", "input": "raw"})),
        },
    ),
    max_size=2,
)
chat_deltas = (
    st.builds(lambda text: {"content": text}, rarely_odd)
    | st.builds(lambda text: {"content": None, "reasoning_content": text}, rarely_odd)
    | st.builds(lambda entries: {"tool_calls": entries}, calls)
    | optional(role=st.just("assistant"), content=rarely_odd, reasoning=rarely_odd, refusal=texts, tool_calls=calls)
    | odd
)
chat = st.builds(
    lambda index, delta, finish, more: {
        "id": "c",
        "choices": [{"index": index, "delta": delta, "finish_reason": finish}],
        **more,
    },
    st.sampled_from([0, 0, 0, 1, None]),
    mostly(chat_deltas, odd),
    st.sampled_from([None, None, None, None, "stop"]),
    mostly(
        optional(usage=st.none(), obfuscation=texts),
        optional(usage=st.just({"prompt_tokens": 1}), error=st.just("no")),
    ),
)
completions = st.builds(
    lambda index, text, finish: {"id": "c", "choices": [{"text": text, "index": index, "finish_reason": finish}]},
    st.sampled_from([0, 0, 0, 1]),
    rarely_odd,
    st.sampled_from([None, None, None, "stop"]),
)
anthropic_deltas = (
    st.builds(lambda text: {"type": "text_delta", "text": text}, rarely_odd)
    | st.builds(lambda text: {"type": "thinking_delta", "thinking": text}, rarely_odd)
    | st.builds(lambda args: {"type": "input_json_delta", "partial_json": args}, rarely_odd)
    | odd
)
anthropic = (
    st.builds(
        lambda index, delta: {"type": "content_block_delta", "index": index, "delta": delta},
        mostly(counts, odd),
        mostly(anthropic_deltas, odd),
    )
    | st.builds(
        lambda index, kind: {
            "type": kind,
            "index": index,
            "content_block": {"type": "tool_use", "id": "t", "name": "f"},
        },
        counts,
        st.sampled_from(["content_block_start", "content_block_stop"]),
    )
    | st.builds(
        lambda index: {"type": "content_block_start", "index": index, "content_block": {"type": "server_tool_use"}},
        counts,
    )
)
responses = st.builds(
    lambda kind, number, item, output, part, text: {
        "type": kind,
        "sequence_number": number,
        "item_id": item,
        "output_index": output,
        "content_index": part,
        "delta": text,
        "text": text,
    },
    st.sampled_from(
        [
            "response.output_text.delta",
            "response.output_text.delta",
            "response.reasoning_text.delta",
            "response.refusal.delta",
            "response.output_text.done",
            "response.completed",
        ]
    ),
    mostly(counts, odd),
    texts,
    mostly(st.integers(0, 1), odd),
    st.sampled_from([0, 0, 1]),
    rarely_odd,
)


def a_function(text: str) -> dict[str, Any]:
    return {"type": "function_call", "call_id": "c", "name": "f", "arguments": text}


responses |= st.builds(
    lambda kind, index, text: {"type": kind, "output_index": index, "delta": text, "item": a_function(text)},
    st.sampled_from(
        [
            "response.function_call_arguments.delta",
            "response.function_call_arguments.delta",
            "response.output_item.added",
            "response.output_item.done",
        ]
    ),
    st.integers(0, 1),
    texts,
)
parts = st.lists(
    optional(text=rarely_odd, thought=st.booleans(), functionCall=mostly(st.none(), st.just({"name": "f"}))), max_size=2
)
gemini = st.builds(
    lambda candidate, more: {"candidates": [candidate], **more},
    optional(
        index=mostly(st.integers(0, 1), odd),
        content=mostly(optional(parts=parts), odd),
        finishReason=mostly(st.sampled_from(["", None]), st.just("STOP")),
    ),
    optional(
        usageMetadata=mostly(st.builds(lambda count: {"promptTokenCount": count}, counts), odd),
        promptFeedback=mostly(st.just({}), st.just({"blockReason": "SAFETY"})),
        error=mostly(st.none(), st.just({"message": "no"})),
    ),
)
cohere = st.builds(
    lambda kind, content: {"type": kind, "index": 0, "delta": {"message": {"content": content}}},
    st.sampled_from(["content-delta", "content-delta", "content-start", "content-end"]),
    st.builds(lambda text: {"text": text}, rarely_odd) | st.builds(lambda text: {"thinking": text}, rarely_odd) | odd,
)
cohere |= st.builds(
    lambda kind, index, text: {
        "type": kind,
        "index": index,
        "delta": {"message": {"tool_calls": {"id": "c", "function": {"name": "f", "arguments": text}}}},
    },
    st.sampled_from(["tool-call-delta", "tool-call-delta", "tool-call-start", "tool-call-end"]),
    st.integers(0, 1),
    rarely_odd,
)
interactions = st.builds(
    lambda index, delta: {"event_type": "step.delta", "index": index, "delta": delta},
    mostly(counts, odd),
    st.builds(lambda text: {"type": "text", "text": text}, rarely_odd)
    | st.builds(lambda text: {"type": "thought_summary", "content": {"text": text}}, rarely_odd)
    | st.builds(lambda text: {"type": "arguments_delta", "arguments": text}, rarely_odd)
    | odd,
) | st.builds(
    lambda kind, index, step: {"event_type": kind, "index": index, "step": {"type": step, "id": "c", "name": "f"}},
    st.sampled_from(["step.start", "step.stop"]),
    st.integers(0, 1),
    st.sampled_from(["function_call", "function_call", "thought"]),
)
ollama = st.builds(
    lambda created, message, done: {"model": "m", "created_at": created, "message": message, "done": done},
    texts | counts,
    optional(role=st.just("assistant"), content=rarely_odd, thinking=texts) | odd,
    mostly(st.just(False), st.sampled_from([True, None])),
) | st.builds(lambda text: {"created_at": "now", "response": text, "done": False}, rarely_odd)
plain = st.builds(lambda kind, text: {"type": kind, "delta": text}, st.sampled_from(["text", "text", "x"]), rarely_odd)
plain |= st.builds(
    lambda kind, index, text: {"type": kind, "index": index, "name": "f", "args": text},
    st.sampled_from(["tool_call_delta", "tool_call_delta", "tool_call_start", "tool_call_end"]),
    st.integers(0, 1),
    rarely_odd,
)

EVENTS: dict[str, Any] = {
    "openai-chat": chat,
    "openai-completions": completions,
    "openai-responses": responses,
    "anthropic": anthropic,
    "gemini": gemini,
    "google-interactions": interactions,
    "cohere": cohere,
    "ollama": ollama,
    "plain": plain,
}
# What opens call 0: without one, no fragment of arguments gets anywhere.
OPENINGS: dict[str, Any] = {
    "openai-chat": {
        "choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f"}}]}}]
    },
    "openai-responses": {"type": "response.output_item.added", "output_index": 0, "item": a_function("")},
    "anthropic": {
        "type": "content_block_start",
        "index": 0,
        "content_block": {"type": "tool_use", "id": "t", "name": "f"},
    },
    "google-interactions": {"event_type": "step.start", "index": 0, "step": {"type": "function_call", "name": "f"}},
    "cohere": {
        "type": "tool-call-start",
        "index": 0,
        "delta": {"message": {"tool_calls": {"id": "c", "function": {"name": "f"}}}},
    },
    "plain": {"type": "tool_call_start", "index": 0, "id": "c", "name": "f"},
}
types = mostly(st.just("message"), st.sampled_from(["error", "content_block_delta"]))


class Unlearnt(TextTemplate):
    """A template that learns nothing."""

    def _learn(self, event: WireEvent, key: str, text: str, beside: str) -> bool:
        return False


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
@settings(max_examples=200)
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
    decoder = PROTOCOLS[protocol].decoder(False)
    assert isinstance(decoder, TemplatedDecoder)
    for text in ("a", "b"):
        list(decoder.decode(ServerSentEvent("message", event % text)))
    event = event.replace("2025", "2026").replace("7", "8").replace("   }", "}")
    assert decoder.template.read(ServerSentEvent("message", event % "c")) == (TextDelta("c"),)
    assert decoder.template.read(ServerSentEvent("message", event % 'd \\"é\\n\\u00e9')) == (TextDelta('d "é\né'),)
    assert decoder.template.read(ServerSentEvent("message", event % "\\ud800")) == ()
    assert decoder.template.read(ServerSentEvent("error", event % "c")) == ()


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
    decoder = PROTOCOLS[protocol].decoder(False)
    assert isinstance(decoder, TemplatedDecoder)
    for data in (json.dumps(OPENINGS[protocol]), event % "{", event % " "):
        list(decoder.decode(ServerSentEvent("message", data)))
    assert decoder.template.read(ServerSentEvent("message", event % "}")) == (ToolCallDelta(0, "}"),)
    list(decoder.decode(ServerSentEvent("message", end)))
    assert decoder.template.read(ServerSentEvent("message", event % "}")) == ()
