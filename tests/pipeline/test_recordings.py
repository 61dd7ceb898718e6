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
from rillet.operators.errors import StreamError
from rillet.pipeline import StreamAssembler

RECORDINGS = Path(__file__).parents[3] / "shared" / "recordings"
EVERY_BYTE_UP_TO = 12_000
CUTS_INSIDE_AN_EVENT = 3
SEED = 2718

if not (RECORDINGS / "manifest.jsonl").exists():
    pytest.skip("the recordings are not beside this repository", allow_module_level=True)

Answers = dict[int, tuple[str, tuple[ToolCall, ...]]]


def complete(api: str) -> list[Any]:
    entries = map(json.loads, (RECORDINGS / "manifest.jsonl").read_text().splitlines())
    return [
        pytest.param(RECORDINGS / entry["file"], entry["expected"], id=entry["file"])
        for entry in entries
        if entry["api"] == api and entry["expected"]["outcome"] == "complete"
    ]


def cuts(whole: bytes, event: range) -> Iterator[int]:
    """Where to cut inside an event: at every byte, or, in a long stream, at its start and in a few places."""
    if len(whole) <= EVERY_BYTE_UP_TO:
        return iter(event)
    dice = random.Random(SEED + event.start)
    return iter([event.start, *(dice.choice(event) for _ in range(CUTS_INSIDE_AN_EVENT))])


def events(whole: bytes) -> Iterator[range]:
    """The bytes of each event."""
    ends = [found.end() for found in re.finditer(rb"\n\r?\n|\r\r", whole) if found.end() < len(whole)]
    return (range(a, b) for a, b in zip([0, *ends], [*ends, len(whole)], strict=True))


def answers(assembler: StreamAssembler) -> Answers | None:
    """The text and the calls of each choice, None where the stream is not complete."""
    try:
        assembler.result()
    except StreamError:
        return None
    return {message.choice: (message.text, message.tool_calls) for message in assembler.messages}


@pytest.mark.parametrize(("recording", "expected"), complete("openai.chat"))
def test_no_prefix_gives_another_answer(recording: Path, expected: dict[str, Any]) -> None:
    whole = recording.read_bytes()
    assembler = StreamAssembler("openai-chat")
    assembler.feed(whole)
    full = answers(assembler)
    assert full is not None
    assert full[0][0] == expected["text"]

    growing = StreamAssembler("openai-chat")
    for event in events(whole):
        snapshot = pickle.dumps(growing)
        for cut in cuts(whole, event):
            prefix: StreamAssembler = pickle.loads(snapshot)
            prefix.feed(whole[event.start : cut])
            for choice, answer in (answers(prefix) or {}).items():
                assert answer == full[choice], f"choice {choice} after {cut:,} of {len(whole):,} bytes"
        growing.feed(whole[event.start : event.stop])
