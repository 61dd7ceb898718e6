"""`recorder`: the raw bytes of a stream in a file, with their cuts and times; `Recording` reads them back.

A recording is a text file, one JSON object a line. First the header; then each piece as it came, as text where it is
whole UTF-8 and in base 64 where it is not; last how it ended. `t` counts seconds from the subscription:

    {"rillet":"recording","version":1,"content_type":"text/event-stream"}
    {"t":0.412,"text":"data: {\\"choices\\":…}\\n\\nda"}
    {"t":0.434,"b64":"dGE6IMM="}
    {"t":0.51,"end":"failed","error":"truncated_stream"}

The ends are those of `Recording.end`; a file without one was cut short, and what is whole in it counts.
"""

from __future__ import annotations

import os
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping
from math import inf
from pathlib import Path
from threading import Lock
from time import perf_counter
from typing import Literal, TypeAlias, cast, get_args

import orjson
from reactivex import Observable

from rillet.operators.errors import HttpStatusError
from rillet.operators.value import value

from .watch import Ending, Watch, error_kind, report, watched

VERSION = 1

RecordedEnd: TypeAlias = Literal["complete", "failed", "left", "cut"]
"""How a recorded stream ended; see `Recording`."""

_NO_HEADER: Mapping[str, object] = {}
_ENDS: Mapping[Ending, RecordedEnd] = {"completed": "complete", "failed": "failed", "disposed": "left"}


@value
class Piece:
    """What came at once. `seconds` counts from the subscription."""

    seconds: float
    data: bytes


@value
class Recording:
    """What a `recorder` has written.

    Attributes:
        pieces: The bytes, in the pieces they came in.
        end: "complete": the body ended properly. "failed": see `error_kind`. "left": its reader left first, as the
            standard chain does at `Done`. "cut": the file says nothing of an end: whoever wrote it was stopped.
        seconds: When it ended, counted from the subscription; None where it was cut.
        error_kind: The `kind` of the error it failed with, None where it did not fail.
        status: The HTTP status where the error was one, else None.
        content_type: The content type of the body.
    """

    pieces: tuple[Piece, ...] = ()
    end: RecordedEnd = "cut"
    seconds: float | None = None
    error_kind: str | None = None
    status: int | None = None
    content_type: str = "text/event-stream"

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Recording:
        """Read a recording.

        Raises:
            OSError: The file can't be read.
            ValueError: It is no recording; the message names the line.
        """
        return cls.parse(Path(path).read_bytes())

    @classmethod
    def parse(cls, content: bytes) -> Recording:
        """Read the content of a recording; `ValueError` where it is none."""
        lines = _objects(content)
        header = next((line for _, line in lines), _NO_HEADER)
        if header.get("rillet") != "recording" or header.get("version") != VERSION:
            raise ValueError(f"line 1 is not the header of a recording of version {VERSION}")
        content_type = header.get("content_type")
        if not isinstance(content_type, str) or not content_type.isprintable():
            raise ValueError("line 1 has no content_type")
        pieces: list[Piece] = []
        for number, line in lines:
            if "end" in line:
                return _ended(number, line, tuple(pieces), content_type)
            pieces.append(_piece(number, line))
        return Recording(tuple(pieces), content_type=content_type)


def is_recording(head: bytes) -> bool:
    """Whether content that begins so is a recording's."""
    try:
        return any(line.get("rillet") == "recording" for _, line in _objects(head.partition(b"\n")[0]))
    except ValueError:
        return False


def _objects(content: bytes) -> Iterator[tuple[int, Mapping[str, object]]]:
    """The lines with their numbers; a last one that is not whole is left out."""
    lines = content.split(b"\n")
    for number, line in enumerate(lines, 1):
        try:
            found: object = orjson.loads(line)
        except orjson.JSONDecodeError:
            if number == len(lines):
                return
            raise ValueError(f"line {number} is not JSON") from None
        if not isinstance(found, dict):
            raise ValueError(f"line {number} is not a JSON object")
        yield number, cast("dict[str, object]", found)


