"""`split_lines`: text in any pieces becomes lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from reactivex import Observable

from .errors import LimitExceeded
from .stage import BatchStage, lift

MAX_LINE = 4 * 1024 * 1024


class SplitLines(BatchStage[str, str]):
    """The stage of `split_lines`."""

    refuses = (bytes, bytearray, memoryview)

    def __init__(self, *, max_line: int | None = MAX_LINE, eof: Literal["discard", "dispatch"] = "discard") -> None:
        self.limit = float("inf") if max_line is None else max_line
        self._eof = eof
        self.pieces: list[str] = []  # the unfinished line: joined once, so that a long one costs linear time
        self.pending = 0
        self.after_cr = False

    def take(self, batch: Sequence[str]) -> tuple[Sequence[str], Exception | None]:
        found: list[str] = []
        for text in batch:
            lines, fault = self._split(text)
            found = found + lines if found else lines
            if fault is not None:
                return found, fault
        return found, None

    def finish(self) -> Iterator[str]:
        if self._eof == "dispatch" and self.pieces:
            yield "".join(self.pieces)

    def _split(self, text: str) -> tuple[list[str], LimitExceeded | None]:
        text = self.normalise(text)
        may_exceed = self.pending + len(text) > self.limit
        lines = self.cut(text)
        return self._measured(lines) if may_exceed else (lines, None)

    def normalise(self, text: str) -> str:
        """The text with LF alone as line end: a CR becomes one at once, and the LF of a cut CRLF is left out."""
        if self.after_cr and text:
            self.after_cr = False
            text = text.removeprefix("\n")
        if "\r" in text:
            self.after_cr = text.endswith("\r")
            text = text.replace("\r\n", "\n").replace("\r", "\n")
        return text

    def cut(self, text: str) -> list[str]:
        """The lines that text without CR completes; the unfinished one is kept."""
        lines = text.split("\n")
        tail = lines.pop()
        if not lines:
            if tail:
                self.pieces.append(tail)
                self.pending += len(tail)
            return lines
        if self.pieces:
            self.pieces.append(lines[0])
            lines[0] = "".join(self.pieces)
            self.pieces.clear()
        self.pending = len(tail)
        if tail:
            self.pieces.append(tail)
        return lines

    def _measured(self, lines: list[str]) -> tuple[list[str], LimitExceeded | None]:
        too_long = next((n for n, line in enumerate(lines) if len(line) > self.limit), None)
        if too_long is None and self.pending <= self.limit:
            return lines, None
        return lines[:too_long], LimitExceeded("max_line", int(self.limit), "a line")


def split_lines(
    *, max_line: int | None = MAX_LINE, eof: Literal["discard", "dispatch"] = "discard"
) -> Callable[[Observable[str]], Observable[str]]:
    r"""Split text into lines. LF, CRLF and CR end a line, and nothing else does.

    .. marble::

        ---"a\r"---"\nb"---"c\n\n"---|
        [       split_lines()        ]
        ---"a"------------"bc"-""----|

    Args:
        max_line: The longest line taken, in characters; 4 Mi by default, None for no limit.
        eof: What becomes of an unfinished last line: "discard" (the default), or "dispatch" to emit it.

    Returns:
        An operator from text to lines without their ends.

        - emits: each line the moment it ends; a CR ends it at once, and the LF of a cut CRLF is skipped later
        - holds back: the unfinished line, at most `max_line` characters and one piece of the source
        - completes: with the source
        - fails: `LimitExceeded`, the lines before it having been emitted

    Source: HTML Standard §9.2.5 (end-of-line).
    """
    return lift(lambda: SplitLines(max_line=max_line, eof=eof))
