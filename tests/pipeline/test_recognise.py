"""Which dialect a stream is written in, told from its beginning."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rillet.operators import WireProtocol
from rillet.pipeline.protocols import PROTOCOLS
from rillet.pipeline.recognise import recognise


def sse(*events: Any) -> bytes:
    return "".join(f"data: {json.dumps(event, ensure_ascii=False)}\n\n" for event in events).encode()


def typed(key: str, *events: Any) -> bytes:
    return b"".join(f"event: {event[key]}\n".encode() + sse(event) for event in events)


def frame(kind: str, payload: Any, name: bytes = b":event-type") -> bytes:
    headers = struct.pack(">B", len(name)) + name + struct.pack(">BH", 7, len(kind)) + kind.encode()
    data = json.dumps(payload).encode()
    prelude = struct.pack(">II", 16 + len(headers) + len(data), len(headers))
    body = prelude + struct.pack(">I", zlib.crc32(prelude)) + headers + data
    return body + struct.pack(">I", zlib.crc32(body))


def chunk(event: Any) -> bytes:
    return frame("chunk", {"bytes": base64.b64encode(json.dumps(event).encode()).decode()})


DONE = b"data: [DONE]\n\n"
ANTHROPIC = [
    {"type": "message_start", "message": {"id": "msg_1", "usage": {"input_tokens": 1, "output_tokens": 1}}},
    {"type": "ping"},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "é"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
    {"type": "message_stop"},
]
RESPONSES = [
    {"type": "response.created", "response": {"status": "in_progress"}},
    {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "é"},
    {"type": "response.completed", "response": {"status": "completed"}},
]
CHAT = [
    {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": "é"}, "finish_reason": None}]},
    {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
]
STREAMS: dict[str, list[bytes]] = {
    "plain": [
        sse({"type": "text", "delta": "é"}),
        sse({"type": "tool_call_start", "index": 0, "id": "c", "name": "f"}),
        sse({"type": "tool_call_end", "index": 0}) + DONE,
    ],
    "openai-chat": [*map(sse, CHAT), DONE],
    "openai-completions": [
        sse({"object": "text_completion", "choices": [{"text": "é", "index": 0, "finish_reason": None}]}),
        sse({"object": "text_completion", "choices": [{"text": "", "index": 0, "finish_reason": "stop"}]}) + DONE,
    ],
    "openai-responses": [typed("type", event) for event in RESPONSES],
    "anthropic": [typed("type", event) for event in ANTHROPIC],
    "gemini": [
        sse({"candidates": [{"content": {"parts": [{"text": "é"}]}}]}).replace(b"\n", b"\r\n"),
        sse({"candidates": [{"finishReason": "STOP"}]}).replace(b"\n", b"\r\n"),
    ],
    "google-interactions": [
        typed("event_type", {"event_type": "interaction.created", "interaction": {"id": "v1"}}),
        typed("event_type", {"event_type": "step.start", "index": 0, "step": {"type": "model_output"}}),
        typed("event_type", {"event_type": "interaction.completed", "interaction": {"status": "completed"}}),
    ],
    "cohere": [
        typed("type", {"type": "message-start", "id": "m", "delta": {"message": {"role": "assistant"}}}),
        typed("type", {"type": "content-delta", "index": 0, "delta": {"message": {"content": {"text": "é"}}}}),
        typed("type", {"type": "message-end", "delta": {"finish_reason": "COMPLETE"}}) + DONE,
    ],
    "ollama": [
        b'{"model":"m","message":{"role":"assistant","content":"\xc3\xa9"},"done":false}\n',
        b'{"model":"m","message":{"role":"assistant","content":""},"done":true,"done_reason":"stop"}\n',
    ],
    "bedrock-converse": [
        frame("messageStart", {"role": "assistant"}),
        frame("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "x"}}),
        frame("messageStop", {"stopReason": "end_turn"}),
    ],
    "bedrock-invoke": [*map(chunk, ANTHROPIC)],
}


def name_of(found: WireProtocol | None) -> str | None:
    return None if found is None else found.name


def test_there_is_a_stream_of_every_dialect() -> None:
    assert STREAMS.keys() == PROTOCOLS.keys()


@pytest.mark.parametrize(("name", "events"), STREAMS.items(), ids=list(STREAMS))
@pytest.mark.parametrize("before", [b"", b"\xef\xbb\xbf", b": ping\n\n", b"\n\nretry: 5\n\n"])
def test_a_dialect_is_recognised_from_its_first_event_on_and_never_taken_for_another(
    name: str, events: list[bytes], before: bytes
) -> None:
    before = before if PROTOCOLS[name].framing == "sse" else b""
    whole = before + b"".join(events)
    for length in range(len(whole) + 1):
        found = name_of(recognise(whole[:length]))
        assert found == name if length >= len(before) + len(events[0]) else found in (None, name)


@pytest.mark.parametrize(
    "event",
    [
        {"type": "message_start"},
        {"type": "ping"},
        {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
    ],
)
def test_any_first_event_of_anthropic_is_known(event: Any) -> None:
    assert name_of(recognise(typed("type", event))) == "anthropic"


@pytest.mark.parametrize(
    ("head", "name"),
    [
        (sse({"choices": [], "prompt_filter_results": []}), "openai-chat"),
        (sse({"choices": [{"message": {"content": "a"}, "text": "a"}]}), "openai-chat"),
        (sse({"choices": [{"delta": {}, "text": "a"}]}), "openai-chat"),
        (sse({"choices": [{"text": "a"}]}), "openai-completions"),
        (sse({"error": {"message": "busy"}}), "openai-chat"),
        (b'{"error":{"message":"busy"}}\n', "openai-chat"),
        (sse({"promptFeedback": {"blockReason": "SAFETY"}}), "gemini"),
        (b'event: response.created\ndata: {"response":{}}\n\n', "openai-responses"),
        (sse({"odd": 1}) + sse({"type": "text", "delta": "a"}), "plain"),
        (b'{"response":"a","done":false}\n', "ollama"),
        (b'\n{"response":"a","done":false}', "ollama"),
        (frame("throttlingException", {}, b":exception-type"), "bedrock-converse"),
        (sse(CHAT[0])[:-2], "openai-chat"),
        (sse(CHAT[0]) + b"\xff", "openai-chat"),
        (sse(CHAT[0]) + b"data: {", "openai-chat"),
        (frame("chunk", {}) + b"\0" * 99, "bedrock-invoke"),
    ],
)
def test_streams_that_begin_otherwise(head: bytes, name: str) -> None:
    assert name_of(recognise(head)) == name


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"\n\n",
        b"\xef\xbb\xbf",
        b"\xff\xfe",
        b"\0",
        b"\0" * 100,
        b"hello\n\n",
        b"<!DOCTYPE html>\n<html><body>data: no</body></html>\n\n",
        b"HTTP/1.1 502 Bad Gateway\r\n\r\n",
        b": ping\n\n: ping\n\n",
        b"event: ping\n\n",
        b"data: hello\n\n",
        b"data: {\n\n",
        b"data: []\n\n",
        b"data: 5\n\n",
        b"data: {}\n\n",
        DONE,
        sse({"odd": 1}, {"type": 5}, {"type": None}, {"type": []}),
        b"{",
        b"{}\n",
        b"{\n\n}\n",
        b'{"odd":1}\n{"message":"x"}\n',
        b"[]\n",
    ],
)
def test_what_is_no_dialect_is_none(head: bytes) -> None:
    assert recognise(head) is None


DEEP = "[" * 1000 + "]" * 1000


@pytest.mark.parametrize(
    "data",
    [
        '{"choices":5}',
        '{"choices":["x"]}',
        '{"choices":[[]]}',
        '{"choices":null}',
        '{"choices":{}}',
        '{"object":[],"choices":[{"text":{}}]}',
        '{"type":{}}',
        f'{{"type":{DEEP}}}',
        f'{{"choices":{DEEP}}}',
        f'{{"x":{DEEP}}}',
    ],
    ids=lambda data: data[:30],
)
def test_odd_shapes_raise_nothing(data: str) -> None:
    for head in (f"data: {data}\n\n", f"data: {data}", f"{data}\n", data):
        assert name_of(recognise(head.encode())) in (None, "openai-chat", "openai-completions")


values: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
known = st.sampled_from(["type", "choices", "error", "event_type", "candidates", "promptFeedback", "object", "done"])


@given(st.binary(max_size=60) | st.dictionaries(known, values, max_size=3).map(sse), st.integers(0, 99))
def test_anything_at_all_raises_nothing(head: bytes, length: int) -> None:
    for part in (head, head[:length], head.removeprefix(b"data: ")):
        assert name_of(recognise(part)) in (None, *PROTOCOLS)