def _piece(number: int, line: Mapping[str, object]) -> Piece:
    match line:
        case {"text": str(text)}:
            return Piece(_seconds(number, line), text.encode())
        case {"b64": str(code)}:
            try:
                return Piece(_seconds(number, line), b64decode(code, validate=True))
            except ValueError:
                raise ValueError(f"line {number} is not base 64") from None
        case _:
            raise ValueError(f"line {number} is neither a piece nor an end")


def _ended(number: int, line: Mapping[str, object], pieces: tuple[Piece, ...], content_type: str) -> Recording:
    end, kind = line["end"], line.get("error")
    if end not in get_args(RecordedEnd):
        raise ValueError(f"line {number} tells of no end that there is")
    return Recording(
        pieces,
        cast("RecordedEnd", end),
        _seconds(number, line),
        kind if isinstance(kind, str) else None,
        _status(number, line),
        content_type,
    )


def _status(number: int, line: Mapping[str, object]) -> int | None:
    status = line.get("status")
    if status is None:
        return None
    if not isinstance(status, int) or not (status == 101 or 200 <= status <= 999):  # the other 1xx are no answers yet
        raise ValueError(f"line {number} has a status that no answer has")
    return status


def _seconds(number: int, line: Mapping[str, object]) -> float:
    seconds = line.get("t")
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < inf:
        raise ValueError(f"line {number} has no time")
    return float(seconds)


def recorder(
    file: str | os.PathLike[str],
    *,
    content_type: str = "text/event-stream",
    clock: Callable[[], float] = perf_counter,
) -> Callable[[Observable[bytes]], Observable[bytes]]:
    """Record a stream of bytes, with its cuts and times, for `Recording` to read and `Sandbox` to replay.

    .. marble::

        ---bytes---bytes---bytes---|
        [  recorder("answer.jsonl") ]
        ---bytes---bytes---bytes---|    and a line in the file for each, and for the end

    It belongs right after `bytes_from`. The file holds the answer, so that only its owner may read it; no header, key
    or request comes here. Each piece is one small write, unbuffered, on the thread that hands it on: a program that is
    killed loses nothing of what it was given.

    Args:
        file: The file. Each subscription starts it anew: give those that run at the same time files of their own.
        content_type: The content type of the body, for the replay.
        clock: Tells the time, in seconds from any start.

    Returns:
        An operator.

        - emits: each piece, once it is written
        - holds back: nothing
        - completes: with the source
        - fails: with the source; `OSError` at once, and without subscribing to it, where the file can't be opened. A
          disk that fails later goes to the event loop's exception handler, or to `sys.excepthook` where no loop runs:
          the recording stops there, and the stream goes on
    """

    def operator(source: Observable[bytes]) -> Observable[bytes]:
        return watched(source, lambda: _Recorder(file, content_type, clock))

    return operator


class _Recorder(Watch[bytes]):
    """One subscription, as it is recorded."""

    def __init__(self, file: str | os.PathLike[str], content_type: str, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._started = clock()
        self._lock = Lock()  # a subscriber may leave on another thread than the pieces come on
        self._file = open(file, "wb", buffering=0, opener=_private)  # noqa: SIM115 - closed at the end of the stream
        self._write({"rillet": "recording", "version": VERSION, "content_type": content_type})

    def item(self, item: bytes) -> None:
        try:
            name, text = "text", item.decode()
        except UnicodeDecodeError:
            name, text = "b64", b64encode(item).decode()
        self._write({"t": self._now(), name: text})

    def end(self, ending: Ending, error: Exception | None) -> None:
        last: dict[str, object] = {"t": self._now(), "end": _ENDS[ending]}
        if error is not None:
            last["error"] = error_kind(error)
        if isinstance(error, HttpStatusError):
            last["status"] = error.status
        self._write(last)
        with self._lock:
            self._file.close()

    def _now(self) -> float:
        return round(self._clock() - self._started, 6)

    def _write(self, line: Mapping[str, object]) -> None:
        rest = orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)
        with self._lock:
            if self._file.closed:
                return
            try:
                while rest:
                    rest = rest[self._file.write(rest) :]
            except OSError as error:
                self._file.close()
                report("a recording stops here: its file can't be written", error)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
