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

    __slots__ = ("_credit", "_end", "_filler", "_marks", "_start")

    def __init__(self, key: str) -> None:
        self._marks = (f'"{key}":"', f'"{key}": "')
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
        for mark in self._marks:
            if data.count(mark) == 1:
                at = data.index(mark) + len(mark)
                if data.startswith(text + '"', at):
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
        rest = end + len(self._end)
        if rest != len(data) and not (self._filler and data.endswith('"}') and _is_verbatim(data[rest:-2])):
            return ""
        text = data[at:end]
        if not _is_verbatim(text):
            return ""
        self._credit = _CREDIT
        return text

    def _keep(self, start: str, end: str) -> None:
        self._start, self._end, self._filler = start, end, False
        for mark in _FILLERS:
            head, found, filler = end.rpartition(mark)
            if found and filler.endswith('"}') and _is_verbatim(filler[:-2]):
                self._end, self._filler = head + mark, True


def _is_verbatim(text: str) -> bool:
    """Whether JSON writes the string as it is."""
    return '"' not in text and "\\" not in text and text.isprintable()
