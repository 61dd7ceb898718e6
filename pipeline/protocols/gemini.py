"""`gemini`: streamGenerateContent with alt=sse, of the Gemini API and of Vertex."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, TypeAlias

import orjson

from rillet.operators import (
    Delta,
    Done,
    Finish,
    Json,
    ProviderEvent,
    ReasoningDelta,
    TextDelta,
    Usage,
    WireEvent,
    WireProtocol,
)
from rillet.operators.errors import MalformedPayload, ProviderError
from rillet.operators.value import maker

from .calls import Calls
from .payload import (
    check_choice,
    compact_json,
    count_in,
    finish_reason,
    is_list,
    list_in,
    load_exactly,
    load_object,
    object_in,
    provider_error,
    required_text,
    text_in,
    usage_of,
)
from .text_template import TextTemplate

# The next item of a list is the usual one; of what paths leave out before theirs, an event makes no more than this.
MAX_GAP = 8
MAX_STEPS = 200
MAX_STEPS_IN_ALL = 50_000

_SENT, _GOT, _TOTAL = "promptTokenCount", "candidatesTokenCount", "totalTokenCount"

Path: TypeAlias = tuple[str | int, ...]

_step = re.compile(r"\.([^.\[\]]+)|\[(\d{1,9})\]|\['((?:[^'\\]|\\.)*)'\]|\[\"((?:[^\"\\]|\\.)*)\"\]")
_VALUES = ("stringValue", "numberValue", "boolValue", "nullValue", "structValue", "listValue")


class GeminiDecoder:
    """One stream of `gemini`.

    Done is a clean end once every candidate that spoke has a finish reason; nothing marks it. Calls come whole, or as
    `partialArgs` by path, of which one call is made when it closes: by an empty `functionCall`, by the next one, or by
    the finish reason STOP. Parts of tools that the provider runs itself are `ProviderEvent`s.

    Args:
        extras: Emit those, and thought signatures.

    Source: ai.google.dev/api/generate-content.
    """

    def __init__(self, extras: bool = False) -> None:
        self._extras = extras
        self._candidates: dict[int, _Candidate] = {}
        self._usage: dict[str, Any] = {}
        self._speaks: tuple[Callable[[str, int], Delta], int] = maker(TextDelta), 0  # cheaper than a partial
        self.template = TextTemplate()

    def decode(self, event: WireEvent, /) -> Iterable[Delta]:
        data = event.data.strip()
        if not data:
            return ()
        payload = load_exactly(data) if '"functionCall"' in data else load_object(data)
        if event.event == "error":
            raise provider_error(payload.get("error") or payload, payload)
        return self._piece(payload, event) or self._read(payload)

    def finish(self) -> Iterable[Delta]:
        if self._candidates and all(candidate.finished for candidate in self._candidates.values()):
            return (Done(),)
        return ()

    def _piece(self, payload: Any, event: WireEvent) -> Sequence[Delta]:
        """What the commonest event gives: a known candidate goes on with one piece of text. Nothing for any other."""
        candidates = payload.get("candidates")
        if (
            candidates.__class__ is not list
            or len(candidates) != 1
            or "error" in payload
            or "promptFeedback" in payload
        ):
            return ()
        candidate = candidates[0]
        if candidate.__class__ is not dict:
            return ()
        number, content = candidate.get("index", 0), candidate.get("content")
        if type(number) is not int or number not in self._candidates or content.__class__ is not dict:
            return ()
        parts = content.get("parts")
        if parts.__class__ is not list or len(parts) != 1 or candidate.get("finishReason") or self._extras:
            return ()
        text = parts[0].get("text") if parts[0].__class__ is dict else None
        if type(text) is not str or not text or "functionCall" in parts[0]:
            return ()
        self._candidates[number].finished = False  # a reason that more text follows was none
        make = maker(ReasoningDelta) if parts[0].get("thought") else maker(TextDelta)
        figures = object_in(payload.get("usageMetadata"), "usageMetadata")
        if _SENT in figures:
            self._speaks = make, number
            self.template.learn_both(event, "text", text, "usageMetadata", self._say)
        else:
            self.template.learn(event, "text", text, partial(make, choice=number) if number else make)
        return (make(text, number), *self._count(figures))

    def _say(self, text: str, usage: bytes) -> Sequence[Delta]:
        """What a piece of text gives beside such figures."""
        make, number = self._speaks
        figures: dict[str, Any] = orjson.loads(usage)
        if figures == self._usage:
            return (make(text, number),)
        self._usage = figures
        return make(text, number), usage_of(figures, _SENT, _GOT, _TOTAL)

    def _count(self, figures: dict[str, Any]) -> Sequence[Usage]:
        if _SENT not in figures or figures == self._usage:
            return ()
        self._usage = figures
        return (usage_of(figures, _SENT, _GOT, _TOTAL),)

    def _read(self, payload: dict[str, Any]) -> Iterator[Delta]:
        self.template.forget()  # a candidate may come or end
        if error := payload.get("error"):
            raise provider_error(error, payload)
        for item in list_in(payload.get("candidates")):
            candidate = object_in(item, "candidate")
            number = count_in(candidate.get("index")) or 0
            if number not in self._candidates:
                check_choice(number, self._candidates)
                self._candidates[number] = _Candidate(number, self._extras)
            yield from self._candidates[number].read(candidate)
        yield from self._count(object_in(payload.get("usageMetadata"), "usageMetadata"))
        if "promptFeedback" in payload:
            self._check(object_in(payload["promptFeedback"], "promptFeedback"))

    def _check(self, feedback: dict[str, Any]) -> None:
        if reason := text_in(feedback.get("blockReason"), "blockReason"):
            message = text_in(feedback.get("blockReasonMessage"), "blockReasonMessage") or "the prompt was blocked"
            raise ProviderError(message, type=reason)


class _Candidate:
    """One of the alternatives asked for."""

    def __init__(self, number: int, extras: bool) -> None:
        self.finished = False
        self._number = number
        self._extras = extras
        self._calls = Calls(number)
        self._growing: _GrowingCall | None = None

    def read(self, candidate: dict[str, Any]) -> Iterator[Delta]:
        for item in list_in(object_in(candidate.get("content"), "content").get("parts")):
            part = object_in(item, "part")
            if text := text_in(part.get("text"), "text"):
                self.finished = False  # a reason that more text follows was none
                yield (ReasoningDelta if part.get("thought") else TextDelta)(text, self._number)
            if self._extras or "functionCall" in part:
                yield from self._other(part)
        if raw := text_in(candidate.get("finishReason"), "finishReason"):
            yield from self._finish(raw)

    def _other(self, part: dict[str, Any]) -> Iterator[Delta]:
        if "functionCall" in part:
            self.finished = False
            yield from self._function_call(object_in(part["functionCall"], "functionCall"))
        if self._extras:
            yield from (ProviderEvent(key, part[key]) for key in part if key not in ("text", "thought", "functionCall"))

    def _function_call(self, call: dict[str, Any]) -> Iterator[Delta]:
        if name := text_in(call.get("name"), "name"):
            yield from self._close()
            args = object_in(call.get("args"), "args")
            self._growing = _GrowingCall(text_in(call.get("id"), "id"), name, args)
        if self._growing is None or (call.get("args") and not name):
            if call:
                raise MalformedPayload("goes on with a function call that is not open, or has arguments and no name")
            return
        for piece in list_in(call.get("partialArgs")):
            self._growing.add(object_in(piece, "partialArgs"))
        if not call.get("willContinue"):
            yield from self._close()

    def _close(self) -> Iterator[Delta]:
        call, self._growing = self._growing, None
        if call is None:
            return
        if call.is_whole:
            yield from self._calls.whole(call.id, call.name, call.arguments())
        else:  # it opens, and is never closed: the verdict says so
            yield self._calls.start(self._calls.next_index, call.id, call.name)

    def _finish(self, raw: str) -> Iterator[Delta]:
        reason = finish_reason(raw)
        if self._growing is not None and reason != "stop":  # cut: it opens, and is never closed
            yield self._calls.start(self._calls.next_index, self._growing.id, self._growing.name)
            self._growing = None
        yield from self._close()
        self.finished = True
        yield Finish("tool_calls" if reason == "stop" and self._calls.any else reason, raw, self._number)


class _GrowingCall:
    """A call whose arguments come as values at paths; those of a string are appended."""

    def __init__(self, id: str, name: str, args: dict[str, Any]) -> None:
        self.id = id
        self.name = name
        self._args = args
        self._strings: dict[Path, tuple[Any, list[str]]] = {}  # by path: what it is in, and its pieces
        self._unfinished: set[Path] = set()
        self._steps = 0

    @property
    def is_whole(self) -> bool:
        """Whether every string that said it would go on has been finished."""
        return not self._unfinished

    def add(self, partial: dict[str, Any]) -> None:
        path = _path(required_text(partial, "jsonPath"))
        kind = next((name for name in _VALUES if name in partial), None)
        if kind is None:
            return
        if kind == "stringValue" or path in self._strings:
            if path not in self._strings:
                node = self._parent(path)
                self._strings[path] = (node, [text_in(_child(node, path[-1], ""), "place in its arguments")])
            self._strings[path][1].append(required_text(partial, "stringValue"))
            (self._unfinished.add if partial.get("willContinue") else self._unfinished.discard)(path)
            return
        node = self._parent(path)
        _child(node, path[-1], None)
        node[path[-1]] = None if kind == "nullValue" else partial[kind]

    def _parent(self, path: Path) -> Any:
        """What the place at the path is in, made where nothing is."""
        self._steps += len(path)
        if self._steps > MAX_STEPS_IN_ALL:
            raise MalformedPayload(f"takes more than {MAX_STEPS_IN_ALL:,} steps to the places of its arguments")
        node: Any = self._args
        for step, following in pairwise(path):
            node = _child(node, step, [] if isinstance(following, int) else {})
        return node

    def arguments(self) -> str:
        """The arguments as JSON text."""
        for path, (node, pieces) in self._strings.items():
            node[path[-1]] = "".join(pieces)
        return compact_json(self._args)


def _path(text: str) -> Path:
    """The steps of a JSONPath that names one place: $.name, [0] and ['name']."""
    steps: list[str | int] = []
    at = 1
    while text.startswith("$") and at < len(text) and (step := _step.match(text, at)):
        name, number, single, double = step.groups()
        quoted = single or double
        steps.append(int(number) if number else name or re.sub(r"\\(.)", r"\1", quoted or ""))
        at = step.end()
    if not steps or at < len(text) or len(steps) > MAX_STEPS:
        raise MalformedPayload("has a jsonPath that names no place in the arguments")
    return tuple(steps)


def _child(node: object, step: str | int, default: Json) -> Any:
    """What is at one step below a node; made there where nothing is."""
    if isinstance(step, str) and node is not None:
        return object_in(node, "jsonPath that contradicts an earlier one, by a place").setdefault(step, default)
    if is_list(node) and isinstance(step, int):
        return _item(node, step, default)
    raise MalformedPayload("has a jsonPath that contradicts an earlier one, by a place that is no list or has nothing")


def _item(items: list[Any], at: int, default: Json) -> Any:
    missing = at + 1 - len(items)
    if missing > MAX_GAP:
        raise MalformedPayload(f"has a jsonPath that leaves {missing - 1:,} items of a list out")
    items.extend([None] * missing)
    if items[at] is None:
        items[at] = default
    return items[at]


GEMINI = WireProtocol("gemini", GeminiDecoder, ends_with_stream=True)
"""GenerateContent responses; done at a clean end after every candidate's finish reason."""
