"""Damaged streams of every dialect: whatever is lost, doubled, swapped or left out, only a `StreamError` is raised, and
no tool call is given whose arguments are not those of one of the original calls.

Where a dialect sends arguments once, in fragments without a number, nothing shows that one of them is missing or came
twice inside a string; such mutants are left out for those dialects, and only those.
"""

from __future__ import annotations

import json
import random
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rillet.operators.errors import StreamError
from rillet.pipeline import StreamAssembler, find_protocol
from rillet.pipeline.scripting import (
    Script,
    ScriptedCall,
    anthropic_events,
    gemini_events,
    ollama_lines,
    openai_responses_events,
)

RECORDINGS = Path(__file__).parents[3] / "shared" / "recordings"
PROTOCOLS = {
    "openai.chat": "openai-chat",
    "openai.completions": "openai-completions",
    "openai.responses": "openai-responses",
    "anthropic.messages": "anthropic",
    "gemini": "gemini",
    "google.interactions": "google-interactions",
    "cohere.v2": "cohere",
    "ollama.chat": "ollama",
    "ollama.generate": "ollama",
    "bedrock.converse": "bedrock-converse",
    "bedrock.invoke-anthropic": "bedrock-invoke",
}
# What an event must contain to carry a fragment of arguments that nothing else vouches for.
FRAGMENTS = {
    "plain": ["tool_call_delta"],
    "openai-chat": ["tool_calls"],
    "anthropic": ["input_json_delta"],
    "google-interactions": ["arguments_delta"],
    "cohere": ["tool-call-delta"],
    "gemini": ["partialArgs"],
    "bedrock-converse": ["toolUse"],
    "bedrock-invoke": ["bytes"],
}
# Keys below these hold arguments as objects: without one of them, they are other arguments, not damaged ones. Gemini's
# calls without arguments have no "args" at all.
ARGUMENTS = {"args", "arguments", "input"}

PLAIN = [
    {"type": "text", "delta": "Hi "},
    {"type": "tool_call_start", "index": 0, "id": "a", "name": "f"},
    {"type": "tool_call_start", "index": 1, "id": "b", "name": "g"},
    {"type": "tool_call_delta", "index": 1, "args": '{"b":'},
    {"type": "tool_call_delta", "index": 0, "args": '{"a":1}'},
    {"type": "tool_call_delta", "index": 1, "args": '"é"}'},
    {"type": "tool_call_end", "index": 0},
    {"type": "tool_call_end", "index": 1},
]
CHAT = [
    {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]},
    {"choices": [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": None}]},
    {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f"}}]}}]},
    {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "function": {"arguments": '{"a":1}'}}]}}]},
    {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 1, "id": "b", "function": {"name": "g"}}]}}]},
    {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 1, "function": {"arguments": '{"b":"é"}'}}]}}]},
    {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
    {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2}},
]


def sse(events: list[Any]) -> bytes:
    return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events) + b"data: [DONE]\n\n"


def split(protocol: str, wire: bytes) -> list[bytes]:
    """The wire as its events; joined, they are the wire again."""
    framing = find_protocol(protocol).framing
    if framing == "ndjson":
        return wire.splitlines(keepends=True)
    if framing == "sse":
        return [block + b"\n\n" for block in wire.replace(b"\r\n", b"\n").split(b"\n\n") if block]
    frames = []
    while wire:
        (length,) = struct.unpack_from(">I", wire)
        frames.append(wire[:length])
        wire = wire[length:]
    return frames


def payload_of(protocol: str, event: bytes) -> tuple[bytes, bytes, bytes] | None:
    """What stands before an event's JSON, the JSON, and what follows; None where it has none on one line."""
    if find_protocol(protocol).framing == "eventstream":
        (headers,) = struct.unpack_from(">I", event, 4)
        return event[: 12 + headers], event[12 + headers : -4], event[-4:]
    start = 0 if find_protocol(protocol).framing == "ndjson" else event.find(b"data:") + 5
    end = event.find(b"\n", start)
    return (event[:start], event[start:end], event[end:]) if start != 4 else None


def with_payload(protocol: str, event: bytes, payload: bytes) -> bytes:
    before, _, after = payload_of(protocol, event) or (b"", b"", b"")
    if find_protocol(protocol).framing != "eventstream":
        return before + payload + after
    prelude = struct.pack(">I", len(before) + len(payload) + 4) + before[4:8]
    frame = prelude + struct.pack(">I", zlib.crc32(prelude)) + before[12:] + payload
    return frame + struct.pack(">I", zlib.crc32(frame))


def key_paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key != "args":
                yield (*path, key)
            if not (key in ARGUMENTS and isinstance(inner, dict)):
                yield from key_paths(inner, (*path, key))
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            yield from key_paths(inner, (*path, at))


