"""`openai-chat`: OpenAI's Chat Completions, and the dozens of servers that speak it with an accent."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import orjson

from rillet.operators import (
    Delta,
    Done,
    ProviderEvent,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    Usage,
    WireEvent,
    WireProtocol,
)
from rillet.operators.errors import MalformedPayload, ProviderError
from rillet.operators.value import maker

from .chat_choice import Choice, reasoning_in
from .payload import DONE, check_choice, list_in, load_exactly, object_in, provider_error, text_in, usage_of
from .text_template import TextTemplate

_object_arguments = re.compile(r'"(?:arguments|input)"\s*:\s*[\[{]')

_KNOWN_KEYS = frozenset(
    ("role", "content", "refusal", "reasoning", "reasoning_content", "reasoning_details", "tool_calls", "function_call")
)
_TEXTS: dict[str, Callable[..., TextDelta | ReasoningDelta]] = {
    "content": maker(TextDelta),
    "reasoning_content": maker(ReasoningDelta),
    "reasoning": maker(ReasoningDelta),
}


class OpenAIChatDecoder:
    """One stream of `openai-chat`.

    Done is `[DONE]`; or a clean end once every choice that appeared has a finish reason, unless one went on speaking
    after its reason, which then means nothing. A call opens once its name, its id and the start of its arguments are
    there (servers send any of them late). It closes when the next one opens or its choice finishes, provided that its
    arguments are whole; or else at the very end, since some servers send arguments after the finish reason. A stream
    that has events, and in none of them choices, is of another dialect, whatever marker ends it.

    Args:
        extras: Emit what only some servers send beside the text (annotations, encrypted reasoning, …) as
            `ProviderEvent`.

    Source: platform.openai.com/docs/api-reference/chat-streaming, and recordings of thirty servers.
    """

    def __init__(self, extras: bool = False) -> None:
        self._extras = extras
        self._choices: dict[int, Choice] = {}
        self._usage: dict[str, Any] | None = None
        self._failed = False
        self._is_foreign = False  # whether there was an event without choices before any choice
        self.template = TextTemplate()

    def decode(self, event: WireEvent, /) -> Iterable[Delta]:
        try:
            payload = orjson.loads(event.data)
        except orjson.JSONDecodeError:
            return self._not_json(event)
        piece = None if event.event == "error" else self._piece(payload, event)
        return self._read(payload, event) if piece is None else (piece,)

    def finish(self) -> Iterable[Delta]:
        if self._choices and all(choice.finished for choice in self._choices.values()):
            return self._end(by_marker=False)
        return ()

    def _piece(self, payload: Any, event: WireEvent) -> Delta | None:
        """What the commonest event gives, in which a choice that is known says one thing; None for any other event."""
        choices = payload.get("choices")
        if not choices or len(choices) != 1 or payload.get("usage") or "error" in payload or "x_groq" in payload:
            return None
        said, index = choices[0], choices[0].get("index")
        choice = self._choices.get(index) if type(index) is int else None
        if choice is None or choice.has_reason or said.get("finish_reason") or "usage" in said or "x_groq" in said:
            return None
        delta = said.get("delta")
        if delta.__class__ is not dict:
            return None
        key = _only_key(delta)
        if (self._extras and len(delta) > 1) or payload.get("object") == "error":
            return None
        value: Any = delta.get(key)
        if key == "tool_calls":
            is_one = value.__class__ is list and len(value) == 1 and value[0].__class__ is dict
            return self._go_on(choice, value[0], event) if is_one else None
        if type(value) is not str or not value or key not in _TEXTS:
            return None
        choice.spoke = True
        make = _TEXTS[key]
        if len(self._choices) == 1:
            self.template.learn(event, key, value, partial(make, choice=choice.number) if choice.number else make)
        else:
            self.template.learn_both(event, key, value, "index", partial(self._say, make))
        return make(value, choice.number)

    def _say(self, make: Callable[[str, int], Delta], text: str, index: bytes) -> Sequence[Delta]:
        """What a piece of text gives that is for the choice with that index; nothing where it takes `_read`."""
        choice = self._choices.get(int(index))
        if choice is None or choice.has_reason:
            return ()
        choice.spoke = True
        return (make(text, choice.number),)

    def _go_on(self, choice: Choice, entry: Any, event: WireEvent) -> Delta | None:
        delta = choice.go_on(entry)
        if delta is not None and len(self._choices) == 1:
            self.template.learn(event, "arguments", delta.args, partial(choice.add, entry["index"]))
        return delta

    def _not_json(self, event: WireEvent) -> Iterable[Delta]:
        data = event.data.strip()
        if data and event.event == "error":
            raise ProviderError(data)
        if data == DONE:
            if self._is_foreign and not self._choices:
                raise MalformedPayload("ends a stream in which nothing was openai-chat")
            return self._end(by_marker=True)
        if not data or data[0] == ":":  # a comment that somebody wrapped as data
            return ()
        if _object_arguments.search(data):  # they may hold a number that only the exact way can read
            return self._read(load_exactly(data), event)
        raise MalformedPayload("is not JSON")

    def _read(self, payload: dict[str, Any], event: WireEvent) -> Iterator[Delta]:
        self.template.forget()  # a choice may come or end, and a call
        if _object_arguments.search(event.data):
            payload = load_exactly(event.data)
        for choice in payload.get("choices") or ():
            yield from self._read_choice(choice)
        yield from self._read_usage(payload)
        if error := payload.get("error"):
            raise provider_error(error, payload)
        if event.event == "error" or payload.get("object") == "error":
            raise provider_error(payload, payload)
        if self._failed:
            raise ProviderError("the choice ended with the finish reason 'error'", type="error")
        if "choices" not in payload:
            self._is_foreign = self._is_foreign or not self._choices
        if self._extras and "choices" not in payload and "usage" not in payload:
            yield ProviderEvent(str(payload.get("object") or event.event), payload)

    def _read_choice(self, payload: dict[str, Any]) -> Iterator[Delta]:
        number = payload.get("index") or 0
        choice = self._choices.get(number)
        if choice is None:
            check_choice(number, self._choices)
            choice = self._choices[number] = Choice(number)
        delta = payload.get("delta")
        if delta is None and not choice.spoke:
            delta = payload.get("message")
        if delta:
            yield from self._read_delta(choice, delta)
        if reason := payload.get("finish_reason"):
            self._failed = self._failed or reason == "error"
            yield from choice.end(text_in(reason, "finish_reason"), payload.get("native_finish_reason"))
        yield from self._read_usage(payload)

    def _read_delta(self, choice: Choice, delta: dict[str, Any]) -> Iterator[Delta]:
        if reasoning := delta.get("reasoning_content") or delta.get("reasoning") or delta.get("reasoning_details"):
            yield from choice.say(ReasoningDelta, reasoning_in(reasoning))
        if content := delta.get("content"):
            if type(content) is str:
                yield from choice.say(TextDelta, content)
            else:
                yield from choice.say_parts(content)
        if refusal := delta.get("refusal"):
            yield from choice.say(RefusalDelta, text_in(refusal, "refusal"))
        if calls := delta.get("tool_calls"):
            for entry in list_in(calls):
                yield from choice.call(object_in(entry, "tool call"))
        if function := delta.get("function_call"):
            yield from choice.call({"function": function})
        if self._extras:
            yield from (ProviderEvent(key, delta[key]) for key in delta if key not in _KNOWN_KEYS and delta[key])

    def _read_usage(self, payload: dict[str, Any]) -> Iterator[Usage]:
        usage = object_in(payload.get("usage") or object_in(payload.get("x_groq"), "x_groq").get("usage"), "usage")
        if usage and usage != self._usage:
            self._usage = usage
            yield usage_of(usage, "prompt_tokens", "completion_tokens", "total_tokens")

    def _end(self, *, by_marker: bool) -> Iterator[Delta]:
        for choice in self._choices.values():
            yield from choice.close(by_marker=by_marker)
        yield Done()


def _only_key(delta: dict[str, Any]) -> str:
    """The only key that says something, "" where there is none or more than one."""
    if len(delta) == 1:
        return next(iter(delta))
    said = [key for key, value in delta.items() if value and key != "role"]
    return said[0] if len(said) == 1 else ""


OPENAI_CHAT = WireProtocol("openai-chat", OpenAIChatDecoder)
"""Chat Completions chunks; done at `[DONE]`, or at a clean end after every choice's finish reason."""
