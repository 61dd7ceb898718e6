"""`TextTemplate`: events that differ in one string alone need be neither parsed again nor framed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import orjson

from rillet.operators import Delta, WireEvent
from rillet.operators.decode_deltas import Template

# What stands in a JSON string as it is: no quotes, backslashes and control characters. Of what is skipped printable
# ASCII alone, since nobody looks whether the rest is UTF-8.
_VERBATIM = r'[^"\\\x00-\x1f]'
_SKIPPED = r'"[ !#-\[\]-~]*+"'
_INSIDE = rf"{_VERBATIM}*+(?:\\[^\x00-\x1f]{_VERBATIM}*+)*+"
_TEXT = rf'((?!"){_INSIDE})'
_NUMBER = "(?:0|[1-9][0-9]{0,14})"
# How often it is worth learning without reading anything, or looking at bytes without seeing how they are laid out; how
# many shapes are learnt, and how long and deep those are.
_TRIES = 8
_MAX_SHAPES = 16
_MAX_SHAPE = 1_000
_MAX_DEPTH = 32

_BACKSLASH = ord("\\")
_loads: Callable[[bytes], str] = orjson.loads  # of strings alone

_inside = re.compile(_INSIDE)
_digits = re.compile("[0-9]+")
# What looks as if each stream had its own is compared, not compiled: that takes as long as reading a hundred events.
_looks_own = re.compile(r'"id"|[0-9]{8}')
_escape = re.compile(r"\\[^/]")
_no_integer = re.compile(r"[0-9][.eE]|\\|\n")
# Fillers, which some servers add so that an event's length does not tell that of its text: this one is the last key,
# "obfuscation" may stand anywhere.
_last_filler = re.compile(rf'"p"\s*:\s*({_SKIPPED})\s*\}}\Z')
_brackets = re.compile(r'"?[\]} ]*')
# `see` is given whole chunks, too, and the rest of events: this takes one event alone, and of the fields its data.
_layout = re.compile(
    rb"(?P<head>(?:event: ?(?P<type>[^\r\n]*+)\r?\n)?data: ?)"
    rb"[^\r\n]*+(?:\r?\ndata: [^\r\n]*+)*+(?P<blank>(?P<end>\r?\n)(?P=end))"
)

Match: TypeAlias = Callable[[bytes, int], re.Match[bytes] | None]
Make: TypeAlias = Callable[[str], Delta | None]
MakeOfBoth: TypeAlias = Callable[[str, bytes], Sequence[Delta]]


class _Value(NamedTuple):
    """A value that may differ: where it is, what matches it, and whether it is needed."""

    start: int
    end: int
    pattern: str
    is_needed: bool = False


class _Step(NamedTuple):
    """A part of an event: what matches values that may differ, and what stands after those."""

    pattern: str
    literal: str

    def laid_out(self, line_end: str = "\n", blank: str = "") -> tuple[Match, bytes]:
        """The same for bytes in which lines end so, and the step with a blank line."""
        pattern, literal = self.pattern.replace("\\\n", re.escape(line_end)), self.literal.replace("\n", line_end)
        if literal:
            return _compiled(pattern).match, (literal + blank).encode()
        return _compiled(pattern + re.escape(blank)).match, b""


class _Shape(NamedTuple):
    """What events like the one learnt are made of.

    Attributes:
        type: Their type.
        start: Their beginning, up to the first value that may differ.
        steps: What follows; the first has the values that are needed.
    """

    type: str
    start: str
    steps: tuple[_Step, ...]


@lru_cache(maxsize=256)  # the streams of one server share their shapes
def _compiled(pattern: str) -> re.Pattern[bytes]:
    return re.compile(pattern.encode())


def _passed(steps: Sequence[tuple[Match, bytes]], data: bytes, at: int) -> int:
    """Where the last of some steps ends, -1 where one is not found."""
    for match, literal in steps:
        found = match(data, at)
        if found is None or not data.startswith(literal, found.end()):
            return -1
        at = found.end() + len(literal)
    return at


class TextTemplate(Template):
    """Recognises events that are, to the letter, the event learnt last but for the value of one key.

    The next piece of text mostly comes in an event that is otherwise the same. Between the same beginning and the same
    end, the inside of a string can be nothing but that value; so the event says what the learnt one said, with another
    text. Blanks at the end may differ, and fillers may. A server whose events all differ is given up after a few tries.

    Args:
        free: The keys of strings and numbers that may differ too, since the dialect reads none of them.
    """

    __slots__ = (
        *("_begin", "_beside_group", "_end", "_free", "_known", "_make", "_make_of_both"),
        *("_match", "_more", "_shape", "_steps", "_text_group", "_tries", "_unseen"),
    )

    def __init__(self, *free: str) -> None:
        keys = "|".join(map(re.escape, (*free, "obfuscation")))
        self._free = re.compile(rf'"(?:{keys})"\s*:\s*({_SKIPPED}|{_NUMBER}(?![0-9.eE]))')
        self._known: set[tuple[str, ...]] = set()
        self._tries = _TRIES
        self._unseen = 0
        self._make: Make = _nothing
        self._make_of_both: MakeOfBoth | None = None
        self._text_group, self._beside_group = 1, 2  # in the patterns; a name would be looked up for each event
        self.forget()

    @property
    def is_hopeful(self) -> bool:
        """Whether it has learnt an event, and how that is laid out is known or may still be seen."""
        return self._shape is not None and self._unseen < _TRIES

    def forget(self) -> None:
        """Something came after which the same event may mean something else."""
        self._shape: _Shape | None = None
        self._steps: Sequence[tuple[Match, bytes]] = ()  # those of its data
        # How an event is laid out in bytes, once that is known: its beginning, its first step, and more of them.
        self._begin = self._end = b""
        self._match: Match | None = None
        self._more: Sequence[tuple[Match, bytes]] = ()

    def learn(self, event: WireEvent, key: str, text: str, make: Make) -> bool:
        """Learn an event, which was parsed, by the text that a key has in it; whether that could be done.

        Args:
            event: The event.
            key: The key of the text.
            text: What it is; not empty.
            make: Gives what the next text there means; None where it takes the parsed event to tell.
        """
        self._make, self._make_of_both = make, None
        return self._learn(event, key, text, "")

    def learn_both(self, event: WireEvent, key: str, text: str, beside: str, make: MakeOfBoth) -> bool:
        """The same where a second value differs from event to event.

        Args:
            event: The event.
            key: The key of the text.
            text: What it is; not empty.
            beside: The key of the other value, in which numbers differ.
            make: Gives what the next text means beside such a value, which it gets as JSON; nothing where it takes the
                parsed event to tell. It raises nothing.
        """
        self._make_of_both = make
        return self._learn(event, key, text, beside)

    def read(self, event: WireEvent) -> Sequence[Delta]:
        """What an event like the one learnt gives; nothing where it is not like it."""
        shape, data = self._shape, event.data
        if shape is None or not data.startswith(shape.start) or event.event != shape.type:
            return ()
        try:
            rest = data[len(shape.start) :].encode()
        except UnicodeEncodeError:  # half a surrogate pair
            return ()
        if not self._steps:
            self._steps = [step.laid_out() for step in shape.steps]
        (match, literal), *more = self._steps
        found = match(rest, 0)
        if found is None or not rest.startswith(literal, found.end()):
            return ()
        if _passed(more, rest, found.end() + len(literal)) != len(rest):
            return ()
        given = self._said(found)
        if given:
            self._tries = _TRIES
        return given

    def see(self, block: bytes) -> None:
        """Learn how the server lays an event out: from the bytes of one like the one learnt, with its blank line."""
        shape = self._shape
        if shape is None or self._match is not None or self._unseen == _TRIES:
            return
        if not block.endswith(b"\r"):  # its line feed is in the next chunk: another event will show it
            self._unseen += 1
        layout = _layout.fullmatch(block)
        if layout is None or (layout["type"] or b"message") != shape.type.encode():
            return
        line_end = (layout["end"] + b"data: ").decode()
        begin = layout["head"] + shape.start.replace("\n", line_end).encode()
        *steps, last = shape.steps
        laid_out = [*(step.laid_out(line_end) for step in steps), last.laid_out(line_end, layout["blank"].decode())]
        if block.startswith(begin) and _passed(laid_out, block, len(begin)) == len(block):
            self._begin, self._more = begin, laid_out[1:]
            self._match, self._end = laid_out[0]
            self._unseen = 0

    def may_begin(self, data: bytes) -> bool:
        """Whether some bytes may be the beginning of an event like the one learnt, or of one that shows its layout."""
        if self._match is None:
            return self.is_hopeful and data.startswith((b"data:"[: len(data)], b"event:"[: len(data)]))
        return data.startswith(self._begin) or self._begin.startswith(data)

    def skim(self, data: bytes, at: int) -> tuple[list[Delta], int, int]:
        """Read events from their bytes, as long as they are like the one learnt.

        Args:
            data: The bytes.
            at: Where an event begins in them.

        Returns:
            What they give, where the first other event begins, and how many they were.
        """
        deltas: list[Delta] = []
        match, begin, end, make, both = self._match, self._begin, self._end, self._make, self._make_of_both
        if match is None:
            return deltas, at, 0
        skip, more, text_group, count = len(begin), self._more, self._text_group, 0
        while data.startswith(begin, at) and (found := match(data, at + skip)):
            after = found.end()
            if end:
                if not data.startswith(end, after):
                    break
                after += len(end)
            if more and (after := _passed(more, data, after)) < 0:
                break
            raw = found[text_group]  # from here on as `_said`, a call of which would take a seventh more
            try:
                text = _loads(b'"%b"' % raw) if _BACKSLASH in raw else raw.decode()
            except ValueError:  # half a surrogate pair, or no UTF-8
                break
            if both is not None:
                given = both(text, found[self._beside_group])
                if not given:
                    break
                deltas += given
            else:
                delta = make(text)
                if delta is None:
                    break
                deltas.append(delta)
            at = after
            count += 1
        if count:
            self._tries = _TRIES
        return deltas, at, count

    def _said(self, found: re.Match[bytes]) -> Sequence[Delta]:
        """What an event gives; nothing where that can't be told."""
        raw = found[self._text_group]
        try:
            text = _loads(b'"%b"' % raw) if _BACKSLASH in raw else raw.decode()
        except ValueError:
            return ()
        if self._make_of_both is not None:
            return self._make_of_both(text, found[self._beside_group])
        delta = self._make(text)
        return () if delta is None else (delta,)

    def _learn(self, event: WireEvent, key: str, text: str, beside: str) -> bool:
        self.forget()
        if not self._tries or not text:
            return False
        self._tries -= 1
        values = list(_texts(event.data, key, text))
        if beside:
            values += _numbered(event.data, beside)
        if len(values) == (2 if beside else 1) and _is_plain(event.data, values[0]):
            self._text_group, self._beside_group = (1, 2) if values[0] == min(values) else (2, 1)
            self._shape = self._shaped(event, sorted([*values, *self._fillers(event.data, values)]))
        return self._shape is not None

    def _fillers(self, data: str, values: Sequence[_Value]) -> Iterator[_Value]:
        """What may differ although nobody reads it, beside these values."""
        for found in (*self._free.finditer(data), *_last_filler.finditer(data)):
            start, end = found.span(1)
            if all(end <= value.start or start >= value.end for value in values):
                yield _Value(start, end, _SKIPPED if found[1].startswith('"') else _NUMBER)

    def _shaped(self, event: WireEvent, values: Sequence[_Value]) -> _Shape | None:
        """The shape of an event in which these values may differ; None where it is too long, or one too many."""
        steps = tuple(_steps(event.data, values))
        patterns = tuple(step.pattern for step in steps)
        if sum(map(len, patterns)) > _MAX_SHAPE or (patterns not in self._known and len(self._known) == _MAX_SHAPES):
            return None
        self._known.add(patterns)
        return _Shape(event.event, event.data[: values[0].start], steps)


