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
    WireEvent,
    WireProtocol,
)
from rillet.operators.errors import MalformedPayload, ProviderError

from .calls import Calls
from .payload import finish_reason, load_object, object_in, required_index, required_text, text_in, usage_of


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
        self._others: set[int] = set()  # the blocks that are no calls
        self._stopped = False

    def decode(self, event: WireEvent, /) -> Iterable[Delta]:
        payload = frame_object(event)
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
        tool = object_in(start.get("toolUse"), "toolUse")
        index = required_index(payload, "contentBlockIndex")
        if not tool or tool.get("type") == "server_tool_use":
            self._others.add(index)
        else:
            self._others.discard(index)
            yield self._calls.start(index, text_in(tool.get("toolUseId"), "toolUseId"), required_text(tool, "name"))

    def _delta(self, payload: dict[str, Any]) -> Iterator[Delta]:
        delta = object_in(payload.get("delta"), "delta")
        reasoning = object_in(delta.get("reasoningContent"), "reasoningContent")
        if text := text_in(delta.get("text"), "text"):
            yield TextDelta(text)
        if text := text_in(reasoning.get("text"), "text"):
            yield ReasoningDelta(text)
        index = required_index(payload, "contentBlockIndex")
        if "toolUse" in delta and index not in self._others:
            yield from self._calls.add(index, required_text(object_in(delta["toolUse"], "toolUse"), "input"))
        if self._extras:
            known = ("text", "toolUse", "reasoningContent" if "text" in reasoning else "")
            yield from (ProviderEvent(key, delta[key]) for key in delta if key not in known)

    def _stop(self, index: int) -> Iterator[Delta]:
        if index in self._calls:
            yield self._calls.end(index)

    def _end(self, usage: dict[str, Any]) -> Iterator[Delta]:
        if usage:
            yield usage_of(usage, "inputTokens", "outputTokens", "totalTokens")
        if self._stopped:
            yield Done()


def frame_object(event: WireEvent) -> dict[str, Any]:
    """The JSON object that a frame carries.

    Raises:
        ProviderError: The frame reports an exception or an error; its type is the frame's.
        MalformedPayload: Its payload is no JSON object in UTF-8.
    """
    payload = event.payload if isinstance(event, EventFrame) else event.data.encode()
    if isinstance(event, EventFrame) and event.is_failure:
        raise ProviderError(_failure(event), type=event.event)
    try:
        return load_object(payload.decode())
    except UnicodeDecodeError as error:
        raise MalformedPayload("is not UTF-8") from error


def _failure(frame: EventFrame) -> str:
    """What a frame says of a failure, in its headers or its payload, or as its payload."""
    try:
        message = frame.headers.get(":error-message") or load_object(frame.data).get("message")
    except MalformedPayload:
        message = frame.data
    return message if isinstance(message, str) else ""


BEDROCK_CONVERSE = WireProtocol("bedrock-converse", BedrockConverseDecoder, framing="eventstream")
"""ConverseStream frames; done at `metadata`, or at a clean end after `messageStop`."""
