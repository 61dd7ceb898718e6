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
# How often it is worth learning without reading anything, how many endings are learnt, and how long they are.
_TRIES = 8
_MAX_ENDS = 16
_MAX_END = 1_000

_brackets = re.compile(r'"[\]} ]*')
_verbatim = re.compile(f"{_VERBATIM}+")

Match: TypeAlias = Callable[[str, int], re.Match[str] | None]


class TextTemplate:
    """Recognises events that are, to the letter, the event learnt last but for the value of one key.

    The next piece of text mostly comes in an event that is otherwise the same. Between the same beginning and the same
    end, a string without quotes, backslashes and control characters can be nothing but that value; so the event says
    what the learnt one said, with another text. Blanks at the end may differ, and a filler may. A server whose events
    all differ is given up after a few tries.
    """

    __slots__ = ("_choice", "_kind", "_known", "_match", "_start", "_tries")

    def __init__(self) -> None:
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
            self._start = data[:at]
            self._match = self._matcher(data[at + len(delta.text) :])
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

    def _matcher(self, end: str) -> Match | None:
        """What matches a text before such an end; None where there have been too many."""
        if len(end) > _MAX_END:
            return None
        filler = _FILLER.search(end)
        if filler:
            rest = re.escape(end[: filler.start(1)]) + f'{_VERBATIM}*"}}'
        elif _brackets.fullmatch(end):
            rest = " *".join(map(re.escape, end.replace(" ", "")))
        else:
            rest = re.escape(end)
        if rest not in self._known and len(self._known) < _MAX_ENDS:
            self._known[rest] = re.compile(f"({_VERBATIM}+){rest}").fullmatch
        return self._known.get(rest)
