"""`TextTemplate`: events that differ in one string alone need be neither parsed again nor framed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
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
# One event, and nothing else.
_layout = re.compile(
    rb"(?P<head>(?:event: ?(?P<type>[^\r\n]*+)\r?\n)?data: ?)"
    rb"[^\r\n]*+(?:\r?\ndata: [^\r\n]*+)*+(?P<blank>(?P<end>\r?\n)(?P=end))"
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
        patterns: What matches each of those, and after the last one blanks and brackets.
        literals: What stands between two of them.
        end: What they end with. It is no part of a pattern: where it has the stream's own id, a pattern would have to
            be compiled for each stream, which takes as long as reading a hundred events.
    """

    type: str
    start: str
    patterns: tuple[str, ...]
    literals: tuple[str, ...]
    end: str

    def values(self, line_end: str = "\n", blank: str = "") -> re.Pattern[bytes]:
        """What matches all that stands between the start and the end, where lines end so, and an event without end."""
        literals = (literal.replace("\n", line_end) for literal in self.literals)
        return _compiled(self.patterns, (*literals, "" if self.end else blank))


class TextTemplate:
    """Recognises events that are, to the letter, the event learnt last but for the value of one key.

    The next piece of text mostly comes in an event that is otherwise the same. Between the same beginning and the same
    end, the inside of a string can be nothing but that value; so the event says what the learnt one said, with another
    text. Blanks at the end may differ, and fillers may. A server whose events all differ is given up after a few tries.

    Args:
        free: The keys of strings and numbers that may differ too, since the dialect reads none of them.
    """

    __slots__ = ("_begin", "_end", "_free", "_known", "_make", "_make_of_both", "_match", "_shape", "_tries", "_values")

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
        self._values: re.Pattern[bytes] | None = None  # matches the values in the data
        self._begin = self._end = b""
        self._match: Callable[[bytes, int], re.Match[bytes] | None] | None = None  # those in bytes, between the two

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
        if self._values is None:
            self._values = shape.values()
        try:
            rest = data[len(shape.start) :].encode()
        except UnicodeEncodeError:  # half a surrogate pair
            return ()
        found = self._values.match(rest)
        if found is None or rest[found.end() :] != shape.end.encode():
            return ()
        given = self._said(found)
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
        begin = layout["head"] + shape.start.encode().replace(b"\n", line_end)
        values = shape.values(line_end.decode(), layout["blank"].decode())
        found = values.match(block, len(begin)) if block.startswith(begin) else None
        end = shape.end.encode().replace(b"\n", line_end) + layout["blank"] if shape.end else b""
        if found is not None and block[found.end() :] == end:
            self._begin, self._match, self._end = begin, values.match, end

    def may_begin(self, data: bytes) -> bool:
        """Whether some bytes may be the beginning of an event like the one learnt."""
        return self._match is not None and (data.startswith(self._begin) or self._begin.startswith(data))

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
        skip, close, count = len(begin), len(end), 0
        while data.startswith(begin, at) and (found := match(data, at + skip)):
            after = found.end()
            if end and not data.startswith(end, after):
                break
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
            at = after + close
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
        if not self._tries or not text or not _is_unicode(event.data):
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
        data, end = event.data, event.data[values[-1].end :]
        literals = tuple(data[value.end : after.start] for value, after in pairwise(values))
        patterns = [value.pattern for value in values]
        if _brackets.fullmatch(end):  # some servers put blanks among them
            patterns[-1] += " *".join(map(re.escape, end.replace(" ", "")))
            end = ""
        shape = _Shape(event.event, data[: values[0].start], tuple(patterns), literals, end)
        if sum(map(len, literals)) > _MAX_SHAPE:
            return None
        if shape[2:4] not in self._known and len(self._known) == _MAX_SHAPES:
            return None
        self._known.add(shape[2:4])
        return shape


@lru_cache(maxsize=256)  # the streams of one server share their shapes
def _compiled(patterns: tuple[str, ...], literals: tuple[str, ...]) -> re.Pattern[bytes]:
    """What matches by turns a pattern and a literal."""
    return re.compile("".join(map(str.__add__, patterns, map(re.escape, literals))).encode())


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


def _is_unicode(text: str) -> bool:
    """Whether it has no half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _unescaped(text: str) -> str:
    """What the inside of a JSON string says, "" where that is no text."""
    try:
        return str(orjson.loads(f'"{text}"'))
    except orjson.JSONDecodeError:
        return ""
