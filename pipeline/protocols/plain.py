"""`plain`: the dialect of this project, for servers that need no other."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from rillet.operators import (
    Delta,
    Done,
    ProviderEvent,
    TextDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    WireEvent,
    WireProtocol,
)
from rillet.operators.errors import MalformedPayload
from rillet.operators.value import maker

from .payload import DONE, load_object, provider_error, required_text, text_in
from .text_template import TextTemplate

_TYPES = ("text", "tool_call_start", "tool_call_delta", "tool_call_end", "error")


class PlainDecoder:
    """One stream of `plain`. Unknown types are passed over; but where there is nothing else, it is another dialect.

    Args:
        extras: Emit events of unknown types as `ProviderEvent`.
    """

    def __init__(self, extras: bool = False) -> None:
        self._extras = extras
        self._open: set[int] = set()
        self.template = TextTemplate()
        self._is_known = self._is_foreign = False  # whether there was an event of this dialect, or of another

    def decode(self, event: WireEvent, /) -> Iterable[Delta]:
        data = event.data.strip()
        if data == DONE:
            if self._is_foreign and not self._is_known:
                raise MalformedPayload("ends a stream in which nothing was plain")
            return (Done(),)
        if not data:
            return ()
        payload = load_object(data)
        if event.event == "error" or ("error" in payload and "type" not in payload):
            raise provider_error(payload.get("error") or payload, payload)
        is_foreign = payload.get("type") not in _TYPES
        self._is_foreign, self._is_known = self._is_foreign or is_foreign, self._is_known or not is_foreign
        match payload.get("type"):
            case "text":
                text = text_in(payload["delta"], "delta")
                return self._say(text, event) if text else ()
            case "tool_call_start":
                return (self._start(payload),)
            case "tool_call_delta":
                args = text_in(payload["args"], "args")
                index = self._opened(payload)
                self.template.learn(event, "args", args, partial(self._go_on, index))
                return (ToolCallDelta(index, args),) if args else ()
            case "tool_call_end":
                index = self._opened(payload)
                self._open.remove(index)
                return (ToolCallEnd(index),)
            case "error":
                raise provider_error(payload.get("error") or payload, payload)
            case kind:
                return (ProviderEvent(str(kind), payload),) if self._extras else ()

    def finish(self) -> Iterable[Delta]:
        return ()

    def _say(self, text: str, event: WireEvent) -> Iterable[Delta]:
        self.template.learn(event, "delta", text, maker(TextDelta))
        return (TextDelta(text),)

    def _start(self, payload: dict[str, Any]) -> ToolCallStart:
        index = _index(payload)
        if index in self._open:
            raise MalformedPayload(f"starts tool call {index}, which is open")
        self._open.add(index)
        name = required_text(payload, "name")
        if not name:
            raise MalformedPayload(f"starts tool call {index} without a name")
        return ToolCallStart(index, text_in(payload.get("id"), "id"), name)

    def _go_on(self, index: int, args: str) -> ToolCallDelta | None:
        return ToolCallDelta(index, args) if index in self._open else None

    def _opened(self, payload: dict[str, Any]) -> int:
        index = _index(payload)
        if index not in self._open:
            raise MalformedPayload(f"goes on with tool call {index}, which is not open")
        return index


def _index(payload: dict[str, Any]) -> int:
    index = payload["index"]
    if type(index) is not int:
        raise MalformedPayload("has an index that is no integer")
    return index


PLAIN = WireProtocol("plain", PlainDecoder)
"""JSON events of the types text, tool_call_start, tool_call_delta, tool_call_end and error; done at `[DONE]`."""
