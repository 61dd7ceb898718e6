"""`bedrock-converse`: Amazon Bedrock's ConverseStream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from rillet.operators import (
    Delta,
    Done,
    EventFrame,
    Finish,
    ProviderEvent,
    ReasoningDelta,
    TextDelta,
    Usage,
    WireEvent,
    WireProtocol,
)
from rillet.operators.errors import ProviderError

from .calls import Calls
from .payload import count_in, finish_reason, load_object, object_in, required_index, required_text, text_in


class BedrockConverseDecoder:
    """One stream of `bedrock-converse`.

    The reason comes with `messageStop`, the usage after it, with `metadata`: Done is `metadata`, or a clean end after
    `messageStop`. Text blocks have no start. Signatures, and what else is unknown, are `ProviderEvent`s.

    Args:
        extras: Emit those.

    Source: docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStream.html.
    """

    def __init__(self, extras: bool = False) -> None:
        self._extras = extras
        self._calls = Calls()
        self._stopped = False

    def decode(self, event: WireEvent, /) -> Iterable[Delta]:
        raise_failure(event)
        payload = load_object(event.data)
        match event.event:
            case "contentBlockDelta":
                return self._delta(payload)
            case "contentBlockStart":
                return self._start(payload)
            case "contentBlockStop":
                return self._stop(required_index(payload, "contentBlockIndex"))
            case "messageStop":
                self._stopped = True
                raw = required_text(payload, "stopReason")
                return (Finish(finish_reason(raw), raw),)
            case "metadata":
                return self._end(object_in(payload.get("usage"), "usage"))
            case kind:
                return (ProviderEvent(kind, payload),) if self._extras and kind != "messageStart" else ()

    def finish(self) -> Iterable[Delta]:
        return (Done(),) if self._stopped else ()

    def _start(self, payload: dict[str, Any]) -> Iterator[Delta]:
        start = object_in(payload.get("start"), "start")
        if tool := object_in(start.get("toolUse"), "toolUse"):
            index = required_index(payload, "contentBlockIndex")
            yield self._calls.start(index, text_in(tool.get("toolUseId"), "toolUseId"), required_text(tool, "name"))

    def _delta(self, payload: dict[str, Any]) -> Iterator[Delta]:
        delta = object_in(payload.get("delta"), "delta")
        reasoning = object_in(delta.get("reasoningContent"), "reasoningContent")
        if text := text_in(delta.get("text"), "text"):
            yield TextDelta(text)
        if text := text_in(reasoning.get("text"), "text"):
            yield ReasoningDelta(text)
        if "toolUse" in delta:
            fragment = required_text(object_in(delta["toolUse"], "toolUse"), "input")
            yield from self._calls.add(required_index(payload, "contentBlockIndex"), fragment)
        if self._extras:
            yield from (ProviderEvent(key, delta[key]) for key in delta if key not in ("text", "toolUse"))

    def _stop(self, index: int) -> Iterator[Delta]:
        if index in self._calls:
            yield self._calls.end(index)

    def _end(self, usage: dict[str, Any]) -> Iterator[Delta]:
        if usage:
            yield Usage(
                count_in(usage.get("inputTokens")),
                count_in(usage.get("outputTokens")),
                count_in(usage.get("totalTokens")),
                usage,
            )
        if self._stopped:
            yield Done()


def raise_failure(event: WireEvent) -> None:
    """Raise what a frame reports as an exception or an error.

    Raises:
        ProviderError: It reports one; its type is the frame's.
    """
    if not (isinstance(event, EventFrame) and event.is_failure):
        return
    message = event.headers.get(":error-message") or load_object(event.data or "{}").get("message")
    raise ProviderError(message if isinstance(message, str) else "", type=event.event)


BEDROCK_CONVERSE = WireProtocol("bedrock-converse", BedrockConverseDecoder, framing="eventstream")
"""ConverseStream frames; done at `metadata`, or at a clean end after `messageStop`."""
