"""`PartialJson`: JSON text in fragments, readable at any moment, for display."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum
from math import isinf
from typing import Final, TypeAlias

from .deltas import Json
from .errors import LimitExceeded

MAX_DEPTH = 200
MAX_SIZE = 16 * 1024 * 1024
FOLD = 4096  # pieces of an open string that are kept apart: each weighs 50 bytes and more

JsonPath: TypeAlias = tuple[str | int, ...]
"""Where a value is in a document: the keys and the indices that lead to it, () for the document itself."""


class NoValue(Enum):
    """The type of `NO_VALUE`, which is no JSON value and not None, which is one."""

    NO_VALUE = "NO_VALUE"

    def __repr__(self) -> str:
        return self.value


NO_VALUE: Final = NoValue.NO_VALUE

_SPACE = " \t\n\r"
_STRUCTURE = re.compile(r"[^ \t\n\r]")
_STRING_STOP = re.compile(r'["\\\x00-\x1f]')
_PLAIN_STRING = re.compile(r'"([^"\\\x00-\x1f]*)"')
_ESCAPE = re.compile(r'\\(?:(["\\/bfnrt])|u([0-9a-fA-F]{4}))')
_ESCAPE_BEGUN = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?")
_SHORT_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_SURROGATE = re.compile("[\ud800-\udfff]")
_REPLACEMENT = "\ufffd"
_NUMBER_RUN = re.compile(r"[-+.0-9eE]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_LITERALS: dict[str, tuple[str, Json]] = {"t": ("true", True), "f": ("false", False), "n": ("null", None)}


class PartialJson:
    """One JSON document that comes in fragments; what is certain of it can be read after each of them.

    A fragment costs what it weighs. Reading `value` copies the containers that are still open, one level each, and the
    open string; finished values are shared by all snapshots, so a snapshot is to be read, not written to.

    This is for display: that a document is whole and valid, `parse_arguments` says.

    Args:
        max_depth: The deepest nesting taken, in containers; 200 by default.
        max_size: The longest text taken, in characters; 16 Mi by default, None for no limit.

    Attributes:
        broken: At which character the text stopped being JSON, counted from 0; None while it is JSON. What came before
            stays readable, what follows is ignored.

    Source: RFC 8259. What a snapshot shows for each unfinished value: docs/partial_json.md.
    """

    def __init__(self, *, max_depth: int = MAX_DEPTH, max_size: int | None = MAX_SIZE) -> None:
        self.broken: int | None = None
        self._max_depth = max_depth
        self._max_size = max_size
        self._seen = 0  # characters that were fed
        self._state: _State = PartialJson._value
        self._held = ""  # the start of an escape or of a literal; only a few characters, to be read again
        self._open: list[dict[str, Json] | list[Json]] = []  # from the outermost; each lacks the one inside it
        self._keys: list[str] = []  # the key that each of them is at, "" in a list
        self._root: Json | NoValue = NO_VALUE  # the finished document
        self._snapshot: Json | NoValue | None = NO_VALUE  # None where it is out of date
        self._stale = False
        self._string_open = False  # a value that is a string: it can be seen
        self._text = ""  # the open string, or key, as far as it was joined
        self._pieces: list[str] = []  # the rest of it; or the pieces of a number
        self._high = 0  # the first half of a surrogate pair, until its second half comes
        self._number_at = 0

    def feed(self, fragment: str) -> None:
        """Take the next fragment of the text, of any length.

        Raises:
            LimitExceeded: The text is too long or nested too deep; from then on, always. `value` stays readable.
        """
        limit = self._max_size
        if limit is not None and self._seen + len(fragment) > limit:
            self._read(fragment[: limit - self._seen])
            if self.broken is None:
                self._refuse(LimitExceeded("max_size", limit, "a JSON document"))
            return
        self._read(fragment)

    @property
    def value(self) -> Json | NoValue:
        """The document as far as it is certain, `NO_VALUE` before anything is: a snapshot that never changes."""
        if self._stale:
            self._snapshot = None  # let go of the last one first: a string that nobody holds grows in place
            self._snapshot = self._made()
            self._stale = False
        return self._snapshot

    @property
    def open_path(self) -> JsonPath | None:
        """Where in `value` the one value is that can still grow; all others are final. None where there is none."""
        if not self._open and not self._string_open:
            return None
        steps = tuple(
            key if isinstance(container, dict) else len(container)
            for container, key in zip(self._open, self._keys, strict=True)
        )
        return steps if self._string_open else steps[:-1]

    @property
    def complete(self) -> bool:
        """Whether one whole document came, and nothing but white space after it."""
        return self._root is not NO_VALUE and self.broken is None

    def _read(self, fragment: str) -> None:
        self._seen += len(fragment)
        text = self._held + fragment if self._held else fragment
        self._held = ""
        at, end = 0, len(text)
        while at < end:
            at = self._state(self, text, at)

    def _made(self) -> Json | NoValue:
        """A snapshot: copies of what is open, from the inside out."""
        value: Json | NoValue = self._root
        if self._string_open:
            value = self._joined()
        for container, key in zip(reversed(self._open), reversed(self._keys), strict=True):
            copy = container.copy()
            if value is not NO_VALUE:
                if isinstance(copy, dict):
                    copy[key] = value
                else:
                    copy.append(value)
            value = copy
        return value

    def _joined(self) -> str:
        if self._pieces:
            # CPython's += lengthens a string in place where only this variable holds it.
            text, self._text = self._text, ""
            text += "".join(self._pieces)
            self._text = text
            self._pieces.clear()
        return self._text

    # Each state reads the text from `at` and returns how far it came; there is always a character at `at`.

    def _value(self, text: str, at: int) -> int:
        """A value must come."""
        char = text[at]
        if char in _SPACE:
            return _skip(text, at)
        if char == '"':
            return self._begin_string(text, at, is_key=False)
        if char == "{":
            return self._begin(text, at, {}, PartialJson._first_key)
        if char == "[":
            return self._begin(text, at, [], PartialJson._first_item)
        if char in _LITERALS:
            return self._literal(text, at)
        if char in "-0123456789":
            self._number_at = self._offset(text, at)
            self._state = PartialJson._number
            return at
        return self._break(text, at)

    def _first_item(self, text: str, at: int) -> int:
        """A list has opened."""
        char = text[at]
        if char in _SPACE:
            return _skip(text, at)
        if char == "]":
            return self._end(at)
        return self._value(text, at)

    def _first_key(self, text: str, at: int) -> int:
        """An object has opened."""
        if text[at] == "}":
            return self._end(at)
        return self._key(text, at)

    def _key(self, text: str, at: int) -> int:
        """A key must come."""
        char = text[at]
        if char in _SPACE:
            return _skip(text, at)
        if char == '"':
            return self._begin_string(text, at, is_key=True)
        return self._break(text, at)

    def _colon(self, text: str, at: int) -> int:
        """A key has ended."""
        char = text[at]
        if char == ":":
            self._state = PartialJson._value
            return at + 1
        return _skip(text, at) if char in _SPACE else self._break(text, at)

    def _comma(self, text: str, at: int) -> int:
        """A value inside a container has ended."""
        char = text[at]
        in_object = isinstance(self._open[-1], dict)
        if char == ",":
            self._state = PartialJson._key if in_object else PartialJson._value
            return at + 1
        if char == ("}" if in_object else "]"):
            return self._end(at)
        return _skip(text, at) if char in _SPACE else self._break(text, at)

    def _after(self, text: str, at: int) -> int:
        """The document has ended."""
        return _skip(text, at) if text[at] in _SPACE else self._break(text, at)

    def _ignore(self, text: str, at: int) -> int:
        """The text is broken."""
        return len(text)

    def _begin(self, text: str, at: int, container: dict[str, Json] | list[Json], state: _State) -> int:
        if len(self._open) >= self._max_depth:
            self._refuse(LimitExceeded("max_depth", self._max_depth, "the nesting of a JSON document"))
        self._open.append(container)
        self._keys.append("")
        self._stale = True
        self._state = state
        return at + 1

    def _end(self, at: int) -> int:
        self._keys.pop()
        self._add(self._open.pop())
        return at + 1

    def _add(self, value: Json) -> None:
        """A value is whole."""
        self._stale = True
        if not self._open:
            self._root = value
            self._state = PartialJson._after
            return
        container = self._open[-1]
        if isinstance(container, dict):
            container[self._keys[-1]] = value
        else:
            container.append(value)
        self._state = PartialJson._comma

    def _literal(self, text: str, at: int) -> int:
        word, value = _LITERALS[text[at]]
        piece = text[at : at + len(word)]
        if piece == word:
            self._add(value)
            return at + len(word)
        if word.startswith(piece):
            self._held = piece
            return len(text)
        return self._break(text, at)

    def _number(self, text: str, at: int) -> int:
        """Inside a number: what follows it says that it is whole."""
        run = _NUMBER_RUN.match(text, at)
        end = run.end() if run else at
        self._pieces.append(text[at:end])
        if end == len(text):
            return end
        digits = "".join(self._pieces)
        self._pieces.clear()
        number = _number(digits)
        if number is None:
            return self._break(text, at, self._number_at)
        self._add(number)
        return end

    def _begin_string(self, text: str, at: int, *, is_key: bool) -> int:
        whole = _PLAIN_STRING.match(text, at)
        if whole and (whole[1].isascii() or not _SURROGATE.search(whole[1])):
            self._end_string(whole[1], is_key)
            return whole.end()
        self._string_open = not is_key
        self._stale = self._stale or not is_key
        self._state = PartialJson._string
        return at + 1

    def _end_string(self, text: str, is_key: bool) -> None:
        if is_key:
            self._keys[-1] = text
            self._state = PartialJson._colon
        else:
            self._add(text)

    def _string(self, text: str, at: int) -> int:
        """Inside a string or a key."""
        stop = _STRING_STOP.search(text, at)
        end = stop.start() if stop else len(text)
        if end > at:
            self._extend(text[at:end])
        if stop is None:
            return end
        if stop[0] == "\\":
            return self._escape(text, end)
        if stop[0] != '"':
            return self._break(text, end)
        self._flush_half()
        string, is_key = self._joined(), not self._string_open
        self._text, self._string_open = "", False
        self._end_string(string, is_key)
        return end + 1

    def _escape(self, text: str, at: int) -> int:
        escape = _ESCAPE.match(text, at)
        if escape is None:
            if not _ESCAPE_BEGUN.fullmatch(text, at):
                return self._break(text, at)
            self._held = text[at:]
            return len(text)
        short, digits = escape.groups()
        if short:
            self._extend(_SHORT_ESCAPES[short])
        else:
            self._extend_by_code(int(digits, 16))
        return escape.end()

    def _extend_by_code(self, code: int) -> None:
        if 0xD800 <= code < 0xDC00:
            self._flush_half()
            self._high = code
        elif self._high and 0xDC00 <= code < 0xE000:
            pair = 0x10000 + ((self._high - 0xD800) << 10) + (code - 0xDC00)
            self._high = 0
            self._extend(chr(pair))
        else:
            self._extend(chr(code))

    def _extend(self, piece: str) -> None:
        """More of the open string; half of a surrogate pair never gets out of here."""
        if self._high:
            self._flush_half()
        if not piece.isascii():
            piece = _SURROGATE.sub(_REPLACEMENT, piece)
        self._pieces.append(piece)
        if self._string_open:
            self._stale = True
        if len(self._pieces) >= FOLD:
            self._joined()

    def _flush_half(self) -> None:
        """The half that was held stays alone."""
        if self._high:
            self._high = 0
            self._extend(_REPLACEMENT)

    def _offset(self, text: str, at: int) -> int:
        return self._seen - len(text) + at

    def _break(self, text: str, at: int, offset: int | None = None) -> int:
        self.broken = self._offset(text, at) if offset is None else offset
        self._state = PartialJson._ignore
        return len(text)

    def _refuse(self, error: LimitExceeded) -> None:
        """From now on, say what limit it was."""

        def state(self: PartialJson, text: str, at: int) -> int:
            raise error

        self._state = state
        raise error


_State: TypeAlias = Callable[[PartialJson, str, int], int]


def _skip(text: str, at: int) -> int:
    """The first character from `at` that is not white space."""
    found = _STRUCTURE.search(text, at)
    return found.start() if found else len(text)


def _number(digits: str) -> int | float | None:
    """The number, None where it is none that strict JSON has: one beyond all floats, or with too many digits."""
    match = _NUMBER.fullmatch(digits)
    if match is None:
        return None
    if match.lastindex is None:
        try:
            return int(digits)
        except ValueError:  # more digits than Python converts
            return None
    number = float(digits)
    return None if isinf(number) else number
