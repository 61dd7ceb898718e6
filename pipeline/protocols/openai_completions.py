"""`openai-completions`: the text completions that came before chat."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from rillet.operators import Delta, Done, Finish, TextDelta, WireEvent, WireProtocol
from rillet.operators.errors import MalformedPayload
from rillet.operators.value import maker

from .payload import (
    DONE,
    check_choice,
    count_in,
    finish_reason,
    list_in,
    load_object,
    object_in,
    provider_error,
    text_in,
    usage_of,
)
from .text_template import TextTemplate


class OpenAICompletionsDecoder:
    """One stream of `openai-completions`.

    Done is `[DONE]`; or a clean end once every choice that spoke has a finish reason.

    Args:
        extras: There are none in this dialect.

    Source: platform.openai.com/docs/api-reference/completions.
    """

    def __init__(self, extras: bool = False) -> None:
        self._finished: dict[int, bool] = {}
        self.template = TextTemplate()

    def decode(self, event: WireEvent, /) -> Iterable[Delta]:
        data = event.data.strip()
        if data == DONE:
            return (Done(),)
        return self._read(load_object(data), event) if data else ()

    def finish(self) -> Iterable[Delta]:
        return (Done(),) if self._finished and all(self._finished.values()) else ()

    def _read(self, payload: dict[str, Any], event: WireEvent) -> Iterator[Delta]:
        if payload.get("error") or event.event == "error":
            raise provider_error(payload.get("error") or payload, payload)
        for item in list_in(payload.get("choices")):
            choice = object_in(item, "choice")
            if "delta" in choice:
                raise MalformedPayload("has a choice with a delta, as openai-chat has")
            number = count_in(choice.get("index")) or 0
            if number not in self._finished:
                check_choice(number, self._finished)
                self._finished[number] = False
            text, reason = text_in(choice.get("text"), "text"), text_in(choice.get("finish_reason"), "finish_reason")
            if text:
                self._finished[number] = False  # a reason that more text follows was none
                yield TextDelta(text, number)
            if text and not reason and len(payload["choices"]) == 1 and not payload.get("usage"):
                make = maker(TextDelta)
                self.template.learn(event, "text", text, partial(make, choice=number) if number else make)
            if reason:
                self._finished[number] = True
                self.template.forget()  # more text would take the reason back
                yield Finish(finish_reason(reason), reason, number)
        if usage := object_in(payload.get("usage"), "usage"):
            yield usage_of(usage, "prompt_tokens", "completion_tokens", "total_tokens")


OPENAI_COMPLETIONS = WireProtocol("openai-completions", OpenAICompletionsDecoder)
"""Completion chunks; done at `[DONE]`, or at a clean end after every choice's finish reason."""
