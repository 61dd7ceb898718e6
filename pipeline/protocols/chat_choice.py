"""`Choice`: one of the alternatives in a stream of `openai-chat`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rillet.operators import Delta, Finish, FinishReason, ReasoningDelta, RefusalDelta, TextDelta, ToolCallDelta
from rillet.operators.errors import MalformedPayload

from .chat_call import Call
from .payload import compact_json, finish_reason, list_in, object_in, text_in

# Names and ids come in pieces from some servers; no whole one is this long.
MAX_NAME = 4_096

_NONE = ("", None)


class Choice:
    """One of the alternatives asked for.

    Args:
        number: Its index.

    Attributes:
        spoke: It has said something.
        has_reason: A finish reason has come.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.spoke = False
        self.has_reason = False
        self._refused = False
        self._raw_reason = ""
        self._reason: FinishReason = "other"
        self._given = ""  # the raw reason of the Finish that was emitted
        self._spoke_after_reason = False
        self._last: Call | None = None
        self._open: dict[int, Call] = {}  # by index
        self._changed: dict[int, Call] = {}  # by index: those with new arguments since they were last looked at
        self._taken: set[int] = set()
        self._next_index = 0
        self._by_wire: dict[int, Call] = {}
        self._by_id: dict[str, Call] = {}

    @property
    def finished(self) -> bool:
        """Whether its finish reason can be believed."""
        return bool(self._raw_reason) and not self._spoke_after_reason

    def go_on(self, entry: Any) -> ToolCallDelta | None:
        """What an entry of `tool_calls` gives that is one more fragment; None where it takes `call` to tell."""
        wire, function = entry.get("index"), entry.get("function")
        if type(wire) is not int or function.__class__ is not dict or entry.get("id", "") not in _NONE:
            return None
        args = function.get("arguments")
        if type(args) is not str or not args or function.get("name", "") not in _NONE:
            return None
        return self.add(wire, args)

    def add(self, wire: int, args: str) -> ToolCallDelta | None:
        """What a fragment gives that is for the call with that index and not empty; None where it takes `call`."""
        call = self._by_wire.get(wire)
        if call is None:
            return None
        delta = call.go_on(args)
        if delta is not None:
            self._changed[call.index] = call
        return delta

    def say(self, kind: type[TextDelta | ReasoningDelta | RefusalDelta], text: str) -> Iterator[Delta]:
        """A piece of text of some kind."""
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
                yield from self.say(ReasoningDelta, reasoning_in(part.get("thinking")))
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
            self._changed[call.index] = call
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

    def _known(self, wire: int | None, id: str, name: str) -> Call | None:
        """The call an entry may belong to: by its index, by its id, or as the tail of the last one."""
        by_id = self._by_id.get(id) if id else None
        by_wire = None if wire is None else self._by_wire.get(wire)
        if by_wire is not None:
            return by_id or by_wire
        if by_id is not None:
            repeats_one_id = wire is not None and bool(name) and by_id.has_args
            return None if repeats_one_id else by_id
        return self._last if wire is None or not (id or name) else None

    def _open_call(self, wire: int | None, *, is_text: bool) -> Call:
        index = self._next_index if wire is None or wire in self._taken else wire
        self._taken.add(index)
        self._next_index = max(self._next_index, index + 1)
        self._last = self._open[index] = Call(index, self.number, is_text=is_text)
        return self._last

    def _note(self, call: Call, wire: int | None, id: str, name: str) -> None:
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


def _opens_another(call: Call, id: str, name: str, args: str) -> bool:
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


def reasoning_in(value: object) -> str:
    """The text in reasoning that is a string, an object, or a list of them; encrypted parts have none."""
    return "".join(_part(part) for part in list_in(value))


def _part(part: object) -> str:
    if isinstance(part, str):
        return part
    fields = object_in(part, "reasoning")
    return reasoning_in(fields.get("text") or fields.get("summary") or fields.get("thinking"))
