"""`openai-responses`: OpenAI's Responses API, and the servers that speak it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from rillet.operators import (
    Delta,
    Done,
    Finish,
    FinishReason,
    ProviderEvent,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolCallDelta,
    WireEvent,
    WireProtocol,
)
from rillet.operators.errors import MalformedPayload
from rillet.operators.value import maker

from .calls import Calls
from .payload import (
    DONE,
    finish_reason,
    load_object,
    object_in,
    provider_error,
    required_index,
    required_text,
    text_in,
    usage_of,
)
from .text_template import TextTemplate

_TEXTS: dict[str, type[TextDelta | ReasoningDelta | RefusalDelta]] = {
    "response.output_text": TextDelta,
    "response.refusal": RefusalDelta,
    "response.reasoning_text": ReasoningDelta,
    "response.reasoning_summary_text": ReasoningDelta,
}
_CALLS = ("function_call", "custom_tool_call")


class OpenAIResponsesDecoder:
    """One stream of `openai-responses`.

    Done is `response.completed` or `response.incomplete`; `response.failed` and `error` are failures. The type in the
    payload counts, the SSE event need not be there. Texts and arguments come up to three times: their deltas are used
    where there are any, else the whole; arguments whose copies differ are malformed. A call's index is its
    `output_index`, since some servers change `item_id` with every event, and its id the `call_id`.

    Args:
        extras: Emit the items of tools that the provider runs itself, and unknown events, as `ProviderEvent`.

    Source: platform.openai.com/docs/api-reference/responses-streaming.
    """

    def __init__(self, extras: bool = False) -> None:
        self._extras = extras
        self._calls = Calls()
        self._args: dict[int, list[str]] = {}
        self._raw_text: set[int] = set()  # the calls whose input is raw text
        self._heard: set[tuple[str, object, object]] = set()
        self._refused = False
        self.template = TextTemplate("sequence_number", "item_id")

    def decode(self, event: WireEvent, /) -> Iterable[Delta]:
        data = event.data.strip()
        if not data or data == DONE:
            return ()
        payload = load_object(data)
        kind = payload.get("type") or event.event
        if kind == "response.function_call_arguments.delta":
            index, args = required_index(payload, "output_index"), required_text(payload, "delta")
            if index not in self._raw_text:
                self.template.learn(event, "delta", args, partial(self._go_on, index))
            return self._add(index, args)
        if type(kind) is not str or kind == "message":
            if payload.get("error"):
                raise provider_error(payload["error"], payload)
            raise MalformedPayload("has no type")
        stem, _, step = kind.rpartition(".")
        if stem in _TEXTS and step == "delta":
            return self._text_delta(stem, payload, event)
        if stem in _TEXTS and step == "done":
            return self._text_done(stem, payload)
        return self._other(kind, payload)

    def finish(self) -> Iterable[Delta]:
        return ()

    def _text_delta(self, stem: str, payload: dict[str, Any], event: WireEvent) -> Iterable[Delta]:
        self._heard.add(_place(stem, payload))
        pieces = self._say(stem, required_text(payload, "delta"))
        for piece in pieces:
            self.template.learn(event, "delta", piece.text, maker(type(piece)))
        return pieces

    def _text_done(self, stem: str, payload: dict[str, Any]) -> Iterable[Delta]:
        if _place(stem, payload) in self._heard:
            return ()
        return self._say(stem, text_in(payload.get(stem.rpartition(".")[2].split("_")[-1]), "text"))

    def _say(self, stem: str, text: str) -> tuple[TextDelta | ReasoningDelta | RefusalDelta, ...]:
        if not text:
            return ()
        self._refused = self._refused or stem == "response.refusal"
        return (_TEXTS[stem](text),)

    def _other(self, kind: str, payload: dict[str, Any]) -> Iterator[Delta]:
        match kind:
            case "response.output_item.added":
                yield from self._added(payload)
            case "response.custom_tool_call_input.delta":
                yield from self._add(required_index(payload, "output_index"), required_text(payload, "delta"))
            case "response.function_call_arguments.done":
                yield from self._check(required_index(payload, "output_index"), required_text(payload, "arguments"))
            case "response.custom_tool_call_input.done":
                yield from self._check(required_index(payload, "output_index"), required_text(payload, "input"))
            case "response.output_item.done":
                yield from self._item_done(payload)
            case "response.completed" | "response.incomplete":
                yield from self._end(kind, object_in(payload.get("response"), "response"))
            case "response.failed":
                response = object_in(payload.get("response"), "response")
                raise provider_error(response.get("error") or "the response failed", response)
            case "error":
                raise provider_error(payload.get("error") or payload, payload)
            case _:
                if self._extras and kind not in _QUIET:
                    yield ProviderEvent(kind, payload)

    def _added(self, payload: dict[str, Any]) -> Iterator[Delta]:
        item = object_in(payload.get("item"), "item")
        kind = required_text(item, "type")
        if kind in _CALLS:
            yield from self._start(required_index(payload, "output_index"), kind, item)
        elif self._extras and kind not in ("message", "reasoning"):
            yield ProviderEvent(kind, payload)

    def _start(self, index: int, kind: str, item: dict[str, Any]) -> Iterator[Delta]:
        self._args[index] = []
        yield self._calls.start(
            index, text_in(item.get("call_id") or item.get("id"), "id"), required_text(item, "name")
        )
        if kind == "custom_tool_call":
            self._raw_text.add(index)
            yield from self._calls.add(index, '{"input":"')

    def _add(self, index: int, fragment: str) -> Iterable[Delta]:
        if index not in self._args:
            raise MalformedPayload(f"goes on with output {index}, which is no open call")
        if fragment:
            self._args[index].append(fragment)
        return self._calls.add(index, self._as_json(index, fragment))

    def _go_on(self, index: int, fragment: str) -> ToolCallDelta | None:
        delta = self._calls.go_on(index, fragment)
        if delta is not None:
            self._args[index].append(fragment)
        return delta

    def _as_json(self, index: int, fragment: str) -> str:
        return json.dumps(fragment, ensure_ascii=False)[1:-1] if index in self._raw_text else fragment

    def _check(self, index: int, whole: str) -> Iterator[Delta]:
        """A whole copy came: it is the arguments where no fragments came, and else equal to them."""
        if not self._args.get(index):
            yield from self._add(index, whole)
            return
        self._args[index] = ["".join(self._args[index])]
        if self._args[index] != [whole]:
            raise MalformedPayload(f"gives output {index} other arguments than its fragments did")

    def _item_done(self, payload: dict[str, Any]) -> Iterator[Delta]:
        item = object_in(payload.get("item"), "item")
        kind = required_text(item, "type")
        if kind not in _CALLS:
            if self._extras and kind not in ("message", "reasoning"):
                yield ProviderEvent(kind, payload)
            return
        index = required_index(payload, "output_index")
        if self._calls.was_closed(index):
            raise MalformedPayload(f"finishes output {index} a second time")
        if index not in self._calls:
            yield from self._start(index, kind, item)
        whole = text_in(item.get("input" if index in self._raw_text else "arguments"), "arguments")
        if whole:
            yield from self._check(index, whole)
        if item.get("status") != "incomplete":  # else it stays open, and the verdict says so
            yield from self._calls.add(index, '"}' if index in self._raw_text else "")
            yield self._calls.end(index)

    def _end(self, kind: str, response: dict[str, Any]) -> Iterator[Delta]:
        if usage := object_in(response.get("usage"), "usage"):
            yield usage_of(usage, "input_tokens", "output_tokens", "total_tokens")
        raw = text_in(response.get("status"), "status") or kind.rpartition(".")[2]
        yield Finish(self._reason(raw, response), raw)
        yield Done()

    def _reason(self, raw: str, response: dict[str, Any]) -> FinishReason:
        if raw == "incomplete":
            details = object_in(response.get("incomplete_details"), "incomplete_details")
            return finish_reason(text_in(details.get("reason"), "reason") or raw)
        if self._refused:
            return "refusal"
        return "tool_calls" if self._calls.any else finish_reason(raw)


def _place(stem: str, payload: dict[str, Any]) -> tuple[str, object, object]:
    """What a text is a piece of."""
    part = payload.get("content_index", payload.get("summary_index"))
    return stem, required_index(payload, "output_index"), part


_QUIET = frozenset(
    (
        "response.created",
        "response.queued",
        "response.in_progress",
        "response.content_part.added",
        "response.content_part.done",
        "response.reasoning_part.added",
        "response.reasoning_part.done",
        "response.reasoning_summary_part.added",
        "response.reasoning_summary_part.done",
        "keepalive",
    )
)

OPENAI_RESPONSES = WireProtocol("openai-responses", OpenAIResponsesDecoder, ends_with_stream=True)
"""Responses events; done at `response.completed` or `response.incomplete`."""
