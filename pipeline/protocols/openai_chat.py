"""`openai-chat`: OpenAI's Chat Completions, and the dozens of servers that speak it with an accent."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

import orjson

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
    ToolCallEnd,
    ToolCallStart,
    Usage,
    WireEvent,
    WireProtocol,
    parse_arguments,
)
from rillet.operators.errors import MalformedPayload, MalformedToolArguments, ProviderError
from rillet.operators.events import DataEvent

from .payload import (
    DONE,
    check_choice,
    compact_json,
    finish_reason,
    list_in,
    load_exactly,
    object_in,
    provider_error,
    text_in,
    usage_of,
)
from .text_template import TextTemplate

# A call waits for its name and id before it is shown, but no longer than this many characters of arguments.
HELD_UNSHOWN = 65_536

# Names and ids come in pieces from some servers; no whole one is this long.
MAX_NAME = 4_096

FREE_LOOKS = 16

_object_arguments = re.compile(r'"(?:arguments|input)"\s*:\s*[\[{]')

_KNOWN_KEYS = frozenset(
    ("role", "content", "refusal", "reasoning", "reasoning_content", "reasoning_details", "tool_calls", "function_call")
)


class OpenAIChatDecoder:
    """One stream of `openai-chat`.

    Done is `[DONE]`; or a clean end once every choice that appeared has a finish reason, unless one went on speaking
    after its reason, which then means nothing. A call opens once its name, its id and the start of its arguments are
    there (servers send any of them late). It closes when the next one opens or its choice finishes, provided that its
    arguments are whole; or else at the very end, since some servers send arguments after the finish reason. A stream
    that has events, and in none of them choices, is of another dialect, whatever marker ends it.

    Args:
        extras: Emit what only some servers send beside the text (annotations, encrypted reasoning, …) as
            `ProviderEvent`.

    Source: platform.openai.com/docs/api-reference/chat-streaming, and recordings of thirty servers.
    """

    def __init__(self, extras: bool = False) -> None:
        self._extras = extras
        self._choices: dict[int, _Choice] = {}
        self._usage: dict[str, Any] | None = None
        self._failed = False
        self._is_foreign = False  # whether there was an event without choices before any choice
        self._speaker: _Choice | None = None  # whose text the template has
        self._template = TextTemplate("content")

    def decode(self, event: WireEvent, /) -> Iterable[Delta]:
        data, speaker = event.data, self._speaker
        is_error = event.__class__ is not DataEvent and event.event == "error"
        if speaker is not None and not is_error and not speaker.has_reason and (text := self._template.read(data)):
            return (TextDelta(text, speaker.number),)
        try:
            payload = orjson.loads(data)
        except orjson.JSONDecodeError:
            return self._not_json(event)
        choices = payload.get("choices")
        if choices and len(choices) == 1 and not (payload.get("usage") or "error" in payload or "x_groq" in payload):
            # The commonest event, read without detours: one choice, one piece of text, nothing else.
            choice = choices[0]
            delta = choice.get("delta")
            if delta and len(delta) == 1 and not choice.get("finish_reason") and "usage" not in choice:
                text = delta.get("content")
                known = self._choices.get(choice.get("index"))
                if text.__class__ is str and text and not is_error and known is not None and not known.has_reason:
                    known.spoke = True
                    if self._template.learn(data, text):
                        self._speaker = known
                    return (TextDelta(text, known.number),)
        return self._read(payload, event)

    def finish(self) -> Iterable[Delta]:
        if self._choices and all(choice.finished for choice in self._choices.values()):
            return self._end(by_marker=False)
        return ()

    def _not_json(self, event: WireEvent) -> Iterable[Delta]:
        data = event.data.strip()
        if data and event.event == "error":
            raise ProviderError(data)
        if data == DONE:
            if self._is_foreign and not self._choices:
                raise MalformedPayload("ends a stream in which nothing was openai-chat")
            return self._end(by_marker=True)
        if not data or data[0] == ":":  # a comment that somebody wrapped as data
            return ()
        if _object_arguments.search(data):  # they may hold a number that only the exact way can read
            return self._read(load_exactly(data), event)
        raise MalformedPayload("is not JSON")

    def _read(self, payload: dict[str, Any], event: WireEvent) -> Iterator[Delta]:
        if _object_arguments.search(event.data):
            payload = load_exactly(event.data)
        for choice in payload.get("choices") or ():
            yield from self._read_choice(choice)
        yield from self._read_usage(payload)
        if error := payload.get("error"):
            raise provider_error(error, payload)
        if event.event == "error" or payload.get("object") == "error":
            raise provider_error(payload, payload)
        if self._failed:
            raise ProviderError("the choice ended with the finish reason 'error'", type="error")
        if "choices" not in payload:
            self._is_foreign = self._is_foreign or not self._choices
        if self._extras and "choices" not in payload and "usage" not in payload:
            yield ProviderEvent(str(payload.get("object") or event.event), payload)

    def _read_choice(self, payload: dict[str, Any]) -> Iterator[Delta]:
        number = payload.get("index") or 0
        choice = self._choices.get(number)
        if choice is None:
            check_choice(number, self._choices)
            choice = self._choices[number] = _Choice(number)
        delta = payload.get("delta")
        if delta is None and not choice.spoke:
            delta = payload.get("message")
        if delta:
            yield from self._read_delta(choice, delta)
        if reason := payload.get("finish_reason"):
            self._failed = self._failed or reason == "error"
            yield from choice.end(text_in(reason, "finish_reason"), payload.get("native_finish_reason"))
        yield from self._read_usage(payload)

    def _read_delta(self, choice: _Choice, delta: dict[str, Any]) -> Iterator[Delta]:
        if reasoning := delta.get("reasoning_content") or delta.get("reasoning") or delta.get("reasoning_details"):
            yield from choice.say(ReasoningDelta, _reasoning(reasoning))
        if content := delta.get("content"):
            if type(content) is str:
                yield from choice.say(TextDelta, content)
            else:
                yield from choice.say_parts(content)
        if refusal := delta.get("refusal"):
            yield from choice.say(RefusalDelta, text_in(refusal, "refusal"))
        if calls := delta.get("tool_calls"):
            for entry in list_in(calls):
                yield from choice.call(object_in(entry, "tool call"))
        if function := delta.get("function_call"):
            yield from choice.call({"function": function})
        if self._extras:
            yield from (ProviderEvent(key, delta[key]) for key in delta if key not in _KNOWN_KEYS and delta[key])

    def _read_usage(self, payload: dict[str, Any]) -> Iterator[Usage]:
        usage = object_in(payload.get("usage") or object_in(payload.get("x_groq"), "x_groq").get("usage"), "usage")
        if usage and usage != self._usage:
            self._usage = usage
            yield usage_of(usage, "prompt_tokens", "completion_tokens", "total_tokens")

    def _end(self, *, by_marker: bool) -> Iterator[Delta]:
        for choice in self._choices.values():
            yield from choice.close(by_marker=by_marker)
        yield Done()


class _Choice:
    """One of the alternatives asked for."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.spoke = False
        self.has_reason = False
        self._refused = False
        self._raw_reason = ""
        self._reason: FinishReason = "other"
        self._given = ""  # the raw reason of the Finish that was emitted
        self._spoke_after_reason = False
        self._last: _Call | None = None
        self._open: dict[int, _Call] = {}  # by index
        self._changed: dict[int, _Call] = {}  # by index: those with new arguments since they were last looked at
        self._taken: set[int] = set()
        self._next_index = 0
        self._by_wire: dict[int, _Call] = {}
        self._by_id: dict[str, _Call] = {}

    @property
    def finished(self) -> bool:
        """Whether its finish reason can be believed."""
        return bool(self._raw_reason) and not self._spoke_after_reason

    def say(self, kind: type[TextDelta | ReasoningDelta | RefusalDelta], text: str) -> Iterator[Delta]:
        if not text:
            return
        self._speaks()
        self._refused = self._refused or kind is RefusalDelta
        yield kind(text, self.number)

    def say_parts(self, content: object) -> Iterator[Delta]:
        """Content as a list of parts, some of them reasoning."""
        for part in list_in(content):
            if type(part) is str:
                yield from self.say(TextDelta, part)
            elif part.get("type") == "thinking" or "thinking" in part:
                yield from self.say(ReasoningDelta, _reasoning(part.get("thinking")))
            else:
                yield from self.say(TextDelta, text_in(part.get("text"), "text"))

    def call(self, entry: dict[str, Any]) -> Iterator[Delta]:
        """One entry of `tool_calls`: a head, a fragment, or both."""
        is_text = bool(entry.get("custom")) and not entry.get("function")
        function = object_in(entry.get("custom" if is_text else "function"), "tool call")
        wire = entry.get("index")
        wire = wire if type(wire) is int else None
        id = text_in(entry.get("id"), "tool call id")
        name = text_in(function.get("name"), "tool name")
        args = _arguments(function.get("input") if is_text else function.get("arguments"))
        call = self._known(wire, id, name)
        if call is None or _opens_another(call, id, name, args):
            self._speaks()
            yield from self._close_whole_calls()
            call = self._open_call(wire, is_text=is_text)
        elif args:
            self._speaks()
        self._note(call, wire, id, name)
        if args:
            self._changed.setdefault(call.index, call)
        yield from call.add(args)

    def end(self, raw: str, native: object) -> Iterator[Delta]:
        """A finish reason came; `native` is the reason behind it, where a router tells both."""
        self._raw_reason = raw
        self.has_reason = True
        self._reason = finish_reason(raw)
        if type(native) is str and finish_reason(native) == "length":
            self._reason = "length"
        yield from self._close_whole_calls()
        if not self._open:
            yield from self._finish()

    def close(self, *, by_marker: bool) -> Iterator[Delta]:
        """The stream ended as it should: by its marker, or by a clean end after the reasons."""
        ended_by_itself = self._reason in ("stop", "tool_calls")
        for call in self._open.values():
            # A call cut before its arguments, or inside raw text, looks like a whole one: only the reason tells; and
            # arguments may come after that, so that without a marker nobody knows whether there were none.
            if call.shows_where_it_ends or (ended_by_itself and (by_marker or call.has_args)):
                yield from call.close()
            else:
                yield from call.show()
        yield from self._finish()

    def _finish(self) -> Iterator[Finish]:
        if self._raw_reason == self._given:
            return
        self._given = self._raw_reason
        reason = "refusal" if self._refused and self._reason == "stop" else self._reason
        yield Finish(reason, self._raw_reason, self.number)

    def _speaks(self) -> None:
        self.spoke = True
        self._spoke_after_reason = self._spoke_after_reason or bool(self._raw_reason)

    def _close_whole_calls(self) -> Iterator[Delta]:
        changed, self._changed = self._changed, {}
        for call in changed.values():
            if not call.closed and call.is_whole():
                del self._open[call.index]
                yield from call.close()

    def _known(self, wire: int | None, id: str, name: str) -> _Call | None:
        """The call an entry may belong to: by its index, by its id, or as the tail of the last one."""
        by_id = self._by_id.get(id) if id else None
        by_wire = None if wire is None else self._by_wire.get(wire)
        if by_wire is not None:
            return by_id or by_wire
        if by_id is not None:
            repeats_one_id = wire is not None and bool(name) and by_id.has_args
            return None if repeats_one_id else by_id
        return self._last if wire is None or not (id or name) else None

    def _open_call(self, wire: int | None, *, is_text: bool) -> _Call:
        index = self._next_index if wire is None or wire in self._taken else wire
        self._taken.add(index)
        self._next_index = max(self._next_index, index + 1)
        self._last = self._open[index] = _Call(index, self.number, is_text=is_text)
        return self._last

    def _note(self, call: _Call, wire: int | None, id: str, name: str) -> None:
        if wire is not None:
            self._by_wire[wire] = call
        if id and id != call.id:
            self._by_id.pop(call.id, None)
            call.id += id
            self._by_id[call.id] = call
        if name and not (call.name and call.has_args):
            call.name = name if name.startswith(call.name) else call.name + name
        if len(call.id) > MAX_NAME or len(call.name) > MAX_NAME:
            raise MalformedPayload(
                f"makes the name or id of tool call {call.index} longer than {MAX_NAME:,} characters"
            )


