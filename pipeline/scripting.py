"""What the sandbox answers, and how each dialect says it.

A renderer gives the data of each event in order, or each line; how they are framed is the sandbox's business. Where a
dialect names its events, the name is the `type` in the data.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, zip_longest
from typing import TypeAlias

from rillet.operators import parse_arguments
from rillet.operators.errors import MalformedToolArguments
from rillet.operators.value import value

Payload: TypeAlias = Mapping[str, object]
"""A JSON object."""


@value
class ScriptedCall:
    """A tool call to answer with.

    Attributes:
        name: The tool's name.
        args: Its arguments; a string is sent as it is, valid or not. `gemini` and `ollama` send objects: of a string
            that holds none they can make no answer, and the sandbox's is status 500.
        id: Its id; by default one is made.
    """

    name: str
    args: Mapping[str, object] | str
    id: str = ""


@value
class Script:
    """What is answered.

    Attributes:
        text: The answer's text.
        reasoning: What comes before it; `plain` has no reasoning and leaves it out.
        calls: The tool calls after it.
        usage: Input and output tokens; None sends none. `plain` leaves it out.
        finish: Why it ended, in the dialect's own words, for `openai-responses` its status; by default what stands for
            an answer that is whole, with or without calls. `plain` leaves it out.
        piece: How many characters a delta carries.
        interleave: Whether the calls' arguments interleave, fragment by fragment, or come one after another. `gemini`
            and `ollama` send each call whole.
    """

    text: str = "Hello from the sandbox."
    reasoning: str = ""
    calls: tuple[ScriptedCall, ...] = ()
    usage: tuple[int, int] | None = None
    finish: str | None = None
    piece: int = 4
    interleave: bool = True


DEFAULT_SCRIPT = Script()

DEMO = Script(
    "Let me look at the sky over Bergen first, and then write to Ada. ☕",
    calls=(
        ScriptedCall("get_weather", {"city": "Bergen", "day": "Saturday", "hours": [9, 12, 15]}),
        ScriptedCall(
            "send_mail",
            {
                "to": "ada@example.org",
                "subject": "Saturday",
                "body": "Dear Ada,\nSaturday looks dry in Bergen, so let us walk up Fløyen. Bring shoes, and cake!",
            },
        ),
    ),
    usage=(41, 63),
)
"""An answer with text and two tool calls, for programs that show one."""


def plain_events(script: Script) -> Iterator[str]:
    """The script as the data of `plain` events."""
    for piece in _pieces(script.text, script.piece):
        yield _json(type="text", delta=piece)
    for index, step in _call_steps(script):
        if isinstance(step, ScriptedCall):
            yield _json(type="tool_call_start", index=index, id=_id(step, index), name=step.name)
        elif step:
            yield _json(type="tool_call_delta", index=index, args=step)
        else:
            yield _json(type="tool_call_end", index=index)
    yield "[DONE]"


def openai_chat_events(script: Script) -> Iterator[str]:
    """The script as the data of `openai-chat` events."""
    yield _chunk({"role": "assistant", "content": ""})
    for piece in _pieces(script.reasoning, script.piece):
        yield _chunk({"reasoning_content": piece})
    for piece in _pieces(script.text, script.piece):
        yield _chunk({"content": piece})
    for index, step in _call_steps(script):
        if isinstance(step, ScriptedCall):
            head = {"index": index, "id": _id(step, index), "type": "function"}
            yield _chunk({"tool_calls": [{**head, "function": {"name": step.name, "arguments": ""}}]})
        elif step:
            yield _chunk({"tool_calls": [{"index": index, "function": {"arguments": step}}]})
    yield _chunk({}, script.finish or ("tool_calls" if script.calls else "stop"))
    if script.usage is not None:
        prompt, completion = script.usage
        yield _json(
            **_CHUNK,
            choices=[],
            usage={"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion},
        )
    yield "[DONE]"


def openai_responses_events(script: Script, *, background: bool = False, after: int = -1) -> Iterator[str]:
    """The script as the data of `openai-responses` events, those after the one of this number."""
    for number, event in enumerate(_responses_events(script, {**_RESPONSE, "background": background})):
        if number > after:
            yield _json(**event, sequence_number=number)


def anthropic_events(script: Script) -> Iterator[str]:
    """The script as the data of `anthropic` events."""
    started, ended = _anthropic_usage(script)
    yield _json(type="message_start", message={**_MESSAGE, "usage": started})
    yield _json(type="ping")
    texts = _anthropic_texts(script)
    for index, (block, deltas) in enumerate(texts):
        yield _json(type="content_block_start", index=index, content_block=block)
        for delta in deltas:
            yield _json(type="content_block_delta", index=index, delta=delta)
        yield _json(type="content_block_stop", index=index)
    for number, step in _call_steps(script):
        index = len(texts) + number
        if isinstance(step, ScriptedCall):
            call: Payload = {"type": "tool_use", "id": _id(step, number), "name": step.name, "input": {}}
            yield _json(type="content_block_start", index=index, content_block=call)
            yield _json(type="content_block_delta", index=index, delta={"type": "input_json_delta", "partial_json": ""})
        elif step:
            delta = {"type": "input_json_delta", "partial_json": step}
            yield _json(type="content_block_delta", index=index, delta=delta)
        else:
            yield _json(type="content_block_stop", index=index)
    reason = script.finish or ("tool_use" if script.calls else "end_turn")
    yield _json(type="message_delta", delta={"stop_reason": reason, "stop_sequence": None}, usage=ended)
    yield _json(type="message_stop")


def gemini_events(script: Script) -> Iterator[str]:
    """The script as the data of `gemini` events.

    Raises:
        ValueError: The arguments of a call are a string that holds no JSON object.
    """
    calls: list[Payload] = [
        {"functionCall": {"name": call.name, "args": _object(call), "id": _id(call, index)}}
        for index, call in enumerate(script.calls)
    ]
    return _gemini_events(script, calls)


def ollama_lines(script: Script) -> Iterator[str]:
    """The script as the lines of `ollama`.

    Raises:
        ValueError: The arguments of a call are a string that holds no JSON object.
    """
    calls: list[Payload] = [
        {"id": _id(call, index), "function": {"index": index, "name": call.name, "arguments": _object(call)}}
        for index, call in enumerate(script.calls)
    ]
    return _ollama_lines(script, calls)


def openai_error(_status: int = 500) -> Payload:
    """An error as OpenAI says it; it does not say the status."""
    return {"error": {"message": _TOLD_TO_FAIL, "type": "server_error", "code": "scripted"}}


def openai_error_event(status: int = 500) -> Payload:
    """The same inside a stream of `openai-responses`, or of `plain`."""
    return {"type": "error", **openai_error(status)}


def anthropic_error(status: int = 500) -> Payload:
    """An error as Anthropic says it."""
    kind = _ANTHROPIC_KINDS.get(status, "api_error")
    return {"type": "error", "error": {"type": kind, "message": _TOLD_TO_FAIL}}


def gemini_error(status: int = 500) -> Payload:
    """An error as Google says it."""
    name = _GOOGLE_STATUSES.get(status, "INTERNAL")
    return {"error": {"code": status, "message": _TOLD_TO_FAIL, "status": name}}


def ollama_error(_status: int = 500) -> Payload:
    """An error as Ollama says it: its message."""
    return {"error": _TOLD_TO_FAIL}


_TOLD_TO_FAIL = "The sandbox was told to fail."

_ANTHROPIC_KINDS: Mapping[int, str] = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}

_GOOGLE_STATUSES: Mapping[int, str] = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}

_CHUNK: Payload = {
    "id": "chatcmpl-sandbox",
    "object": "chat.completion.chunk",
    "created": 1_700_000_000,
    "model": "sandbox",
}

_RESPONSE: Payload = {
    "id": "resp_sandbox",
    "object": "response",
    "created_at": 1_700_000_000,
    "status": "in_progress",
    "error": None,
    "incomplete_details": None,
    "model": "sandbox",
    "output": [],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
    "usage": None,
}

_MESSAGE: Payload = {
    "id": "msg_sandbox",
    "type": "message",
    "role": "assistant",
    "model": "sandbox",
    "content": [],
    "stop_reason": None,
    "stop_sequence": None,
}


def _chunk(delta: Payload, finish: str | None = None) -> str:
    return _json(**_CHUNK, choices=[{"index": 0, "delta": delta, "finish_reason": finish}])


@value
class _TextItem:
    """A text among the outputs of a response."""

    item: Payload
    holder: str  # where in the item its part stands
    part: Payload
    part_event: str
    text: str
    text_event: str

    @property
    def whole(self) -> Payload:
        return {**self.item, "status": "completed", self.holder: [self.part]}


def _responses_events(script: Script, started: Payload) -> Iterator[Payload]:
    yield {"type": "response.created", "response": started}
    yield {"type": "response.in_progress", "response": started}
    texts = _text_items(script)
    for index, text in enumerate(texts):
        yield from _text_item_events(index, text, script.piece)
    calls = [_function_call(number, call) for number, call in enumerate(script.calls)]
    for number, step in _call_steps(script):
        yield from _function_call_events(len(texts) + number, calls[number], step)
    status = script.finish or "completed"
    response = {
        **started,
        "status": status,
        "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
        "output": [*(text.whole for text in texts), *calls],
        "usage": _responses_usage(script),
    }
    yield {"type": f"response.{status}", "response": response}


def _text_items(script: Script) -> list[_TextItem]:
    reasoning = _TextItem(
        {"id": "rs_sandbox", "type": "reasoning"},
        "summary",
        {"type": "summary_text", "text": script.reasoning},
        "response.reasoning_summary_part",
        script.reasoning,
        "response.reasoning_summary_text",
    )
    message = _TextItem(
        {"id": "msg_sandbox", "type": "message", "role": "assistant"},
        "content",
        {"type": "output_text", "text": script.text, "annotations": []},
        "response.content_part",
        script.text,
        "response.output_text",
    )
    return [item for item in (reasoning, message) if item.text]


def _text_item_events(index: int, text: _TextItem, piece: int) -> Iterator[Payload]:
    place = {"item_id": text.item["id"], "output_index": index, f"{text.holder}_index": 0}
    started: Payload = {**text.item, "status": "in_progress", text.holder: []}
    yield {"type": "response.output_item.added", "output_index": index, "item": started}
    yield {"type": f"{text.part_event}.added", **place, "part": {**text.part, "text": ""}}
    for delta in _pieces(text.text, piece):
        yield {"type": f"{text.text_event}.delta", **place, "delta": delta}
    yield {"type": f"{text.text_event}.done", **place, "text": text.text}
    yield {"type": f"{text.part_event}.done", **place, "part": text.part}
    yield {"type": "response.output_item.done", "output_index": index, "item": text.whole}


def _function_call(number: int, call: ScriptedCall) -> Payload:
    return {
        "id": f"fc_{number}",
        "type": "function_call",
        "status": "completed",
        "arguments": _text(call),
        "call_id": _id(call, number),
        "name": call.name,
    }


def _function_call_events(index: int, call: Payload, step: ScriptedCall | str) -> Iterator[Payload]:
    place = {"item_id": call["id"], "output_index": index}
    if isinstance(step, ScriptedCall):
        started = {**call, "status": "in_progress", "arguments": ""}
        yield {"type": "response.output_item.added", "output_index": index, "item": started}
    elif step:
        yield {"type": "response.function_call_arguments.delta", **place, "delta": step}
    else:
        yield {"type": "response.function_call_arguments.done", **place, "arguments": call["arguments"]}
        yield {"type": "response.output_item.done", "output_index": index, "item": call}


def _responses_usage(script: Script) -> Payload | None:
    if script.usage is None:
        return None
    sent, got = script.usage
    return {
        "input_tokens": sent,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": got,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": sent + got,
    }


def _anthropic_usage(script: Script) -> tuple[Payload, Payload]:
    """What `message_start` and `message_delta` say of it; the official client wants it there, even empty."""
    if script.usage is None:
        return {}, {}
    sent, got = script.usage
    return {"input_tokens": sent, "output_tokens": 1}, {"output_tokens": got}


def _anthropic_texts(script: Script) -> list[tuple[Payload, list[Payload]]]:
    """The blocks that are no calls, each with its deltas."""
    thoughts = [{"type": "thinking_delta", "thinking": piece} for piece in _pieces(script.reasoning, script.piece)]
    words = [{"type": "text_delta", "text": piece} for piece in _pieces(script.text, script.piece)]
    signature = {"type": "signature_delta", "signature": "c2FuZGJveA=="}
    texts: list[tuple[Payload, list[Payload]]] = []
    if thoughts:
        texts.append(({"type": "thinking", "thinking": "", "signature": ""}, [*thoughts, signature]))
    if words:
        texts.append(({"type": "text", "text": ""}, [*words]))
    return texts


def _gemini_events(script: Script, calls: Iterable[Payload]) -> Iterator[str]:
    thoughts = ({"text": piece, "thought": True} for piece in _pieces(script.reasoning, script.piece))
    words = ({"text": piece} for piece in _pieces(script.text, script.piece))
    so_far, whole = _gemini_usage(script)
    for part in chain[Payload](thoughts, words, calls):
        yield _json(candidates=[_candidate(part)], **so_far, modelVersion="sandbox", responseId="sandbox")
    last = {**_candidate({"text": ""}), "finishReason": script.finish or "STOP"}
    yield _json(candidates=[last], **whole, modelVersion="sandbox", responseId="sandbox")


def _candidate(part: Payload) -> Payload:
    return {"content": {"parts": [part], "role": "model"}, "index": 0}


def _gemini_usage(script: Script) -> tuple[Payload, Payload]:
    """What each event, and the last one, say of it."""
    if script.usage is None:
        return {}, {}
    sent, got = script.usage
    counted = {"promptTokenCount": sent, "candidatesTokenCount": got, "totalTokenCount": sent + got}
    return {"usageMetadata": {"promptTokenCount": sent, "totalTokenCount": sent}}, {"usageMetadata": counted}


def _ollama_lines(script: Script, calls: Iterable[Payload]) -> Iterator[str]:
    for piece in _pieces(script.reasoning, script.piece):
        yield _line({"content": "", "thinking": piece})
    for piece in _pieces(script.text, script.piece):
        yield _line({"content": piece})
    for call in calls:
        yield _line({"content": "", "tool_calls": [call]})
    usage = {} if script.usage is None else dict(zip(("prompt_eval_count", "eval_count"), script.usage, strict=True))
    yield _line({"content": ""}, done=True, done_reason=script.finish or "stop", **usage)


def _line(message: Payload, *, done: bool = False, **rest: object) -> str:
    return _json(
        model="sandbox", created_at="2025-01-01T00:00:00Z", message={"role": "assistant", **message}, done=done, **rest
    )


def _json(**fields: object) -> str:
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))


def _id(call: ScriptedCall, number: int) -> str:
    return call.id or f"call_{number}"


def _text(call: ScriptedCall) -> str:
    return call.args if isinstance(call.args, str) else _json(**call.args)


def _object(call: ScriptedCall) -> Payload:
    if not isinstance(call.args, str):
        return call.args
    try:
        return parse_arguments(call.args)
    except MalformedToolArguments as error:
        raise ValueError(f"this dialect can't say the arguments of {call.name!r}: {error.reason}") from error


def _pieces(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def _call_steps(script: Script) -> Iterator[tuple[int, ScriptedCall | str]]:
    """The calls step by step, by index: the call itself for its head, its fragments, "" for its end."""
    per_call = [_steps(index, call, script.piece) for index, call in enumerate(script.calls)]
    rounds: Iterable[Iterable[tuple[int, ScriptedCall | str] | None]] = per_call
    if script.interleave:
        rounds = zip_longest(*per_call)
    for steps in rounds:
        yield from (step for step in steps if step is not None)


def _steps(index: int, call: ScriptedCall, piece: int) -> list[tuple[int, ScriptedCall | str]]:
    return [(index, call), *((index, fragment) for fragment in _pieces(_text(call), piece)), (index, "")]
