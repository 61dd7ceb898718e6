"""`cohere`: version 2 of its Chat API."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from rillet.operators import (
    Delta,
    Done,
    Finish,
    ProviderEvent,
    ReasoningDelta,
    TextDelta,
    Usage,
    WireEvent,
    WireProtocol,
)
from rillet.operators.errors import MalformedPayload
from rillet.operators.value import maker

from .calls import Calls
from .payload import (
    DONE,
    count_in,
    finish_reason,
    load_object,
    object_in,
    provider_error,
    required_index,
    required_text,
    text_in,
)
from .text_template import TextTemplate


class CohereDecoder:
    """One stream of `cohere`.

    Done is `message-end`, unless its finish reason is ERROR. Tool calls, one object an event, have an index of their
    own. The tool plan and citations are `ProviderEvent`s.

    Args:
        extras: Emit those.

    Source: docs.cohere.com/docs/streaming.
    """

    def __init__(self, extras: bool = False) -> None:
        self._extras = extras
        self._calls = Calls()
        self.template = TextTemplate()

    def decode(self, event: WireEvent, /) -> Iterable[Delta]:
        data = event.data.strip()
        if not data or data == DONE:
            return ()
        payload = load_object(data)
        match payload.get("type") or event.event:
            case "content-start" | "content-delta":
                return self._content(_message(payload), event)
            case "tool-call-start":
                return self._start(payload)
            case "tool-call-delta":
                call = object_in(_message(payload).get("tool_calls"), "tool call")
                index = required_index(payload, "index")
                args = required_text(object_in(call["function"], "function"), "arguments")
                self.template.learn(event, "arguments", args, partial(self._calls.go_on, index))
                return self._calls.add(index, args)
            case "tool-call-end":
                return (self._calls.end(required_index(payload, "index")),)
            case "message-end":
                return self._end(object_in(payload.get("delta"), "delta"))
            case "message-start" | "content-end" | "citation-end":
                return ()
            case "message":
                if "error" in payload or "message" in payload:  # an error instead of a stream has no type
                    raise provider_error(payload.get("error") or payload, payload)
                raise MalformedPayload("has no type")
            case "error":
                raise provider_error(payload.get("error") or payload, payload)
            case kind:
                return (ProviderEvent(str(kind), payload),) if self._extras else ()

    def finish(self) -> Iterable[Delta]:
        return ()

    def _content(self, message: dict[str, Any], event: WireEvent) -> Sequence[Delta]:
        content = object_in(message.get("content"), "content")
        thinking, text = text_in(content.get("thinking"), "thinking"), text_in(content.get("text"), "text")
        pieces: list[TextDelta | ReasoningDelta] = []
        if thinking:
            pieces.append(ReasoningDelta(thinking))
        if text:
            pieces.append(TextDelta(text))
        if len(pieces) == 1:
            self.template.learn(event, "text" if text else "thinking", text or thinking, maker(type(pieces[0])))
        return pieces

    def _start(self, payload: dict[str, Any]) -> Iterator[Delta]:
        call = object_in(_message(payload).get("tool_calls"), "tool call")
        function = object_in(call.get("function"), "function")
        index = required_index(payload, "index")
        yield self._calls.start(index, text_in(call.get("id"), "id"), required_text(function, "name"))
        yield from self._calls.add(index, text_in(function.get("arguments"), "arguments"))

    def _end(self, delta: dict[str, Any]) -> Iterator[Delta]:
        if usage := object_in(delta.get("usage"), "usage"):
            tokens = object_in(usage.get("tokens") or usage.get("billed_units"), "tokens")
            yield Usage(_whole(tokens.get("input_tokens")), _whole(tokens.get("output_tokens")), None, usage)
        reason = required_text(delta, "finish_reason")
        if reason == "ERROR" or delta.get("error"):
            error = delta.get("error") or ""
            details = {"message": error} if isinstance(error, str) else object_in(error, "error")
            raise provider_error({"type": reason, **details}, delta)
        yield Finish(finish_reason(reason), reason)
        yield Done()


def _message(payload: dict[str, Any]) -> dict[str, Any]:
    return object_in(object_in(payload.get("delta"), "delta").get("message"), "message")


def _whole(count: object) -> int | None:
    """Cohere counts in floats."""
    return int(count) if type(count) is float and count.is_integer() else count_in(count)


COHERE = WireProtocol("cohere", CohereDecoder)
"""Chat v2 events; done at `message-end`."""
