"""`google-interactions`: Google's Interactions API."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from rillet.operators import (
    Delta,
    Done,
    Finish,
    ProviderEvent,
    ReasoningDelta,
    TextDelta,
    WireEvent,
    WireProtocol,
)
from rillet.operators.errors import MalformedPayload, ProviderError
from rillet.operators.value import maker

from .calls import Calls
from .payload import (
    DONE,
    compact_json,
    finish_reason,
    load_exactly,
    load_object,
    object_in,
    provider_error,
    required_index,
    required_text,
    text_in,
    usage_of,
)
from .text_template import TextTemplate


class GoogleInteractionsDecoder:
    """One stream of `google-interactions`.

    Done is `interaction.completed`, whatever its status, unless that is a failure. A `function_call` step is a call,
    and its end is `step.stop`. Steps of tools that the provider runs itself, and signatures, are `ProviderEvent`s.

    Args:
        extras: Emit those.

    Source: ai.google.dev/gemini-api/docs/interactions.
    """

    def __init__(self, extras: bool = False) -> None:
        self._extras = extras
        self._calls = Calls()
        self._others: set[int] = set()  # the steps that are no calls
        self._whole_args: dict[int, str] = {}
        self.template = TextTemplate()

    def decode(self, event: WireEvent, /) -> Iterable[Delta]:
        data = event.data.strip()
        if not data or data == DONE:
            return ()
        payload = load_object(data)
        match payload.get("event_type") or event.event:
            case "step.start":
                self.template.forget()  # the place of a call may be taken by a step of another kind
                return self._start(payload, data)
            case "step.delta":
                return self._delta(payload, event)
            case "step.stop":
                return self._stop(payload)
            case "interaction.completed":
                return self._completed(object_in(payload.get("interaction"), "interaction"))
            case "error" | "interaction.failed":
                interaction = object_in(payload.get("interaction"), "interaction")
                raise provider_error(payload.get("error") or interaction.get("error") or payload, payload)
            case "message":
                if "error" in payload:
                    raise provider_error(payload["error"], payload)
                raise MalformedPayload("has no event_type")
            case kind:
                return (ProviderEvent(str(kind), payload),) if self._extras else ()

    def finish(self) -> Iterable[Delta]:
        return ()

    def _start(self, payload: dict[str, Any], data: str) -> Iterator[Delta]:
        index = required_index(payload, "index")
        step = object_in(payload.get("step"), "step")
        if required_text(step, "type") == "function_call":
            self._others.discard(index)
            yield self._calls.start(index, text_in(step.get("id"), "id"), required_text(step, "name"))
            if step.get("arguments"):
                self._whole_args[index] = compact_json(load_exactly(data)["step"]["arguments"])
            return
        self._others.add(index)
        if self._extras and step["type"] not in ("thought", "model_output"):
            yield ProviderEvent(step["type"], payload)

    def _delta(self, payload: dict[str, Any], event: WireEvent) -> Iterable[Delta]:
        index = required_index(payload, "index")
        delta = object_in(payload.get("delta"), "delta")
        match required_text(delta, "type"):
            case "text":
                return self._say(TextDelta, required_text(delta, "text"), event)
            case "thought_summary":
                text = text_in(object_in(delta.get("content"), "content").get("text"), "text")
                return self._say(ReasoningDelta, text, event)
            case "arguments_delta" if index not in self._others:
                args = required_text(delta, "arguments")
                self.template.learn(event, "arguments", args, partial(self._calls.go_on, index))
                return self._calls.add(index, args)
            case kind:
                return (ProviderEvent(kind, payload),) if self._extras else ()

    def _say(self, kind: type[TextDelta | ReasoningDelta], text: str, event: WireEvent) -> Iterable[Delta]:
        if not text:
            return ()
        self.template.learn(event, "text", text, maker(kind))
        return (kind(text),)

    def _stop(self, payload: dict[str, Any]) -> Iterator[Delta]:
        index = required_index(payload, "index")
        if index not in self._calls:
            return
        if not self._calls.has_args(index):
            yield from self._calls.add(index, self._whole_args.get(index, ""))
        yield self._calls.end(index)

    def _completed(self, interaction: dict[str, Any]) -> Iterator[Delta]:
        if usage := object_in(interaction.get("usage"), "usage"):
            yield usage_of(usage, "total_input_tokens", "total_output_tokens", "total_tokens")
        status = required_text(interaction, "status")
        if status in ("failed", "cancelled"):
            raise ProviderError(f"the interaction {status}", type=status)
        yield Finish(finish_reason(status), status)
        yield Done()


GOOGLE_INTERACTIONS = WireProtocol("google-interactions", GoogleInteractionsDecoder)
"""Interactions events; done at `interaction.completed`."""
