"""`TextTemplate`: events that differ in one string alone need be neither parsed again nor framed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

import orjson

from rillet.operators import Delta, WireEvent

# What stands in a JSON string as it is: no quotes, backslashes and control characters. Of what is skipped ASCII alone,
# since nobody looks whether the rest is UTF-8.
_VERBATIM = r'[^"\\\x00-\x1f]'
_SKIPPED = r'"[^"\\\x00-\x1f\x80-\xff]*+"'
_INSIDE = rf"{_VERBATIM}*+(?:\\[^\x00-\x1f]{_VERBATIM}*+)*+"
_TEXT = rf'(?P<text>(?!"){_INSIDE})'
_NUMBER = "(?:0|[1-9][0-9]{0,14})"
# How often it is worth learning without reading anything, how many shapes are learnt, and how long those are.
_TRIES = 8
_MAX_SHAPES = 16
_MAX_SHAPE = 1_000

_BACKSLASH = ord("\\")
_loads: Callable[[bytes], str] = orjson.loads  # of strings alone

_inside = re.compile(_INSIDE)
_digits = re.compile("[0-9]+")
_last_filler = re.compile(rf'"p"\s*:\s*({_SKIPPED})\s*\}}\Z')
_brackets = re.compile(r'"?[\]} ]*')
_layout = re.compile(
    rb"(?P<head>(?:event: ?(?P<type>[^\r\n]*)\r?\n)?data:(?P<space> ?))(?P<data>.*)(?P<blank>(?P<end>\r?\n)(?P=end))",
    re.DOTALL,
)

Make: TypeAlias = Callable[[str], Delta | None]
MakeOfBoth: TypeAlias = Callable[[str, bytes], Sequence[Delta]]


class _Value(NamedTuple):
    """A value that may differ: where it is, and what matches it."""

    start: int
    end: int
    pattern: str


class _Shape(NamedTuple):
    """What events like the one learnt are made of.

    Attributes:
        type: Their type.
        start: Their beginning, up to the first value that may differ.
        patterns: What matches each of those.
        literals: What follows each of those.
        close: What matches the end, after all of them.
    """

    type: str
    start: str
    patterns: tuple[str, ...]
    literals: tuple[str, ...]
    close: str

    def rest(self, line_end: str = "\n", blank: str = "") -> re.Pattern[bytes]:
        """What matches all that follows the start, where lines, and the event, end so."""
        literals = (re.escape(literal.replace("\n", line_end)) for literal in self.literals)
        close = self.close.replace("\\\n", re.escape(line_end)) + re.escape(blank)
        return re.compile("".join((*map(str.__add__, self.patterns, literals), close)).encode())


class TextTemplate:
    """Recognises events that are, to the letter, the event learnt last but for the value of one key.

    The next piece of text mostly comes in an event that is otherwise the same. Between the same beginning and the same
    end, the inside of a string can be nothing but that value; so the event says what the learnt one said, with another
    text. Blanks at the end may differ, and fillers may. A server whose events all differ is given up after a few tries.

    Args:
        free: The keys of strings and numbers that may differ too, since the dialect reads none of them.
    """

    __slots__ = ("_begin", "_free", "_known", "_make", "_make_of_both", "_match", "_read", "_shape", "_tries")

    def __init__(self, *free: str) -> None:
        keys = "|".join(map(re.escape, (*free, "obfuscation")))
        self._free = re.compile(rf'"(?:{keys})"\s*:\s*({_SKIPPED}|{_NUMBER})')
        self._known: set[tuple[object, ...]] = set()
        self._tries = _TRIES
        self._make: Make = _nothing
        self._make_of_both: MakeOfBoth | None = None
        self.forget()

    @property
    def is_hopeful(self) -> bool:
        """Whether it has learnt an event."""
        return self._shape is not None

    def forget(self) -> None:
        """Something came after which the same event may mean something else."""
        self._shape: _Shape | None = None
        self._read: re.Pattern[bytes] | None = None  # matches the rest of the data
        self._begin = b""
        self._match: Callable[[bytes, int], re.Match[bytes] | None] | None = None  # the rest of the bytes after that

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
                parsed event to tell.
        """
        self._make_of_both = make
        return self._learn(event, key, text, beside)

    def read(self, event: WireEvent) -> Sequence[Delta]:
        """What an event like the one learnt gives; nothing where it is not like it."""
        shape, data = self._shape, event.data
        if shape is None or not data.startswith(shape.start) or event.event != shape.type:
            return ()
        if self._read is None:
            self._read = shape.rest()
        try:
            found = self._read.fullmatch(data[len(shape.start) :].encode())
        except UnicodeEncodeError:  # half a surrogate pair
            return ()
        given = self._said(found) if found is not None else ()
        if given:
            self._tries = _TRIES
        return given

    def see(self, block: bytes) -> None:
        """Learn how the server lays an event out: from the bytes of one like the one learnt, with its blank line."""
        shape = self._shape
        layout = _layout.fullmatch(block) if shape is not None and self._match is None else None
        if shape is None or layout is None or (layout["type"] or b"message") != shape.type.encode():
            return
        line_end = layout["end"] + b"data: "
        if layout["data"].count(b"\n") != (layout["data"].count(line_end) if layout["space"] else 0):
            return
        begin = layout["head"] + shape.start.encode().replace(b"\n", line_end)
        match = shape.rest(line_end.decode(), layout["blank"].decode()).match
        if block.startswith(begin) and match(block, len(begin)):
            self._begin, self._match = begin, match

    def skim(self, data: bytes, at: int) -> tuple[list[Delta], int, int]:
        """Read events from their bytes, as long as they are like the one learnt.

        Args:
            data: The bytes.
            at: Where an event begins in them.

        Returns:
            What they give, where the first other event begins, and how many they were.
        """
        deltas: list[Delta] = []
        match, begin, make, both, count = self._match, self._begin, self._make, self._make_of_both, 0
        if match is None:
            return deltas, at, 0
        skip = len(begin)
        while data.startswith(begin, at) and (found := match(data, at + skip)):
            raw = found["text"]
            try:
                text = _loads(b'"%b"' % raw) if _BACKSLASH in raw else raw.decode()
            except ValueError:  # half a surrogate pair, or no UTF-8
                break
            if both is not None:
                given = both(text, found["beside"])
                if not given:
                    break
                deltas += given
            else:
                delta = make(text)
                if delta is None:
                    break
                deltas.append(delta)
            at = found.end()
            count += 1
        if count:
            self._tries = _TRIES
        return deltas, at, count

    def _said(self, found: re.Match[bytes]) -> Sequence[Delta]:
        """What an event gives; nothing where that can't be told."""
        raw = found["text"]
        try:
            text = _loads(b'"%b"' % raw) if _BACKSLASH in raw else raw.decode()
        except ValueError:
            return ()
        if self._make_of_both is not None:
            return self._make_of_both(text, found["beside"])
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
        if len(values) == (2 if beside else 1):
            values += self._fillers(event.data, values)
            self._shape = self._shaped(event, sorted(values))
        return self._shape is not None

    def _fillers(self, data: str, values: Sequence[_Value]) -> Iterator[_Value]:
        """What may differ although nobody reads it, beside these values."""
        for found in (*self._free.finditer(data), *_last_filler.finditer(data)):
            start, end = found.span(1)
            if all(end <= value.start or start >= value.end for value in values):
                yield _Value(start, end, _SKIPPED if found[1].startswith('"') else _NUMBER)

    def _shaped(self, event: WireEvent, values: Sequence[_Value]) -> _Shape | None:
        """The shape of an event in which these values may differ; None where it is too long, or one too many."""
        data = event.data
        literals = [data[value.end : after.start] for value, after in zip(values, values[1:], strict=False)]
        shape = _Shape(
            event.event,
            data[: values[0].start],
            tuple(value.pattern for value in values),
            (*literals, ""),
            _closed(data[values[-1].end :]),
        )
        pattern = shape[2:]
        if sum(map(len, (*literals, shape.close))) > _MAX_SHAPE:
            return None
        if pattern not in self._known and len(self._known) == _MAX_SHAPES:
            return None
        self._known.add(pattern)
        return shape


