"""No strict prefix of a recorded answer gives another answer: it fails, or it gives the same."""

from __future__ import annotations

import json
import pickle
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rillet.operators import ToolCall
from rillet.operators.errors import StreamError, TruncatedStream
from rillet.pipeline import StreamAssembler, find_protocol

RECORDINGS = Path(__file__).parents[3] / "shared" / "recordings"
EVERY_BYTE_UP_TO = 5_000
CUTS_INSIDE_AN_EVENT = 3
SEED = 2718

# This server says STOP with every event: the text so far is an answer that it called finished.
ALWAYS_FINISHED = "vertex/gemini-utf8-cjk.sse"

if not (RECORDINGS / "manifest.jsonl").exists():
    pytest.skip("the recordings are not beside this repository", allow_module_level=True)

Answers = dict[int, tuple[str, tuple[ToolCall, ...]]]


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


def complete() -> list[Any]:
    entries = map(json.loads, (RECORDINGS / "manifest.jsonl").read_text().splitlines())
    return [
        pytest.param(PROTOCOLS[entry["api"]], RECORDINGS / entry["file"], entry["expected"], id=entry["file"])
        for entry in entries
        if entry["expected"]["outcome"] == "complete" and entry["file"] != ALWAYS_FINISHED
    ]


def cuts(whole: bytes, event: range) -> Iterator[int]:
    """Where to cut inside an event: at every byte, or, in a long stream, at its start and in a few places."""
    if len(whole) <= EVERY_BYTE_UP_TO:
        return iter(event)
    dice = random.Random(SEED + event.start)
    return iter([event.start, *(dice.choice(event) for _ in range(CUTS_INSIDE_AN_EVENT))])


def events(protocol: str, whole: bytes) -> Iterator[range]:
    """The bytes of each event."""
    ends = [end for end in ends_of(find_protocol(protocol).framing, whole) if end < len(whole)]
    return (range(a, b) for a, b in zip([0, *ends], [*ends, len(whole)], strict=True))


def ends_of(framing: str, whole: bytes) -> Iterator[int]:
    if framing == "eventstream":
        end = 0
        while end < len(whole):
            end += int.from_bytes(whole[end : end + 4], "big")
            yield end
        return
    pattern = rb"\n" if framing == "ndjson" else rb"\n\r?\n|\r\r"
    yield from (found.end() for found in re.finditer(pattern, whole))


def outcome(assembler: StreamAssembler) -> Answers | StreamError:
    """The text and the calls of each choice, or the error where the stream is not complete."""
    try:
        assembler.result()
    except StreamError as error:
        return error
    return {message.choice: (message.text, message.tool_calls) for message in assembler.messages}


@pytest.mark.parametrize(("protocol", "recording", "expected"), complete())
def test_no_prefix_gives_another_answer_and_one_cut_between_events_is_truncated(
    protocol: str, recording: Path, expected: dict[str, Any]
) -> None:
    whole = recording.read_bytes()
    assembler = StreamAssembler(protocol)
    assembler.feed(whole)
    full = outcome(assembler)
    assert isinstance(full, dict)
    assert full.get(0, ("",))[0] == expected["text"]

    growing = StreamAssembler(protocol)
    for event in events(protocol, whole):
        snapshot = pickle.dumps(growing)
        for cut in cuts(whole, event):
            prefix: StreamAssembler = pickle.loads(snapshot)
            prefix.feed(whole[event.start : cut])
            answer = outcome(prefix)
            where = f"after {cut:,} of {len(whole):,} bytes"
            if isinstance(answer, StreamError):
                assert type(answer) is TruncatedStream, where
            else:
                assert answer == {choice: full[choice] for choice in answer}, where
        growing.feed(whole[event.start : event.stop])
