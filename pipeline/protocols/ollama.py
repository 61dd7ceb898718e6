"""`ollama`: its own API, /api/chat and /api/generate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from rillet.operators import Delta, Done, Finish, ReasoningDelta, TextDelta, Usage, WireEvent, WireProtocol
from rillet.operators.value import maker

from .calls import Calls
from .payload import (
    compact_json,
    count_in,
    finish_reason,
    list_in,
    load_exactly,
    load_object,
    object_in,
    provider_error,
    required_text,
    text_in,
)
from .text_template import TextTemplate


class OllamaDecoder:
    """One stream of `ollama`.

    Done is the line with `"done":true`. Calls come whole, under the next free index; some servers give none, and none
    gives indexes that can be relied on.

    Args:
        extras: There are none in this dialect.

    Source: docs.ollama.com/api.
    """

    def __init__(self, extras: bool = False) -> None:
        self._calls = Calls()
        self.template = TextTemplate("created_at")

    def decode(self, event: WireEvent, /) -> Iterable[Delta]:
        payload = load_object(event.data)
        if error := payload.get("error"):
            raise provider_error(error, payload)
        return self._read(payload, event)

    def finish(self) -> Iterable[Delta]:
        return ()

    def _read(self, payload: dict[str, Any], event: WireEvent) -> Iterator[Delta]:
        message = object_in(payload.get("message"), "message")
        if thinking := text_in(message.get("thinking") or payload.get("thinking"), "thinking"):
            yield ReasoningDelta(thinking)
        if text := text_in(message.get("content") or payload.get("response"), "text"):
            yield TextDelta(text)
        if bool(text) != bool(thinking) and payload.get("done") is False and "tool_calls" not in message:
            if text:
                self.template.learn(event, "content" if message.get("content") else "response", text, maker(TextDelta))
            else:
                self.template.learn(event, "thinking", thinking, maker(ReasoningDelta))
        if message.get("tool_calls"):
            for entry in list_in(load_exactly(event.data)["message"]["tool_calls"]):
                call = object_in(entry, "tool call")
                function = object_in(call.get("function"), "function")
                args = function["arguments"]  # always there, if empty
                args = args if isinstance(args, str) else compact_json(object_in(args, "arguments"))
                yield from self._calls.whole(text_in(call.get("id"), "id"), required_text(function, "name"), args)
        if payload.get("done") is True:
            yield from self._end(payload)

    def _end(self, payload: dict[str, Any]) -> Iterator[Delta]:
        tokens = count_in(payload.get("prompt_eval_count")), count_in(payload.get("eval_count"))
        if tokens != (None, None):
            figures = {key: value for key, value in payload.items() if key.endswith(("_count", "_duration"))}
            yield Usage(*tokens, None, figures)
        raw = text_in(payload.get("done_reason"), "done_reason") or "stop"  # servers before 0.3 gave none
        reason = finish_reason(raw)
        yield Finish("tool_calls" if reason == "stop" and self._calls.any else reason, raw)
        yield Done()


OLLAMA = WireProtocol("ollama", OllamaDecoder, framing="ndjson")
"""One JSON object a line; done at `"done":true`."""