def _nothing(text: str) -> None:
    """What is made of a text before there is any."""
    del text


def _texts(data: str, key: str, text: str) -> Iterator[_Value]:
    """The inside of the string that a key has, where it is that text and no other key may be meant."""
    places = [place.end() for place in re.finditer(rf'"{key}"\s*:\s*"', data)]
    inside = _inside.match(data, places[0]) if len(places) == 1 else None
    if inside is not None and _unescaped(inside[0]) == text:
        yield _Value(*inside.span(), _TEXT)


def _numbered(data: str, key: str) -> Iterator[_Value]:
    """The value that a key has, where no other key may be meant; its numbers may differ."""
    places = [place.end() for place in re.finditer(rf'"{key}"\s*:\s*', data)]
    if len(places) == 1:
        _, end = json.JSONDecoder().raw_decode(data, places[0])
        pattern = _digits.sub(lambda _: _NUMBER, re.escape(data[places[0] : end]))
        yield _Value(places[0], end, f"(?P<beside>{pattern})")


def _unescaped(text: str) -> str:
    """What the inside of a JSON string says, "" where that is no text."""
    try:
        return str(orjson.loads(f'"{text}"'))
    except orjson.JSONDecodeError:
        return ""


def _closed(end: str) -> str:
    """What matches the part after all values."""
    if _brackets.fullmatch(end):
        return " *".join(map(re.escape, end.replace(" ", "")))
    return re.escape(end)
