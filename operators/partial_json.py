"""`PartialJson`: JSON text in fragments, readable at any moment, for display."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from enum import Enum
from math import isinf
from typing import Final, TypeAlias, cast

import orjson

from .deltas import Json
from .errors import LimitExceeded

MAX_DEPTH = 200
MAX_SIZE = 16 * 1024 * 1024

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
_PLAIN = r'[^"\\\x00-\x1f]*+'
_ESCAPE = r'\\(?:["\\/bfnrt]|u(?:[0-9a-ce-fA-CE-F][0-9a-fA-F]|[dD][0-7])[0-9a-fA-F]{2})'  # but those of surrogates
_RUN = re.compile(rf"{_PLAIN}(?:{_ESCAPE}{_PLAIN})*+")
_WHOLE_STRING = re.compile(rf'"({_RUN.pattern})"')
_SURROGATE_ESCAPE = re.compile(r"\\u([dD][89a-fA-F][0-9a-fA-F]{2})")
_ESCAPE_BEGUN = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?")
_SURROGATE = re.compile("[\ud800-\udfff]")
_REPLACEMENT = "\ufffd"
_NUMBER_RUN = re.compile(r"[-+.0-9eE]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_LITERALS: dict[str, tuple[str, Json]] = {"t": ("true", True), "f": ("false", False), "n": ("null", None)}


class _Open:
    """A container that is still open; it lacks the one that is open inside it."""

    __slots__ = ("container", "depth", "key", "outer")

    def __init__(self, container: dict[str, Json] | list[Json], outer: _Open | None) -> None:
        self.container = container
        self.key = ""  # where an object is at
        self.outer = outer
        self.depth: int = 1 if outer is None else outer.depth + 1


class PartialJson:
    """One JSON document that comes in fragments; what is certain of it can be read after each of them.

    A fragment costs what it weighs. Reading `value` copies the containers that are still open, one level each, and the
    open string where the snapshot before is still held by somebody. Finished values are shared by all snapshots, so a
    snapshot is to be read, not written to.

    This is for display: that a document is whole and valid, `parse_arguments` says.

    Args:
        max_depth: The deepest nesting taken, in containers; 200 by default.
        max_size: The longest text taken, in characters; 16 Mi by default, None for no limit.

    Attributes:
        broken: At which character the text stopped being JSON, counted from 0; None while it is JSON. What came before
            stays readable, what follows is ignored.
        changed: Whether `value` has become another one since it was last read.

    Source: RFC 8259. What a snapshot shows for each unfinished value: docs/partial_json.md.
    """

    def __init__(self, *, max_depth: int = MAX_DEPTH, max_size: int | None = MAX_SIZE) -> None:
        self.broken: int | None = None
        self.changed = False
        self._max_depth = max_depth
        self._max_size = sys.maxsize if max_size is None else max_size
        self._room = self._max_size  # how many more characters are taken
        self._state: _State = PartialJson._value
        self._held = ""  # the start of an escape or of a literal: a few characters, to be read again
        self._inner: _Open | None = None  # the innermost open container
        self._root: Json | NoValue = NO_VALUE  # the finished document
        self._snapshot: Json | NoValue = NO_VALUE  # let go of at each change, so that nobody holds the open string
        self._string_open = False  # a string that is a value; a key is none
        self._text = ""  # the open string, key or number, as far as it came
        self._high = 0  # the first half of a surrogate pair, until the second half comes
        self._flows = False  # inside a string that is a value, with nothing held
        self._number_at = 0

    def feed(self, fragment: str) -> None:
        """Take the next fragment of the text, of any length.

        Raises:
            LimitExceeded: The text is too long or nested too deep; from then on, always. `value` stays readable.
        """
        room = self._room - len(fragment)
        if room < 0:
            self._overflow(fragment)
            return
        self._room = room
        if (  # a short way for most of what comes: the middle of a string, with nothing special in it
            self._flows
            and fragment.isprintable()  # neither control characters nor surrogates
            and '"' not in fragment
            and "\\" not in fragment
            and fragment
        ):
            self.changed, self._snapshot = True, None
            text, self._text = self._text, ""
            text += fragment  # in place, where only this variable holds the string: CPython sees to it
            self._text = text
            return
        self._read(fragment)

    @property
    def value(self) -> Json | NoValue:
        """The document as far as it is certain, `NO_VALUE` before anything is: a snapshot that never changes."""
        if self.changed:
            self._snapshot = self._made()
            self.changed = False
        return self._snapshot

    @property
    def open_path(self) -> JsonPath | None:
        """Where in `value` the one value is that can still grow; all others are final. None where none can."""
        if self._inner is None:
            return () if self._string_open else None
        steps: list[str | int] = []
        level = self._inner if self._string_open else self._inner.outer
        while level is not None:
            steps.append(level.key if isinstance(level.container, dict) else len(level.container))
            level = level.outer
        return tuple(reversed(steps))

    @property
    def complete(self) -> bool:
        """Whether one whole document came, and nothing but white space after it."""
        return self._root is not NO_VALUE and self.broken is None

    def _made(self) -> Json | NoValue:
        """A snapshot: copies of what is open, from the inside out."""
        value: Json | NoValue = self._text if self._string_open else self._root
        level = self._inner
        while level is not None:
            copy = level.container.copy()
            if value is NO_VALUE:
                pass  # the innermost container has nothing open inside it
            elif isinstance(copy, dict):
                copy[level.key] = value
            else:
                copy.append(value)
            value = copy
            level = level.outer
        return value

    def _touch(self) -> None:
        self.changed, self._snapshot = True, None

    def _overflow(self, fragment: str) -> None:
        """Take what there is room for; from then on, say what limit it was."""
        taken, self._room = fragment[: self._room], 0
        self._read(taken)
        if self.broken is None:
            self._refuse(LimitExceeded("max_size", self._max_size, "a JSON document"))

    def _read(self, fragment: str) -> None:
        text = self._held + fragment if self._held else fragment
        self._held, self._flows = "", False
        at, end = 0, len(text)
        while at < end:
            at = self._state(self, text, at)
        self._flows = self._string_open and not (self._held or self._high) and self.broken is None

    # Each state reads the text from `at` and returns how far it came; there is always a character at `at`.

    def _value(self, text: str, at: int) -> int:
        """A value must come."""
        char = text[at]
        if char in _SPACE:
            return _skip(text, at)
        if char == '"':
            return self._begin_string(text, at, is_key=False)
        if char == "{":
            return self._begin({}, at, PartialJson._first_key)
        if char == "[":
            return self._begin([], at, PartialJson._first_item)
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
        in_object = self._inner is not None and isinstance(self._inner.container, dict)
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

    def _begin(self, container: dict[str, Json] | list[Json], at: int, state: _State) -> int:
        inner = _Open(container, self._inner)
        if inner.depth > self._max_depth:
            self._refuse(LimitExceeded("max_depth", self._max_depth, "the nesting of a JSON document"))
        self._inner = inner
        self._touch()
        self._state = state
        return at + 1

    def _end(self, at: int) -> int:
        if self._inner is not None:
            container, self._inner = self._inner.container, self._inner.outer
            self._add(container)
        return at + 1

    def _add(self, value: Json) -> None:
        """A value is whole."""
        self._touch()
        if self._inner is None:
            self._root = value
            self._state = PartialJson._after
            return
        container = self._inner.container
        if isinstance(container, dict):
            container[self._inner.key] = value
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
        self._grow(text[at:end])
        if end == len(text):
            return end
        number = _number(self._taken())
        if number is None:
            return self._break(text, at, self._number_at)
        self._add(number)
        return end

    def _begin_string(self, text: str, at: int, *, is_key: bool) -> int:
        whole = _WHOLE_STRING.match(text, at)
        if whole:
            self._end_string(_unescaped(whole[1]), is_key)
            return whole.end()
        self._state = PartialJson._string
        if not is_key:
            self._string_open = True
            self._touch()
        return at + 1

    def _end_string(self, string: str, is_key: bool) -> None:
        if not is_key:
            self._add(string)
        elif self._inner is not None:
            self._inner.key = string
            self._state = PartialJson._colon

    def _string(self, text: str, at: int) -> int:
        """Inside a string or a key."""
        run = _RUN.match(text, at)
        end = run.end() if run else at
        if end > at:
            self._extend(_unescaped(text[at:end]))
        if end == len(text):
            return end
        if text[end] == "\\":
            return self._escape(text, end)
        if text[end] != '"':
            return self._break(text, end)
        self._flush_half()
        is_key, self._string_open = not self._string_open, False
        self._end_string(self._taken(), is_key)
        return end + 1

    def _escape(self, text: str, at: int) -> int:
        """Half of a surrogate pair, an escape that is cut, or none."""
        escape = _SURROGATE_ESCAPE.match(text, at)
        if escape:
            self._extend_by_half(int(escape[1], 16))
            return escape.end()
        if _ESCAPE_BEGUN.fullmatch(text, at):
            self._held = text[at:]
            return len(text)
        return self._break(text, at)

    def _extend_by_half(self, code: int) -> None:
        if code < 0xDC00:
            self._flush_half()
            self._high = code
        elif self._high:
            pair = 0x10000 + ((self._high - 0xD800) << 10) + (code - 0xDC00)
            self._high = 0
            self._grow(chr(pair))
        else:
            self._grow(_REPLACEMENT)

    def _extend(self, piece: str) -> None:
        """More of the open string or key."""
        if self._high:
            self._flush_half()
        self._grow(piece)

    def _flush_half(self) -> None:
        """The half that was held stays alone, and never gets out of here."""
        if self._high:
            self._high = 0
            self._grow(_REPLACEMENT)

    def _grow(self, piece: str) -> None:
        if self._string_open:
            self.changed, self._snapshot = True, None
        text, self._text = self._text, ""
        text += piece  # in place, as in feed
        self._text = text

    def _taken(self) -> str:
        text, self._text = self._text, ""
        return text

    def _offset(self, text: str, at: int) -> int:
        return self._max_size - self._room - len(text) + at

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


def _unescaped(run: str) -> str:
    """What a run of characters and whole escapes stands for."""
    if not run.isascii():
        run = _SURROGATE.sub(_REPLACEMENT, run)
    return cast("str", orjson.loads(f'"{run}"')) if "\\" in run else run


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
