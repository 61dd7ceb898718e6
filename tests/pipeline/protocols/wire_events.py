"""Events of every dialect, mostly as they should be, for the tests that read them in two ways."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from rillet.operators import WireEvent
from rillet.pipeline.protocols.text_template import TextTemplate


class Unlearnt(TextTemplate):
    """A template that learns nothing."""

    def _learn(self, event: WireEvent, key: str, text: str, beside: str) -> bool:
        return False


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
    st.sampled_from([0, 0, 0, 0, 1, 1, None, 0.0, 1.0, True]),
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


def figures(count: int, inner: int, odd: Any) -> dict[str, Any]:
    return {"promptTokenCount": count, **({"details": [{"count": inner, "kind": odd}]} if odd else {})}


gemini = st.builds(
    lambda candidate, more: {"candidates": [candidate], **more},
    optional(
        index=mostly(st.integers(0, 1), odd),
        content=mostly(optional(parts=parts), odd),
        finishReason=mostly(st.sampled_from(["", None]), st.just("STOP")),
    ),
    optional(
        usageMetadata=mostly(st.builds(figures, counts, counts, st.sampled_from(["", "a1", "\u1234", 1e5])), odd),
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
