"""`TextTemplate`: events that differ in one string alone need not be parsed again."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias

import orjson

from rillet.operators import Delta, WireEvent

# What stands in a JSON string as it is: no quotes, backslashes, control characters and surrogates.
_VERBATIM = r'[^"\\\x00-\x1f\ud800-\udfff]'
# Fillers that some servers put last, so that an event's length does not tell that of its text.
_FILLER = re.compile(rf'"(?:obfuscation|p)"\s*:\s*"({_VERBATIM}*)"\s*\}}\Z')
# How often it is worth learning without reading anything, how many shapes are learnt, and how long those are.
_TRIES = 8
_MAX_SHAPES = 16
_MAX_SHAPE = 1_000

_TEXT = rf"({_VERBATIM}*+(?:\\.{_VERBATIM}*+)*+)"
_STRING = f'"{_VERBATIM}*"'
_NUMBER = "(?:0|[1-9][0-9]{0,14})"

_never = re.compile("(?!)")
_brackets = re.compile(r'"[\]} ]*')
_text = re.compile(_TEXT)

Match: TypeAlias = Callable[[str, int], re.Match[str] | None]
Make: TypeAlias = Callable[[str], Delta | None]


class TextTemplate:
    """Recognises events that are, to the letter, the event learnt last but for the value of one key.

    The next piece of text mostly comes in an event that is otherwise the same. Between the same beginning and the same
    end, the inside of a string can be nothing but that value; so the event says what the learnt one said, with another
    text. Blanks at the end may differ, and a filler may. A server whose events all differ is given up after a few
    tries.

    Args:
        free: The keys, before the text, of strings and numbers that may differ too, since the dialect reads none.
    """

    __slots__ = ("_at", "_free", "_known", "_make", "_match", "_start", "_tries", "_type")

    def __init__(self, *free: str) -> None:
        keys = "|".join(map(re.escape, free))
        self._free = re.compile(rf'"(?:{keys})":\s*({_STRING}|{_NUMBER})') if free else _never
        self._type = self._start = ""
        self._at = 0
        self._make: Make = _nothing
        self._match: Match | None = None  # the text, and what follows it
        self._known: dict[str, Match] = {}
        self._tries = _TRIES

    def learn(self, event: WireEvent, key: str, text: str, make: Make) -> bool:
        """Learn an event, which was parsed, by the text that a key has in it; whether that could be done.

        Args:
            event: The event.
            key: The key of the text.
            text: What it is; not empty.
            make: Gives what the next text there means; None where it takes the parsed event to tell.
        """
        if not self._tries or not text:
            return False
        data = event.data
        self._tries -= 1
        self._match = None
        places = [place.end() for place in re.finditer(rf'"{key}"\s*:\s*"', data)]
        inside = _text.match(data, places[0]) if len(places) == 1 else None
        if inside is not None and _unescaped(inside[1]) == text:
            self._match = self._matcher(data, *inside.span(1))
            self._type, self._make = event.event, make
        return self._match is not None

    def forget(self) -> None:
        """Something came after which the same event may mean something else."""
        self._match = None

    def read(self, event: WireEvent) -> Delta | None:
        """What an event like the one learnt gives; None where it is not like it."""
        data = event.data
        if self._match is None or not data.startswith(self._start) or event.event != self._type:
            return None
        found = self._match(data, self._at)
        if found is None:
            return None
        self._tries = _TRIES
        text = _unescaped(found[1]) if "\\" in found[1] else found[1]
        return self._make(text) if text else None

    def _matcher(self, data: str, at: int, end: int) -> Match | None:
        """What matches the text between two places and all around it that may differ; None where that is too much."""
        free = list(self._free.finditer(data, 0, at))
        start = free[0].start(1) if free else at
        self._start, self._at = data[:start], start
        if len(data) - start - (end - at) > _MAX_SHAPE:
            return None
        pieces: list[str] = []
        for value in free:
            pieces += re.escape(data[start : value.start(1)]), _STRING if value[1].startswith('"') else _NUMBER
            start = value.end(1)
        shape = "".join(pieces) + re.escape(data[start:at]) + _TEXT + _closed(data[end:])
        if shape not in self._known and len(self._known) < _MAX_SHAPES:
            self._known[shape] = re.compile(shape).fullmatch
        return self._known.get(shape)


def _nothing(text: str) -> None:
    """What is made of a text before there is any."""
    del text


def _unescaped(text: str) -> str:
    """What the inside of a JSON string says, "" where that is no text."""
    try:
        return str(orjson.loads(f'"{text}"'))
    except orjson.JSONDecodeError:
        return ""


def _closed(end: str) -> str:
    """What matches the part after the text."""
    if filler := _FILLER.search(end):
        return re.escape(end[: filler.start(1)]) + f"{_VERBATIM}*" + re.escape(end[filler.end(1) :])
    if _brackets.fullmatch(end):
        return " *".join(map(re.escape, end.replace(" ", "")))
    return re.escape(end)
