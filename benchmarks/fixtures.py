"""What the benchmarks are fed: streams of any size, shaped like the providers' own, and what each says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import cycle, islice
from typing import Any, NamedTuple, TypeAlias

import orjson

Answer: TypeAlias = Mapping[str, str]
"""What a stream says: "text 0" for each choice, "reasoning", and "name 0" and "args 0" for each call, by its index."""


class Stream(NamedTuple):
    """A stream to be read.

    Attributes:
        dialect: The protocol that reads it.
        body: Its bytes.
        events: How many events it has.
        answer: What it says.
        blank: What ends an event.
        shape: Where an event has its JSON: "bare" (one data line), "typed" (an event line before it), or "lines" (on
            several data lines).
    """

    dialect: str
    body: bytes
    events: int
    answer: Answer
    blank: bytes = b"\n\n"
    shape: str = "bare"

    def cut(self, size: int) -> list[bytes]:
        """The body in chunks of `size` bytes; of one event each where that is 0."""
        if size:
            return cut(self.body, size)
        return [event + self.blank for event in self.body.split(self.blank) if event]


TOKENS = (
    *("The", " river", " does", " not", " ask", " who", " is", " waiting", " at", " the", " sea", ".", "\n\n", "It"),
    *(" goes", " its", " way", " past", " the", " café", ",", " the", " mill", " and", " the", " old", " bridge", ";"),
    *(" “", "slowly", "”", " is", " a", " word", " that", " only", " the", " bank", " knows", ".", " Meanwhile"),
)
WORLD = (
    *("Река", " не", " спрашивает", ",", " кто", " ждёт", " у", " моря", "。", "川は", "誰が", "海で", "待つか", "を"),
    *("尋ねない", "。", "강은", " 묻지", " 않는다", " 🌊", " ποτάμι", " ρέει", " النهر", " يجري", "…"),
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


def text(count: int) -> Stream:
    """`openai-chat`, text alone."""
    return _chat(text_stream(count), {"text 0": "".join(texts(count))})


def crlf(count: int) -> Stream:
    """The same with CRLF for LF, as servers on Windows and some gateways send it."""
    return text(count)._replace(body=text_stream(count).replace(b"\n", b"\r\n"), blank=b"\r\n\r\n")


def world(count: int) -> Stream:
    """The same in other alphabets, as UTF-8."""
    words = list(islice(cycle(WORLD), count))
    return _chat(_answer({"content": word} for word in words), {"text 0": "".join(words)})


def multi_line(count: int) -> Stream:
    """The same with each event's JSON on many data lines."""
    events = (_on_lines(event) for event in text_stream(count).split(b"\n\n") if event)
    return text(count)._replace(body=b"".join(events), shape="lines")


def choices(count: int) -> Stream:
    """`openai-chat` with n = 4: the choices take turns, event by event."""
    words = texts(count)
    turns = zip(words, cycle(range(4)))
    heads = b"".join(_event({"role": "assistant", "content": ""}, index=index) for index in range(4))
    body = b"".join(_event({"content": word}, index=index) for word, index in turns)
    ends = b"".join(_event({}, finish="stop", index=index) for index in range(4))
    said = {f"text {index}": "".join(words[index::4]) for index in range(4)}
    return _chat(heads + body + ends + _frame(choices=[], usage=USAGE) + DONE, said)


def long_arguments(count: int) -> Stream:
    """`openai-chat`, one call whose arguments come in `count` fragments."""
    text = '{"text":"' + "x" * 100 * count + '"}'
    return _chat(tool_stream(count * 100), {"name 0": "write", "args 0": text})


