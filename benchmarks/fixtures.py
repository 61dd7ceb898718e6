"""What the benchmarks are fed: `openai-chat` streams shaped like OpenAI's own, of any size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import cycle, islice

import orjson

TOKENS = (
    *("The", " river", " does", " not", " ask", " who", " is", " waiting", " at", " the", " sea", ".", "\n\n", "It"),
    *(" goes", " its", " way", " past", " the", " café", ",", " the", " mill", " and", " the", " old", " bridge", ";"),
    *(" “", "slowly", "”", " is", " a", " word", " that", " only", " the", " bank", " knows", ".", " Meanwhile"),
)
PADDING = ("rlrDvkoSF", "zufiawYmUl", "AWd5L", "O2QJv57PE8", "7", "eDdrRx1")
USAGE = {"prompt_tokens": 83, "completion_tokens": 9, "total_tokens": 92}
DONE = b"data: [DONE]\n\n"


def texts(count: int) -> list[str]:
    """The pieces of text that `text_stream(count)` carries."""
    return list(islice(cycle(TOKENS), count))


def text_stream(count: int) -> bytes:
    """An answer of `count` text events, one token each, about 300 bytes an event."""
    return _answer({"content": token} for token in texts(count))


def line_stream(size: int) -> bytes:
    """An answer whose text comes in one event, on one line of about `size` bytes."""
    return _answer([{"content": "x" * size}])


def event_stream(size: int) -> bytes:
    """An answer with one event of about `size` bytes, on data lines of 100."""
    filler = b'data: "' + b"x" * 90 + b'",\n'
    head = b'data: {"choices":[{"index":0,"delta":{"content":"Hi"},"logprobs":[\n'
    return _event({"role": "assistant"}) + head + filler * (size // len(filler)) + b'data: ""]}]}\n\n' + _end("stop")


def tool_stream(size: int) -> bytes:
    """An answer that calls one tool with arguments of about `size` bytes, 100 a fragment."""
    fragments = ['{"text":"', *["x" * 100] * (size // 100), '"}']
    head = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "write", "arguments": ""}}
    calls = [head, *({"index": 0, "function": {"arguments": fragment}} for fragment in fragments)]
    return _answer(({"tool_calls": [call]} for call in calls), finish="tool_calls")


def cut(body: bytes, size: int) -> list[bytes]:
    """The body in chunks of `size` bytes."""
    return [body[at : at + size] for at in range(0, len(body), size)]


def flood(size: int) -> Iterator[bytes]:
    """`size` bytes and a little more of text events, in blocks of about 64 KiB, with no end to the answer."""
    first, block = _event({"role": "assistant", "content": ""}), text_events(216)
    yield first
    for _ in range(0, size, len(block)):
        yield block


def text_events(count: int) -> bytes:
    """Text events alone: neither the first event of an answer nor its end."""
    return _events({"content": token} for token in texts(count))


def _answer(deltas: Iterable[dict[str, object]], *, finish: str = "stop") -> bytes:
    return _event({"role": "assistant", "content": "", "refusal": None}) + _events(deltas) + _end(finish)


def _events(deltas: Iterable[dict[str, object]]) -> bytes:
    return b"".join(map(_event, deltas, cycle(PADDING)))


def _end(finish: str) -> bytes:
    return _event({}, finish=finish) + _frame(choices=[], usage=USAGE) + DONE


def _event(delta: dict[str, object], padding: str = "", *, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return _frame(choices=[choice], usage=None, obfuscation=padding)


def _frame(**fields: object) -> bytes:
    common = {
        "id": "chatcmpl-ChZGunQ0zcUQXzAGuRv0nT0f3APLS",
        "object": "chat.completion.chunk",
        "created": 1764499724,
        "model": "gpt-4o-mini-2024-07-18",
        "service_tier": "default",
        "system_fingerprint": "fp_50906f2aac",
    }
    return b"data: " + orjson.dumps(common | fields) + b"\n\n"