def _steps(data: str, values: Sequence[_Value]) -> Iterator[_Step]:
    """The values and what stands after each, in as few steps as may be."""
    ends = [*(after.start for after in values[1:]), len(data)]
    needed = sum(value.is_needed for value in values)
    pattern = ""
    for value, end in zip(values, ends, strict=True):
        pattern += value.pattern
        needed -= value.is_needed
        literal = data[value.end : end]
        if end == len(data) and _brackets.fullmatch(literal):  # some servers put blanks among them
            pattern += " *".join(map(re.escape, literal.replace(" ", "")))
            literal = ""
        if end == len(data) or (not needed and _looks_own.search(literal)):
            yield _Step(pattern, literal)
            pattern = ""
        else:
            pattern += re.escape(literal)


def _nothing(text: str) -> None:
    """What is made of a text before there is any."""
    del text


def _texts(data: str, key: str, text: str) -> Iterator[_Value]:
    """The inside of the string that a key has, where it is that text and no other key may be meant."""
    places = [place.end() for place in re.finditer(rf'"{key}"\s*:\s*"', data)]
    inside = _inside.match(data, places[0]) if len(places) == 1 else None
    if inside is not None and _unescaped(inside[0]) == text:
        yield _Value(*inside.span(), _TEXT, is_needed=True)


def _numbered(data: str, key: str) -> Iterator[_Value]:
    """The value that a key has, where no other key may be meant; its numbers, all of them integers, may differ."""
    places = [place.end() for place in re.finditer(rf'"{key}"\s*:\s*', data)]
    if len(places) != 1:
        return
    start = data[places[0] : places[0] + _MAX_SHAPE]
    if start.count("[") + start.count("{") > _MAX_DEPTH:
        return
    try:
        _, end = json.JSONDecoder().raw_decode(start)
    except json.JSONDecodeError:  # it goes on
        return
    if not _no_integer.search(start, 0, end):  # nor on several lines, between which bytes have more than the data has
        pattern = _digits.sub(lambda _: _NUMBER, re.escape(start[:end]))
        yield _Value(places[0], places[0] + end, f"({pattern})", is_needed=True)


def _is_plain(data: str, text: _Value) -> bool:
    """Whether no key can be written in another way: outside of the text, nothing is escaped but slashes."""
    return not _escape.search(data, 0, text.start) and not _escape.search(data, text.end)


def _unescaped(text: str) -> str:
    """What the inside of a JSON string says, "" where that is no text."""
    try:
        return str(orjson.loads(f'"{text}"'))
    except orjson.JSONDecodeError:
        return ""