def anthropic(count: int) -> Stream:
    """`anthropic`: thinking, text, and two calls."""
    thoughts, words = texts(count * 3 // 10), texts(count * 4 // 10)
    numbers = [f"{number}," for number in range(1000, 1000 + count * 15 // 100)]
    blocks = [
        _block(0, {"type": "thinking", "thinking": "", "signature": ""}, "thinking_delta", "thinking", thoughts),
        _block(1, {"type": "text", "text": ""}, "text_delta", "text", words),
    ]
    said = {"reasoning": "".join(thoughts), "text 0": "".join(words)}
    for index in (2, 3):
        head = {"type": "tool_use", "id": f"toolu_01A09q90qw90lq91783{index}", "name": "plot", "input": {}}
        fragments = ["", '{"points":[', *numbers, "0]}"]
        blocks.append(_block(index, head, "input_json_delta", "partial_json", fragments))
        said |= {f"name {index}": "plot", f"args {index}": "".join(fragments)}
    usage = {"input_tokens": 472, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 2}
    message = {"id": "msg_01XFDUDYJgAACzvnptvVoYEL", "type": "message", "role": "assistant", "content": []}
    model = {"model": "claude-sonnet-4-5-20250929", "stop_reason": None, "stop_sequence": None, "usage": usage}
    start = _typed(type="message_start", message=message | model) + _typed(type="ping")
    stop = {"stop_reason": "tool_use", "stop_sequence": None}
    end = _typed(type="message_delta", delta=stop, usage={"output_tokens": count}) + _typed(type="message_stop")
    body = start + b"".join(blocks) + end
    return Stream("anthropic", body, body.count(b"\n\n"), said, shape="typed")


def responses(count: int) -> Stream:
    """`openai-responses`: text, then one call."""
    words, numbers = texts(count * 7 // 10), [f"{number}," for number in range(1000, 1000 + count * 3 // 10)]
    said, args = "".join(words), "".join(('{"points":[', *numbers, "0]}"))
    part = {"type": "output_text", "annotations": [], "logprobs": [], "text": ""}
    item = {"id": "msg_07d2265248f742f6016a3c1205", "type": "message", "status": "in_progress", "role": "assistant"}
    call = {"id": "fc_07d2265248f742f6016a3c12065a2c", "type": "function_call", "call_id": "call_NnEvpiwdL8X"}
    call |= {"status": "in_progress", "name": "plot", "arguments": ""}
    message = item | {"status": "completed", "content": [part | {"text": said}]}
    called = call | {"status": "completed", "arguments": args}
    word = {"item_id": item["id"], "output_index": 0, "content_index": 0}
    number = {"item_id": call["id"], "output_index": 1}
    answer = {
        "id": "resp_07d2265248f742f6016a3c120577cc",
        "object": "response",
        "created_at": 1764499724,
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": "gpt-4o-2024-08-06",
        "output": [],
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": None,
    }
    usage = {"input_tokens": 83, "output_tokens": count, "total_tokens": 83 + count}
    details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    whole = answer | {"status": "completed", "output": [message, called], "usage": usage | details}
    paddings = cycle(PADDING)
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": answer},
        {"type": "response.in_progress", "response": answer},
        {"type": "response.output_item.added", "item": item | {"content": []}, "output_index": 0},
        {"type": "response.content_part.added", "part": part, **word},
        *(
            {"type": "response.output_text.delta", "delta": text, "logprobs": [], "obfuscation": padding, **word}
            for text, padding in zip(words, paddings)  # noqa: B905 - the second never ends
        ),
        {"type": "response.output_text.done", "text": said, "logprobs": [], **word},
        {"type": "response.content_part.done", "part": part | {"text": said}, **word},
        {"type": "response.output_item.done", "item": message, "output_index": 0},
        {"type": "response.output_item.added", "item": call, "output_index": 1},
        *(
            {"type": "response.function_call_arguments.delta", "delta": piece, "obfuscation": padding, **number}
            for piece, padding in zip(('{"points":[', *numbers, "0]}"), paddings)  # noqa: B905 - the same
        ),
        {"type": "response.function_call_arguments.done", "arguments": args, "name": "plot", **number},
        {"type": "response.output_item.done", "item": called, "output_index": 1},
        {"type": "response.completed", "response": whole},
    ]
    body = b"".join(_typed(**event, sequence_number=n) for n, event in enumerate(events))
    answer_said = {"text 0": said, "name 1": "plot", "args 1": args}
    return Stream("openai-responses", body, len(events), answer_said, shape="typed")


def gemini(count: int) -> Stream:
    """`gemini`: thoughts, text in pieces of some words, a whole call at the end; CRLF, as Google sends it."""
    pieces = [a + b for a, b in zip(texts(count), texts(count + 7)[7:], strict=True)]
    thoughts = count // 5
    args = {"city": "Oslo", "days": 3}
    parts: list[dict[str, Any]] = [{"text": piece, "thought": True} for piece in pieces[:thoughts]]
    parts += [{"text": piece} for piece in pieces[thoughts:]]
    parts.append({"functionCall": {"name": "get_weather", "args": args}})
    events = [_candidate(part, n) for n, part in enumerate(parts)]
    events[-1]["candidates"][0]["finishReason"] = "STOP"
    body = b"".join(b"data: " + orjson.dumps(event) + b"\r\n\r\n" for event in events)
    said = {"reasoning": "".join(pieces[:thoughts]), "text 0": "".join(pieces[thoughts:])}
    said |= {"name 0": "get_weather", "args 0": orjson.dumps(args).decode()}
    return Stream("gemini", body, len(events), said, blank=b"\r\n\r\n")


STREAMS: Mapping[str, Callable[[int], Stream]] = {
    "openai-chat, text": text,
    "anthropic, thinking and tools": anthropic,
    "openai-responses, text and a tool": responses,
    "gemini, text and tools": gemini,
    "openai-chat, long arguments": long_arguments,
    "openai-chat, n = 4": choices,
    "openai-chat, other alphabets": world,
    "openai-chat, data on many lines": multi_line,
    "openai-chat, CRLF": crlf,
}
"""Each makes a stream of about as many events as it is told."""


def interleaved_calls(calls: int, fragments: int = 10) -> Stream:
    """`plain`: many calls that are open at once, whose fragments take turns."""
    pieces = ['{"n":[', *["1,"] * (fragments - 2), "1]}"]
    starts = ({"type": "tool_call_start", "index": n, "id": f"call_{n}", "name": "add"} for n in range(calls))
    deltas = ({"type": "tool_call_delta", "index": n, "args": piece} for piece in pieces for n in range(calls))
    ends = ({"type": "tool_call_end", "index": n} for n in range(calls))
    body = b"".join(b"data: " + orjson.dumps(event) + b"\n\n" for event in (*starts, *deltas, *ends)) + DONE
    said = {f"name {n}": "add" for n in range(calls)} | {f"args {n}": "".join(pieces) for n in range(calls)}
    return Stream("plain", body, calls * (fragments + 2) + 1, said)


def _chat(body: bytes, answer: Answer) -> Stream:
    return Stream("openai-chat", body, body.count(b"\n\n"), answer)


def _on_lines(event: bytes) -> bytes:
    data = event.removeprefix(b"data: ")
    if data != b"[DONE]":
        data = orjson.dumps(orjson.loads(data), option=orjson.OPT_INDENT_2)
    return b"".join(b"data: " + line + b"\n" for line in data.split(b"\n")) + b"\n"


def _typed(**fields: object) -> bytes:
    return b"event: " + str(fields["type"]).encode() + b"\ndata: " + orjson.dumps(fields) + b"\n\n"


def _block(index: int, head: dict[str, Any], kind: str, key: str, pieces: list[str]) -> bytes:
    deltas = [{"type": kind, key: piece} for piece in pieces]
    if kind == "thinking_delta":
        deltas.append({"type": "signature_delta", "signature": "EqQBCgIYAhIM1gbcDa9GJwZA2b3hGgxBdjrkzLoky3dl1pk"})
    start = _typed(type="content_block_start", index=index, content_block=head)
    body = (_typed(type="content_block_delta", index=index, delta=delta) for delta in deltas)
    return start + b"".join(body) + _typed(type="content_block_stop", index=index)


def _candidate(part: dict[str, Any], count: int) -> dict[str, Any]:
    usage = {"promptTokenCount": 54, "candidatesTokenCount": count, "totalTokenCount": 54 + count}
    details = {"promptTokensDetails": [{"modality": "TEXT", "tokenCount": 54}]}
    return {
        "candidates": [{"content": {"parts": [part], "role": "model"}, "index": 0}],
        "usageMetadata": usage | details,
        "modelVersion": "gemini-2.5-flash",
        "responseId": "zwCzaYWfAbnoz7IPmc_m6Q4",
    }


def _answer(deltas: Iterable[dict[str, object]], *, finish: str = "stop") -> bytes:
    return _event({"role": "assistant", "content": "", "refusal": None}) + _events(deltas) + _end(finish)


def _events(deltas: Iterable[dict[str, object]]) -> bytes:
    return b"".join(map(_event, deltas, cycle(PADDING)))


def _end(finish: str) -> bytes:
    return _event({}, finish=finish) + _frame(choices=[], usage=USAGE) + DONE


def _event(delta: dict[str, object], padding: str = "", *, finish: str | None = None, index: int = 0) -> bytes:
    choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish}
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