def without_key(protocol: str, event: bytes, rng: random.Random) -> bytes | None:
    parts = payload_of(protocol, event)
    try:
        payload = json.loads(parts[1]) if parts else None
    except ValueError:
        return None
    paths = list(key_paths(payload))
    if not paths:
        return None
    *parents, last = rng.choice(paths)
    inner = payload
    for step in parents:
        inner = inner[step]
    del inner[last]
    return with_payload(protocol, event, json.dumps(payload).encode())


def mutants(protocol: str, wire: bytes, rng: random.Random, count: int) -> Iterator[tuple[str, bytes]]:
    events = split(protocol, wire)

    def vouched_for(*at: int) -> bool:
        return not any(mark.encode() in events[n] for n in at for mark in FRAGMENTS.get(protocol, ()))

    for _ in range(count):
        kind, n = rng.choice(("drop", "double", "swap", "key")), rng.randrange(len(events))
        mutant = list(events)
        if kind == "drop" and vouched_for(n):
            del mutant[n]
        elif kind == "double" and vouched_for(n):
            mutant.insert(n, events[n])
        elif kind == "swap" and n + 1 < len(events) and vouched_for(n, n + 1):
            mutant[n : n + 2] = events[n + 1], events[n]
        elif kind == "key" and vouched_for(n) and (event := without_key(protocol, events[n], rng)):
            mutant[n] = event
        yield f"{kind} {n}", b"".join(mutant)


def calls_in(protocol: str, wire: bytes) -> list[str]:
    """The arguments of all the calls that are given, whether the stream then fails or not."""
    assembler = StreamAssembler(protocol)
    try:
        assembler.feed(wire)
        assembler.result()
    except StreamError as error:
        assert error.partial == assembler.messages
    return [json.dumps(call.args, sort_keys=True) for message in assembler.messages for call in message.tool_calls]


def check(protocol: str, wire: bytes, seed: int, count: int) -> None:
    known = set(calls_in(protocol, wire))
    for label, mutant in mutants(protocol, wire, random.Random(seed), count):
        unknown = set(calls_in(protocol, mutant)) - known
        assert not unknown, f"{protocol}, seed {seed}, {label}: {unknown}"


def typed(events: Iterator[str]) -> bytes:
    return b"".join(f"event: {json.loads(data)['type']}\ndata: {data}\n\n".encode() for data in events)


SCRIPT = Script(
    "Hi é.",
    reasoning="hm",
    calls=(ScriptedCall("f", {"a": 1, "b": "é"}), ScriptedCall("g", {}), ScriptedCall("h", {"c": [1, {"d": None}]})),
    usage=(3, 4),
)
SMALL = {
    "plain": sse(PLAIN),
    "openai-chat": sse(CHAT),
    "openai-responses": typed(openai_responses_events(SCRIPT)),
    "anthropic": typed(anthropic_events(SCRIPT)),
    "gemini": b"".join(f"data: {data}\n\n".encode() for data in gemini_events(SCRIPT)),
    "ollama": b"".join(f"{line}\n".encode() for line in ollama_lines(SCRIPT)),
}


@pytest.mark.parametrize("protocol", SMALL)
@pytest.mark.parametrize("seed", range(3))
def test_small_streams(protocol: str, seed: int) -> None:
    assert calls_in(protocol, SMALL[protocol])
    check(protocol, SMALL[protocol], seed, 400)


def recorded() -> list[Any]:
    manifest = RECORDINGS / "manifest.jsonl"
    if not manifest.exists():
        return []
    rows = [json.loads(line) for line in manifest.read_text(encoding="utf-8").splitlines()]
    return [
        pytest.param(PROTOCOLS[row["api"]], RECORDINGS / row["file"], id=row["file"])
        for row in rows
        if row["expected"]["outcome"] == "complete" and (RECORDINGS / row["file"]).stat().st_size < 60_000
    ]


@pytest.mark.skipif(not RECORDINGS.exists(), reason="the folder of recordings is not here")
@pytest.mark.parametrize(("protocol", "path"), recorded())
def test_recordings(protocol: str, path: Path) -> None:
    check(protocol, path.read_bytes(), seed=1, count=40)


def test_a_mutant_without_a_key_is_sound_in_every_framing() -> None:
    rng = random.Random(1)
    frame_headers = b"\x0b:event-type\x07\x00\x05chunk"
    hull = struct.pack(">III", 0, len(frame_headers), 0) + frame_headers + b"\0" * 4
    frame = with_payload("bedrock-converse", hull, b"{}")
    changed: Callable[[str, bytes], bytes | None] = lambda protocol, event: without_key(protocol, event, rng)  # noqa: E731
    assert changed("openai-chat", b'data: {"a":1}\n\n') == b"data:{}\n\n"
    assert changed("ollama", b'{"a":1}\n') == b"{}\n"
    event = changed("bedrock-converse", with_payload("bedrock-converse", frame, b'{"a":1}'))
    assert event == frame
