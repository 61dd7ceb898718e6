"""What is said in a payload of any dialect, for the contestants that give no more than those."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from . import Piece


def hear(payload: dict[str, Any]) -> Iterator[Piece]:
    """The pieces of the answer in a payload; its dialect shows in its keys."""
    if "choices" in payload:
        for choice in payload["choices"]:
            yield from _chat(choice)
    elif "candidates" in payload:
        yield from _gemini(payload["candidates"][0])
    else:
        yield from _typed(payload)


def _chat(choice: dict[str, Any]) -> Iterator[Piece]:
    delta = choice["delta"]
    yield f"text {choice['index']}", delta.get("content") or ""
    for call in delta.get("tool_calls") or ():
        yield f"name {call['index']}", call["function"].get("name") or ""
        yield f"args {call['index']}", call["function"].get("arguments") or ""


def _gemini(candidate: dict[str, Any]) -> Iterator[Piece]:
    for part in candidate["content"]["parts"]:
        if call := part.get("functionCall") or part.get("function_call"):
            yield "name 0", call["name"]
            yield "args 0", orjson.dumps(call["args"]).decode()
        else:
            yield "reasoning" if part.get("thought") else "text 0", part["text"]


def _typed(payload: dict[str, Any]) -> Iterator[Piece]:
    """`anthropic` and `openai-responses`."""
    match payload:
        case {"type": "content_block_start", "index": index, "content_block": {"type": "tool_use", "name": name}}:
            yield f"name {index}", name
        case {"type": "content_block_delta", "delta": {"type": "text_delta", "text": text}}:
            yield "text 0", text
        case {"type": "content_block_delta", "delta": {"type": "thinking_delta", "thinking": text}}:
            yield "reasoning", text
        case {"type": "content_block_delta", "index": index, "delta": {"partial_json": text}}:
            yield f"args {index}", text
        case {"type": "response.output_item.added", "output_index": index, "item": {"name": name}}:
            yield f"name {index}", name
        case {"type": "response.output_text.delta", "delta": text}:
            yield "text 0", text
        case {"type": "response.function_call_arguments.delta", "output_index": index, "delta": text}:
            yield f"args {index}", text
        case _:
            return
