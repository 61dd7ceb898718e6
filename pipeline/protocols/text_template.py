"""`TextTemplate`: events that differ in one string alone need not be parsed again."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias

from rillet.operators import ReasoningDelta, TextDelta

# What stands in a JSON string as it is: no quotes, backslashes, control characters and surrogates.
_VERBATIM = r'[^"\\\x00-\x1f\ud800-\udfff]'
# Fillers that some servers put last, so that an event's length does not tell that of its text.
_FILLER = re.compile(rf'"(?:obfuscation|p)":"({_VERBATIM}*)"\}}\Z')
# How often it is worth learning without reading anything, how many shapes are learnt, and how long those are.
_TRIES = 8
_MAX_SHAPES = 16
_MAX_SHAPE = 1_000

_STRING = f'"{_VERBATIM}*"'
_NUMBER = "(?:0|[1-9][0-9]{0,14})"

_never = re.compile("(?!)")
_brackets = re.compile(r'"[\]} ]*')
_verbatim = re.compile(f"{_VERBATIM}+")

Match: TypeAlias = Callable[[str, int], re.Match[str] | None]


class TextTemplate:
    """Recognises events that are, to the letter, the event learnt last but for the value of one key.

    The next piece of text mostly comes in an event that is otherwise the same. Between the same beginning and the same
    end, a string without quotes, backslashes and control characters can be nothing but that value; so the event says
    what the learnt one said, with another text. Blanks at the end may differ, and a filler may. A server whose events
    all differ is given up after a few tries.

    Args:
        free: The keys, before the text, of strings and numbers that may differ too, since the dialect reads none.
    """

    __slots__ = ("_choice", "_free", "_kind", "_known", "_match", "_start", "_tries")

    def __init__(self, *free: str) -> None:
        keys = "|".join(map(re.escape, free))
        self._free = re.compile(rf'"(?:{keys})":\s*({_STRING}|{_NUMBER})') if free else _never
        self._kind: type[TextDelta | ReasoningDelta] = TextDelta
        self._choice = 0
        self._start = ""
        self._match: Match | None = None  # the text, and what follows it
        self._known: dict[str, Match] = {}
        self._tries = _TRIES

    def learn(self, data: str, key: str, delta: TextDelta | ReasoningDelta) -> bool:
        """Learn an event, which was parsed, and the delta made of what a key has in it; whether that could be done."""
        if not self._tries or not _verbatim.fullmatch(delta.text):
            return False
        self._tries -= 1
        self._match = None
        places = [place.end() for place in re.finditer(rf'"{key}"\s*:\s*', data)]
        if len(places) == 1 and data.startswith(f'"{delta.text}"', places[0]):
            at = places[0] + 1
            self._match = self._matcher(data, at, at + len(delta.text))
            self._kind, self._choice = type(delta), delta.choice
        return self._match is not None

    def read(self, data: str) -> TextDelta | ReasoningDelta | None:
        """What an event like the one learnt gives; None where it is not like it."""
        if self._match is None or not data.startswith(self._start):
            return None
        found = self._match(data, len(self._start))
        if found is None:
            return None
        self._tries = _TRIES
        return self._kind(found[1], self._choice)

    def _matcher(self, data: str, at: int, end: int) -> Match | None:
        """What matches the text between two places and all around it that may differ; None where that is too much."""
        free = list(self._free.finditer(data, 0, at))
        start = free[0].start(1) if free else at
        self._start = data[:start]
        if len(data) - start - (end - at) > _MAX_SHAPE:
            return None
        pieces: list[str] = []
        for value in free:
            pieces += re.escape(data[start : value.start(1)]), _STRING if value[1].startswith('"') else _NUMBER
            start = value.end(1)
        shape = "".join(pieces) + re.escape(data[start:at]) + f"({_VERBATIM}+)" + _closed(data[end:])
        if shape not in self._known and len(self._known) < _MAX_SHAPES:
            self._known[shape] = re.compile(shape).fullmatch
        return self._known.get(shape)


def _closed(end: str) -> str:
    """What matches the part after the text."""
    if filler := _FILLER.search(end):
        return re.escape(end[: filler.start(1)]) + f'{_VERBATIM}*"}}'
    if _brackets.fullmatch(end):
        return " *".join(map(re.escape, end.replace(" ", "")))
    return re.escape(end)
