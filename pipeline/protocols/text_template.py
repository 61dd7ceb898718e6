"""`TextTemplate`: events that differ in one string alone need not be parsed again."""

from __future__ import annotations

# Fillers that some servers put last, so that an event's length does not tell that of its text.
_FILLERS = ('"obfuscation":"', '"p":"')
_CREDIT = 8


class TextTemplate:
    """Recognises events that are, to the letter, the event learnt last but for the value of one key.

    The next piece of text mostly comes in an event that is otherwise the same. Between the same beginning and the same
    end, a string without quotes, backslashes and control characters can be nothing but that value; so the event says
    what the learnt one said, with another text. A server whose events all differ is given up after a few tries.

    Args:
        key: The key of the text.
    """

    __slots__ = ("_credit", "_end", "_filler", "_key", "_start")

    def __init__(self, key: str) -> None:
        self._key = f'"{key}"'
        self._start = ""
        self._end = ""  # from the quote that closes the text on
        self._filler = False  # whether a filler follows that end, which may differ
        self._credit = _CREDIT

    def learn(self, data: str, text: str) -> bool:
        """Learn an event, which was parsed, and its text; whether that could be done."""
        if not self._credit or not _is_verbatim(text):
            return False
        self._credit -= 1
        self._start = ""
        if data.count(self._key) == 1:
            at = data.index(self._key) + len(self._key)
            at += next((len(mark) for mark in (':"', ': "') if data.startswith(mark, at)), 0)
            if data[at - 1] == '"' and data.startswith(text + '"', at):
                self._keep(data[:at], data[at + len(text) :])
        return bool(self._start)

    def read(self, data: str) -> str:
        """The text of an event like the one learnt; "" where it is not like it."""
        if not self._start or not data.startswith(self._start):
            return ""
        at = len(self._start)
        end = data.find('"', at)
        if not data.startswith(self._end, end):
            return ""
        if not self._ends_at(data, end + len(self._end)):
            return ""
        text = data[at:end]
        if not _is_verbatim(text):
            return ""
        self._credit = _CREDIT
        return text

    def _ends_at(self, data: str, rest: int) -> bool:
        """Whether nothing but a filler, where there is one, follows what was learnt."""
        if not self._filler:
            return rest == len(data)
        return rest + 2 <= len(data) and data.endswith('"}') and _is_verbatim(data[rest:-2])

    def _keep(self, start: str, end: str) -> None:
        self._start, self._end, self._filler = start, end, False
        for mark in _FILLERS:
            head, found, filler = end.rpartition(mark)
            if found and filler.endswith('"}') and _is_verbatim(filler[:-2]):
                self._end, self._filler = head + mark, True


def _is_verbatim(text: str) -> bool:
    """Whether JSON writes the string as it is."""
    return '"' not in text and "\\" not in text and text.isprintable()
