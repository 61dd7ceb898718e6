"""Events that are read a shorter way give what the plain way gives: the same deltas, and the same kind of fault."""

from __future__ import annotations

import json
from importlib import import_module
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rillet.operators import Delta, ServerSentEvent
from rillet.operators.decode_deltas import SHAPE_ERRORS
from rillet.operators.errors import MalformedPayload, StreamError
from rillet.pipeline.protocols import PROTOCOLS
from rillet.pipeline.protocols.chat_choice import Choice
from rillet.pipeline.protocols.gemini import GeminiDecoder
from rillet.pipeline.protocols.openai_chat import OpenAIChatDecoder
from rillet.pipeline.protocols.text_template import TextTemplate

Outcome = tuple[list[Delta], type[Exception] | None]

texts = st.sampled_from(["a", "Hi there", "é 漢🚀", '"', "\\", "\n", "\u2028", "", '","x":"', '"}'])
odd = st.sampled_from([None, "", 0, 5, True, [], {}, ["x"], {"text": "x"}])


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
anthropic = st.builds(
    lambda index, delta: {"type": "content_block_delta", "index": index, "delta": delta},
    mostly(counts, odd),
    mostly(anthropic_deltas, odd),
) | st.builds(
    lambda index, kind: {"type": kind, "index": index, "content_block": {"type": "tool_use", "id": "t", "name": "f"}},
    counts,
    st.sampled_from(["content_block_start", "content_block_stop"]),
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
interactions = st.builds(
    lambda index, delta: {"event_type": "step.delta", "index": index, "delta": delta},
    mostly(counts, odd),
    st.builds(lambda text: {"type": "text", "text": text}, rarely_odd)
    | st.builds(lambda text: {"type": "thought_summary", "content": {"text": text}}, rarely_odd)
    | odd,
)
ollama = st.builds(
    lambda created, message, done: {"model": "m", "created_at": created, "message": message, "done": done},
    texts | counts,
    optional(role=st.just("assistant"), content=rarely_odd, thinking=texts) | odd,
    mostly(st.just(False), st.sampled_from([True, None])),
) | st.builds(lambda text: {"created_at": "now", "response": text, "done": False}, rarely_odd)
plain = st.builds(lambda kind, text: {"type": kind, "delta": text}, st.sampled_from(["text", "text", "x"]), rarely_odd)

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
types = mostly(st.just("message"), st.sampled_from(["error", "content_block_delta"]))


class Unlearnt(TextTemplate):
    """A template that learns nothing."""

    def learn(self, data: str, key: str, delta: Any) -> bool:
        return False


def outcome(protocol: str, events: list[tuple[str, str]]) -> Outcome:
    """The deltas, event by event, and the fault."""
    decoder, deltas = PROTOCOLS[protocol].decoder(False), list[Delta]()
    try:
        for kind, data in events:
            deltas += decoder.decode(ServerSentEvent(kind, data))
        deltas += decoder.finish()
    except StreamError as error:
        return deltas, type(error)
    except SHAPE_ERRORS:
        return deltas, MalformedPayload
    return deltas, None


def both_ways(protocol: str, events: list[tuple[str, str]]) -> tuple[Outcome, Outcome]:
    """What the events give by the short ways, and by the plain one."""
    shortly = outcome(protocol, events)
    module = import_module(f"rillet.pipeline.protocols.{protocol.replace('-', '_')}")
    with pytest.MonkeyPatch.context() as patch:
        if protocol != "gemini":
            patch.setattr(module, "TextTemplate", Unlearnt)
        patch.setattr(OpenAIChatDecoder, "_piece", lambda *_: None)
        patch.setattr(GeminiDecoder, "_piece", lambda *_: ())
        patch.setattr(Choice, "go_on", lambda *_: None)
        return shortly, outcome(protocol, events)


@pytest.mark.parametrize("protocol", EVENTS)
@given(data=st.data())
@settings(max_examples=200)
def test_the_short_ways_are_the_plain_one(protocol: str, data: st.DataObject) -> None:
    payloads = data.draw(st.lists(EVENTS[protocol], max_size=10))
    separators, ascii_only = data.draw(st.sampled_from([(",", ":"), (", ", ": ")])), data.draw(st.booleans())
    # Twice the same event is the beginning of a short way.
    payloads = [payload for payload in payloads for _ in range(data.draw(st.integers(1, 2)))]
    events = [
        (data.draw(types), json.dumps(payload, separators=separators, ensure_ascii=ascii_only)) for payload in payloads
    ]
    shortly, plainly = both_ways(protocol, events)
    assert shortly == plainly


def a_call(**entry: Any) -> str:
    return json.dumps({"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, **entry}]}}]})


SAID = '{"choices":[{"index":0,"delta":{"content":"%s"}%s}]}'
HEAD = a_call(id="c1", function={"name": "f", "arguments": "{}"})


@pytest.mark.parametrize(
    "events",
    [
        [HEAD, a_call(function={"name": "g", "arguments": "{}"})],
        [HEAD, a_call(id="c2", function={"arguments": "{}"})],
        [HEAD, a_call(function={"arguments": " "}), a_call(function={"arguments": "1"})],
        [SAID % ("a", ""), SAID % ("b", ',"finish_reason":"stop"'), SAID % ("c", "")],
    ],
)
def test_what_only_looks_like_more_of_the_same(events: list[str]) -> None:
    shortly, plainly = both_ways("openai-chat", [("message", data) for data in events])
    assert shortly == plainly


@pytest.mark.parametrize("protocol", [name for name in EVENTS if name != "gemini"])  # each of its events has figures
def test_every_template_is_of_use(protocol: str) -> None:
    """The event after the first of its kind is read without parsing it."""
    event = {
        "openai-chat": '{"choices":[{"index":0,"delta":{"content":"%s"},"finish_reason":null}],"obfuscation":"x"}',
        "openai-completions": '{"choices":[{"text":"%s","index":0,"finish_reason":null}],"model":"m"}',
        "openai-responses": '{"type":"response.output_text.delta","sequence_number":7,"output_index":0,"delta":"%s"}',
        "anthropic": '{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"%s"}   }',
        "google-interactions": '{"delta":{"text":"%s","type":"text"},"event_type":"step.delta","index":0}',
        "cohere": '{"type":"content-delta","index":0,"delta":{"message":{"content":{"text":"%s"}}}}',
        "ollama": '{"model":"m","created_at":"2025","message":{"role":"assistant","content":"%s"},"done":false}',
        "plain": '{"type":"text","delta":"%s"}',
    }[protocol]
    decoder = PROTOCOLS[protocol].decoder(False)
    for text in ("a", "b"):
        list(decoder.decode(ServerSentEvent("message", event % text)))
    template: TextTemplate = decoder._template  # type: ignore[attr-defined]
    found = template.read(event.replace("2025", "2026").replace("7", "8").replace("   }", "}") % "c")
    assert found is not None
    assert found.text == "c"
