"""`TextTemplate`: events that differ in one string alone need not be parsed again."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias

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

    __slots__ = ("_known", "_match", "_start", "_tries")

    def __init__(self) -> None:
        self._start = ""
        self._match: Match | None = None  # the text, and what follows it
        self._known: dict[str, Match] = {}
        self._tries = _TRIES

    def learn(self, data: str, key: str, text: str) -> bool:
        """Learn an event, which was parsed, and the text that a key has in it; whether that could be done."""
        if not self._tries or not _verbatim.fullmatch(text):
            return False
        self._tries -= 1
        head, _, rest = data.partition(f'"{key}"')
        mark = next((mark for mark in (':"', ': "') if rest.startswith(f'{mark}{text}"')), None)
        if mark is None or f'"{key}"' in rest:
            self._match = None
        else:
            self._start = f'{head}"{key}"{mark}'
            self._match = self._matcher(rest[len(mark) + len(text) :])
        return self._match is not None

    def read(self, data: str) -> str:
        """The text of an event like the one learnt; "" where it is not like it."""
        if self._match is None or not data.startswith(self._start):
            return ""
        found = self._match(data, len(self._start))
        if found is None:
            return ""
        self._tries = _TRIES
        return found[1]

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