class _Call:
    """One tool call, from its first head or fragment on."""

    def __init__(self, index: int, choice: int, *, is_text: bool) -> None:
        self.index = index
        self.choice = choice
        self.id = ""
        self.name = ""
        self.has_args = False
        self.closed = False
        self._is_text = is_text  # a custom tool: it takes raw text, which is wrapped as {"input": text}
        self._fragments: list[str] = []
        self._length = 0
        self._shown = False
        self._checked = 0  # the length last looked at
        self._looks = 0
        self._whole = False
        self._may_be_two = True

    @property
    def shows_where_it_ends(self) -> bool:
        return self.has_args and not self._is_text

    def add(self, args: str) -> Iterator[Delta]:
        if not args:
            return
        if self.closed:
            if not args.isspace():
                raise MalformedPayload(f"goes on with tool call {self.index}, whose arguments were whole")
            return
        if self._is_text:
            args = ("" if self._fragments else '{"input":"') + json.dumps(args, ensure_ascii=False)[1:-1]
        self.has_args = self.has_args or not args.isspace()
        self._fragments.append(args)
        self._length += len(args)
        if self._shown:
            yield ToolCallDelta(self.index, args, self.choice)
        elif self.has_args and self.name and (self.id or self._length > HELD_UNSHOWN):
            yield from self.show()
        elif self._length > HELD_UNSHOWN and not self.name:
            raise MalformedPayload(f"sends {self._length:,} characters of arguments for a tool call without a name")

    def show(self) -> Iterator[Delta]:
        if self._shown:
            return
        self._shown = True
        yield ToolCallStart(self.index, self.id, self.name, self.choice)
        for fragment in self._fragments:
            yield ToolCallDelta(self.index, fragment, self.choice)

    def close(self) -> Iterator[Delta]:
        self.closed = True
        if self._is_text:
            self._fragments.append('"}' if self._fragments else '{"input":""}')
            if self._shown:
                yield ToolCallDelta(self.index, self._fragments[-1], self.choice)
        yield from self.show()
        if self.name:  # one that never got a name can't be run: it stays open, which the verdict reports
            yield ToolCallEnd(self.index, self.choice)

    def is_whole(self) -> bool:
        """Whether the arguments are one whole JSON value, so that nothing can follow."""
        if self.shows_where_it_ends and not self._whole and self._looks_worthwhile():
            self._checked = self._length
            self._looks += 1
            self._whole = self._is_json()
        return self._whole

    def _looks_worthwhile(self) -> bool:
        """Not twice at the same text; and after some tries, only at twice as much, so that all looks are linear."""
        return self._length > (self._checked if self._looks < FREE_LOOKS else 2 * self._checked)

    def _is_json(self) -> bool:
        if self._fragments[-1].rstrip()[-1:] not in '}"l':  # ends no object, string or null
            return False
        try:
            parse_arguments("".join(self._fragments))
        except MalformedToolArguments:
            return False
        return True

    def is_followed_by(self, args: str) -> bool:
        """Whether `args` begin a second call under the same name; a server that repeats names is asked once."""
        if not (self._may_be_two and args.startswith("{")):
            return False
        self._may_be_two = self.closed or self.is_whole()
        return self._may_be_two


def _opens_another(call: _Call, id: str, name: str, args: str) -> bool:
    """Whether an entry that seems to belong to `call` is the head of a new one."""
    if id and call.id and id != call.id:
        return bool(call.name) or call.has_args  # else a piece of its id
    if not name or not call.has_args:
        return False
    if call.name and name != call.name:
        return True
    return not id and call.is_followed_by(args)


def _arguments(value: object) -> str:
    if value is None:
        return ""
    return value if type(value) is str else compact_json(value)


def _reasoning(value: object) -> str:
    """The text in reasoning that is a string, an object, or a list of them; encrypted parts have none."""
    return "".join(_reasoning_part(part) for part in list_in(value))


def _reasoning_part(part: object) -> str:
    if isinstance(part, str):
        return part
    fields = object_in(part, "reasoning")
    return _reasoning(fields.get("text") or fields.get("summary") or fields.get("thinking"))


OPENAI_CHAT = WireProtocol("openai-chat", OpenAIChatDecoder)
"""Chat Completions chunks; done at `[DONE]`, or at a clean end after every choice's finish reason."""
