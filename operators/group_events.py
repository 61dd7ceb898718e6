"""`group_events`: the lines of an event stream become events."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, TypeVar

import orjson
from reactivex import Observable

from .errors import LimitExceeded, TruncatedStream
from .events import ServerSentEvent, StreamPosition, make_event
from .meter import Meter, current_meter
from .stage import BatchStage, lift

MAX_EVENT = 4 * 1024 * 1024
MAX_RETRY_DIGITS = 15  # 31,000 years in milliseconds; int() itself refuses over 4,300 digits


Event = TypeVar("Event")


class GroupEvents(BatchStage[str, Event]):
    """The stage of `group_events`. `make` makes an event of its type, its data and the last id.

    Attributes:
        make: As given.
        limit: The longest event taken, in characters.
        size: How much of it the open event takes; 0 between events.
        last_id: The last event id.
    """

    refuses = (bytes, bytearray, memoryview)

    def __init__(
        self,
        make: Callable[[str, str, str], Event],
        *,
        max_event: int | None = MAX_EVENT,
        eof: Literal["discard", "dispatch"] = "discard",
        position: StreamPosition | None = None,
        stray: Literal["ignore", "dispatch"] = "ignore",
        half: Literal["discard", "fail"] = "discard",
    ) -> None:
        self.limit = float("inf") if max_event is None else max_event
        self.lazy = position is not None  # what a reconnect would skip must have been handed on
        self._eof = eof
        self._position = StreamPosition() if position is None else position
        self._takes_stray = stray == "dispatch"
        self._fails_cut = half == "fail"
        self._is_cut = False  # whether the block has the beginning of the word "data"
        self.make = make
        self.size = 0
        self._data: list[str] = []
        self._type = ""
        self.last_id = self._position.last_event_id
        self._sets_id = False
        self._stray: list[str] = []
        self._stray_is_error = False
        self._plain = True  # nothing but data, a type and comments in this block
        self._meter = current_meter() or Meter()

    def take(self, batch: Sequence[str]) -> tuple[Sequence[Event], Exception | None]:
        limit, size, data, make = self.limit, self.size, self._data, self.make
        events: list[Event] = []
        for line in batch:
            if line:
                size += len(line)
                if size > limit:
                    return events, LimitExceeded("max_event", int(limit), "an event, comments counted,")
                if line.startswith("data: "):
                    data.append(line[6:])
                elif line.startswith("event: "):
                    self._type = line[7:]
                else:
                    self._read(line)
                continue
            size = 0
            if not self._plain:
                events.extend(self._dispatch())
                continue
            if data:
                whole = data[0] if len(data) == 1 else "\n".join(data)
                events.append(make(self._type or "message", whole, self.last_id))
                data.clear()
            self._type = ""
        self.size = size
        return events, None

    def finish(self) -> Iterator[Event]:
        is_whole = _is_whole("\n".join(self._data))
        is_cut = self._is_cut or (bool(self._data) and not is_whole)
        if self._eof == "discard" or not is_whole:
            self._data.clear()
        if self._data or self._stray:  # an id in an unfinished block is not committed
            yield from self._dispatch()
        if is_cut and self._fails_cut:
            raise TruncatedStream("the stream ended inside an event")

    def _dispatch(self) -> Iterator[Event]:
        kind, data, stray = self._type or "message", "\n".join(self._data), "\n".join(self._stray)
        has_data, is_error = bool(self._data), self._stray_is_error or kind == "error"
        self._type, self._plain, self._stray_is_error, self._is_cut = "", True, False, False
        self._data.clear()
        self._stray.clear()
        self._position.last_event_id = self.last_id
        if self._sets_id:
            self._position.ids += 1
            self._sets_id = False
        if has_data:
            yield self.make(kind, data, self.last_id)
        if stray and (is_error or _is_error(stray)):
            yield self.make("error", stray, self.last_id)

    def _read(self, line: str) -> None:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._type = value
        elif name == "id":
            if "\0" not in value:
                self.last_id, self._sets_id, self._plain = value, True, False
        elif name == "retry":
            if value.isascii() and value.isdigit() and len(value) <= MAX_RETRY_DIGITS:
                self._position.retry = int(value)
        elif "data".startswith(line):
            self._is_cut, self._plain = True, False
        elif not name:
            self._meter.add_heartbeat()
        elif self._takes_stray:
            self._read_stray(line, name, value)

    def _read_stray(self, line: str, name: str, value: str) -> None:
        if name == "error":
            self._stray_is_error = True
            self._stray.append(value)
        elif not self._stray_is_error and (self._stray or line.startswith("{")):
            self._stray.append(line)
        self._plain = self._plain and not self._stray


def _is_whole(data: str) -> bool:
    if data.strip() == "[DONE]":
        return True
    try:
        orjson.loads(data)
    except orjson.JSONDecodeError:
        return False
    return True


def _is_error(data: str) -> bool:
    """Whether it is one whole JSON object that reports an error."""
    try:
        payload: object = orjson.loads(data)
    except orjson.JSONDecodeError:
        return False
    return isinstance(payload, dict) and "error" in payload


def group_events(
    *,
    max_event: int | None = MAX_EVENT,
    eof: Literal["discard", "dispatch"] = "discard",
    position: StreamPosition | None = None,
    stray: Literal["ignore", "dispatch"] = "ignore",
    half: Literal["discard", "fail"] = "discard",
) -> Callable[[Observable[str]], Observable[ServerSentEvent]]:
    """Group the lines of an event stream into events.

    .. marble::

        ---"data: a"---"data: b"---""-----------": ping"---""---|
        [                  group_events()                       ]
        ----------------------------Event(data="a\\nb")----------|

    Args:
        max_event: The longest event taken, in characters of its lines, comments counted; 4 Mi by default, None for no
            limit.
        eof: What becomes of an event that no blank line ended: "discard" (the default, and the standard's rule), or
            "dispatch", which takes it where its data is whole JSON or [DONE].
        position: Kept up to date with the last event id and the reconnection time, and started from; None by default.
        stray: What becomes of lines that are no fields of the standard: "ignore" (the default, and the standard's
            rule), or "dispatch", which makes an event of the type "error" of an `error: …` line, and of a JSON object
            without `data:` that has an "error", as some servers report their failures.
        half: What becomes of an open event whose data is not whole JSON: "discard" (the default, and the standard's
            rule), or "fail", since a stream that ends inside an event was cut; `split_lines` has to dispatch its last
            line then.

    Returns:
        An operator from lines to `ServerSentEvent`.

        - emits: an event at the blank line that ends it
        - holds back: the open event
        - completes: with the source; the open event is discarded, see `eof`
        - fails: `LimitExceeded`, the events before it having been emitted; `TruncatedStream`, see `half`

    Source: HTML Standard §9.2.6 (interpreting an event stream).
    """
    return lift(
        lambda: GroupEvents(make_event, max_event=max_event, eof=eof, position=position, stray=stray, half=half)
    )
