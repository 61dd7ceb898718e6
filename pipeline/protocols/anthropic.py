"""`anthropic`: the Messages API, direct, on Vertex, and through gateways."""

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
    Usage,
    WireEvent,
    WireProtocol,
)
from rillet.operators.errors import MalformedPayload
from rillet.operators.value import maker

from .calls import Calls
from .payload import (
    DONE,
    compact_json,
    count_in,
    finish_reason,
    load_exactly,
    load_object,
    object_in,
    provider_error,
    required_index,
    required_text,
    text_in,
)
from .text_template import TextTemplate

MAX_FIGURES = 256


class AnthropicDecoder:
    """One stream of `anthropic`.

    Done is `message_stop`. A `tool_use` block is a call, and its end is `content_block_stop`, which a block cut by
    max_tokens never gets. Server tools, their results, citations and signatures are `ProviderEvent`s.

    Args:
        extras: Emit those.

    Source: platform.claude.com/docs/en/build-with-claude/streaming.
    """

    def __init__(self, extras: bool = False) -> None:
        self._extras = extras
        self._started = False
        self._calls = Calls()
        self._others: set[int] = set()  # the blocks that are no calls
        self._whole_inputs: dict[int, str] = {}
        self._usage: dict[str, Any] = {}
        self.template = TextTemplate()

    def decode(self, event: WireEvent, /) -> Iterable[Delta]:
        data = event.data.strip()
        if not data or data == DONE:  # a gateway's, after message_stop or alone
            return ()
        payload = load_object(data)
        match payload.get("type") or event.event:
            case "content_block_delta":
                return self._block_delta(payload, event)
            case "content_block_start":
                self.template.forget()  # the place of a call may be taken by a block of another kind
                return self._block_start(payload, data)
            case "content_block_stop":
                return self._block_stop(payload)
            case "message_start":
                return self._message_start(payload)
            case "message_delta":
                return self._message_delta(payload)
            case "message_stop":
                return (Done(),)
            case "error":
                raise provider_error(payload.get("error") or payload, payload)
            case "ping":
                return ()
            case "message":
                raise MalformedPayload("has no type")
            case kind:
                return self._extra(str(kind), payload)

    def finish(self) -> Iterable[Delta]:
        return ()

    def _message_start(self, payload: dict[str, Any]) -> Iterator[Delta]:
        if self._started:
            raise MalformedPayload("starts a second message: a proxy glued two answers together")
        self._started = True
        yield from self._count(object_in(payload.get("message"), "message").get("usage"))

    def _message_delta(self, payload: dict[str, Any]) -> Iterator[Delta]:
        yield from self._count(payload.get("usage"))
        reason = text_in(object_in(payload.get("delta"), "delta").get("stop_reason"), "stop_reason")
        if reason:
            yield Finish(finish_reason(reason), reason)

    def _count(self, usage: object) -> Iterator[Usage]:
        """The figures are cumulative, and later events repeat only some of them."""
        if figures := object_in(usage, "usage"):
            self._usage = {**self._usage, **{key: value for key, value in figures.items() if value is not None}}
            if len(self._usage) > MAX_FIGURES:
                raise MalformedPayload(f"has more than {MAX_FIGURES} figures of usage")
            yield Usage(
                count_in(self._usage.get("input_tokens")), count_in(self._usage.get("output_tokens")), None, self._usage
            )

    def _block_start(self, payload: dict[str, Any], data: str) -> Iterator[Delta]:
        index = required_index(payload, "index")
        block = object_in(payload.get("content_block"), "content_block")
        kind = required_text(block, "type")
        (self._others.discard if kind == "tool_use" else self._others.add)(index)
        match kind:
            case "tool_use":
                yield self._calls.start(index, text_in(block.get("id"), "id"), required_text(block, "name"))
                if block.get("input"):
                    self._whole_inputs[index] = compact_json(load_exactly(data)["content_block"]["input"])
            case "text":
                yield from _text(block.get("text"))
            case "thinking":
                yield from _reasoning(block.get("thinking"))
            case _:
                yield from self._extra(kind, payload)

    def _block_delta(self, payload: dict[str, Any], event: WireEvent) -> Iterable[Delta]:
        index = required_index(payload, "index")
        delta = object_in(payload.get("delta"), "delta")
        match required_text(delta, "type"):
            case "input_json_delta" if index not in self._others:
                args = required_text(delta, "partial_json")
                self.template.learn(event, "partial_json", args, partial(self._calls.go_on, index))
                return self._calls.add(index, args)
            case "text_delta":
                return self._say(TextDelta, "text", delta, event)
            case "thinking_delta":
                return self._say(ReasoningDelta, "thinking", delta, event)
            case kind:  # among them, the arguments of tools that the provider runs itself
                return self._extra(kind, payload)

    def _say(
        self, kind: type[TextDelta | ReasoningDelta], key: str, delta: dict[str, Any], event: WireEvent
    ) -> Iterable[Delta]:
        text = required_text(delta, key)
        if not text:
            return ()
        self.template.learn(event, key, text, maker(kind))
        return (kind(text),)

    def _block_stop(self, payload: dict[str, Any]) -> Iterator[Delta]:
        index = required_index(payload, "index")
        if index not in self._calls:
            return
        if not self._calls.has_args(index):  # some gateways give the input whole, in the start
            yield from self._calls.add(index, self._whole_inputs.get(index, ""))
        yield self._calls.end(index)

    def _extra(self, kind: str, payload: dict[str, Any]) -> Iterator[Delta]:
        if self._extras:
            yield ProviderEvent(kind, payload)


def _text(text: object) -> Iterator[Delta]:
    if text := text_in(text, "text"):
        yield TextDelta(text)


def _reasoning(text: object) -> Iterator[Delta]:
    if text := text_in(text, "thinking"):
        yield ReasoningDelta(text)


ANTHROPIC = WireProtocol("anthropic", AnthropicDecoder, ends_with_stream=True)
"""Messages events; done at `message_stop`."""
