"""`event_source`: the events of a stream that goes on where its connection broke."""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Iterable, Iterator
from http import HTTPStatus
from typing import Unpack

import aiohttp
from reactivex import Observable, abc

from rillet.operators import ByteWindow, Chain, ServerSentEvent, Stage, StreamPosition, lift
from rillet.operators.decode_utf8 import DecodeUtf8
from rillet.operators.errors import HttpStatusError, StreamError, TruncatedStream
from rillet.operators.events import make_event
from rillet.operators.group_events import MAX_EVENT, GroupEvents
from rillet.operators.split_lines import MAX_LINE, SplitLines
from rillet.operators.value import value

from .backoff import DEFAULT_BACKOFF, Backoff
from .connect import RequestOptions
from .renewing import renewing
from .resume_by import LAST_EVENT_ID, Cursor, ResumeBy
from .seen_events import SeenEvents
from .source import bytes_from
from .timeouts import DEFAULT_TIMEOUTS, Timeouts, checked
from .transient import is_broken


def event_source(
    session: aiohttp.ClientSession,
    url: str,
    *,
    method: str = "GET",
    repeatable: bool = False,
    live: bool = False,
    resume: ResumeBy = LAST_EVENT_ID,
    last_event_id: str = "",
    reconnects: int | None = 10,
    backoff: Backoff = DEFAULT_BACKOFF,
    max_line: int | None = MAX_LINE,
    max_event: int | None = MAX_EVENT,
    window: ByteWindow | None = None,
    timeouts: Timeouts = DEFAULT_TIMEOUTS,
    **request: Unpack[RequestOptions],
) -> Observable[ServerSentEvent]:
    """The events of a stream, which goes on where its connection ended.

    .. marble::

        GET---id 1---id 2---#   GET, Last-Event-ID: 2---id 3---|   GET, Last-Event-ID: 3 - 204
        [                                event_source(…)                                     ]
        ------id 1---id 2--------------------------------id 3--------------------------------|

    It reconnects where the connection broke, went silent or ended, cleanly or not: for a feed a clean end is not the
    end. What ends it is the server's 204, an operator that has enough (`require_done` at `Done`, `take_while`), and
    being disposed; also in the same chunk, and while it waits. So a dialect that is done where the stream ends (gemini)
    needs a server that says 204.

    It never reconnects where that could start something a second time or mix two answers: the request must be a GET,
    or `repeatable`, or `resume` must know another address; and if events were handed on, the stream must have carried
    ids. Otherwise it ends as its connection did.

    Events that were seen are not given again. In what a new connection sends first, up to the first new event, those
    are left out that are equal in id, type and data to one of the last 1,024, as often as they were seen; with a
    `cursor` that gives numbers, those whose number is not above the last. An event without an id can't be known again.
    An unfinished event is discarded, id and all.

    Each request goes to `url`, and follows whatever redirects it meets then. A last event id that is empty, or has
    control characters, is not sent.

    Args:
        session: The session to use, see `bytes_from`.
        url: Where to.
        method: The HTTP method.
        repeatable: Whether the request may be made again whatever its method, with the same headers and body. The
            server must go on from the id: of one that generates anew, two answers would be mixed; see `attempts`.
        live: Reconnect also where the stream carries no ids. What is sent meanwhile is lost, and what the server
            begins with again comes twice.
        resume: How a request says where to go on; see `ResumeBy` and `background_response`.
        last_event_id: The id to start from, e.g. that of an earlier run's last event.
        reconnects: How often in a row it reconnects without a new event before it fails with the last error; 10 by
            default, None for no limit.
        backoff: How long to wait; the stream's `retry` counts, from its line on.
        max_line: The longest line taken, see `split_lines`.
        max_event: The longest event taken, see `group_events`.
        window: See `bytes_from`; it is the same for all connections.
        timeouts: See `bytes_from`; they count for each connection. One that is silent for `liveness` is dropped.
        request: Further arguments of `aiohttp.ClientSession.request`.

    Returns:
        The events, cold: each subscription starts anew.

        - emits: each new event at the blank line that ends it
        - buffers up to: what `bytes_from` does, and one event; it remembers 1,024 hashes
        - completes: at 204; at a clean end where it may not reconnect
        - fails: at once for any other status but 200 and another content type, also of a later connection; for
          `LimitExceeded`, since the event would be sent for ever, `InvalidUtf8` and `DeadlineExceeded`. Else with
          the last `TransportError`, `TruncatedStream` or `IdleTimeout`, where it may not go on, has reconnected too
          often, or the server asks for a longer wait than `backoff.patience`

    Raises:
        TypeError: `timeouts` is something else; or the request is `repeatable` and its body is not: it is an
            asynchronous iterator.
        ValueError: A timeout is below 0.

    Source: HTML Standard §9.2.
    """
    if repeatable and isinstance(request.get("data"), AsyncIterable):
        raise TypeError("an asynchronous iterator can't be sent a second time: give the body as bytes")

    stream = _Stream(
        session=session,
        method=method,
        url=url,
        repeatable=repeatable,
        live=live,
        resume=resume,
        reconnects=reconnects,
        backoff=backoff,
        max_line=max_line,
        max_event=max_event,
        window=window,
        timeouts=checked(timeouts),
        request=request,
    )

    def subscribe(
        observer: abc.ObserverBase[ServerSentEvent], scheduler: abc.SchedulerBase | None = None
    ) -> abc.DisposableBase:
        feed = _Feed(stream, last_event_id)
        return renewing(observer, feed.connect, feed.after, scheduler=scheduler)

    return Observable(subscribe)


@value
class _Stream:
    session: aiohttp.ClientSession
    method: str
    url: str
    repeatable: bool
    live: bool
    resume: ResumeBy
    reconnects: int | None
    backoff: Backoff
    max_line: int | None
    max_event: int | None
    window: ByteWindow | None
    timeouts: Timeouts
    request: RequestOptions


class _Feed:
    """One subscription: how far it got, over all its connections."""

    def __init__(self, stream: _Stream, last_event_id: str) -> None:
        self._stream = stream
        self._position = StreamPosition(last_event_id)
        self._started_from = last_event_id or None
        self._cursor: Cursor | None = None
        self._told_url: str | None = None
        self._seen = SeenEvents()
        self._has_given = False
        self._ids_before = 0
        self._failures = 0

    def connect(self) -> Observable[ServerSentEvent]:
        """The next connection."""
        self._ids_before = self._position.ids
        self._seen.reconnect()
        stream = self._stream
        method, url, request = self._request()
        source = bytes_from(stream.session, method, url, window=stream.window, timeouts=stream.timeouts, **request)
        return source.pipe(lift(self._stages))

    def after(self, error: Exception | None) -> float | None:
        """How long to wait after a connection that ended so, for `renewing`."""
        if isinstance(error, HttpStatusError) and error.status == HTTPStatus.NO_CONTENT:
            return None
        if isinstance(error, StreamError):
            error.retry_safe = not self._has_given
        if error is not None and not (is_broken(error) and self._may_go_on()):
            raise error
        if error is None and not self._may_go_on():
            return None
        self._failures += 1
        asked = self._position.retry
        wait = self._stream.backoff.wait(self._failures, None if asked is None else asked / 1000)
        is_last = self._stream.reconnects is not None and self._failures > self._stream.reconnects
        if is_last or wait is None:
            raise error or TruncatedStream(
                f"the stream ended, and {self._failures - 1} reconnects brought no new event",
                retry_safe=not self._has_given,
            )
        return wait

    def is_new(self, event: ServerSentEvent) -> bool:
        """Whether an event is to be handed on; that is progress."""
        resume = self._stream.resume
        cursor = self._own_id(event) if resume.cursor is None else resume.cursor(event)
        if not self._seen.is_new(event, cursor):
            return False
        self._has_given = True
        self._failures = 0
        if cursor is not None:
            self._cursor = cursor
        if resume.url is not None and self._told_url is None:
            self._told_url = resume.url(event)
        return True

    def _own_id(self, event: ServerSentEvent) -> str | None:
        """The id where this connection gave it: one that is kept from before says nothing about this event."""
        return event.id or None if self._position.ids > self._ids_before else None

    def _may_go_on(self) -> bool:
        stream = self._stream
        knows_place = self._place is not None
        may_ask = stream.method.upper() == "GET" or stream.repeatable or self._told_url is not None
        return may_ask and (knows_place or stream.live or not self._has_given)

    @property
    def _place(self) -> str | None:
        if self._stream.resume.cursor is not None:
            return None if self._cursor is None else str(self._cursor)
        return self._position.last_event_id if self._position.ids else None

    def _stages(self) -> Stage[bytes, ServerSentEvent]:
        stream = self._stream
        return Chain(
            DecodeUtf8(max_bytes=None),
            SplitLines(max_line=stream.max_line),
            GroupEvents(make_event, max_event=stream.max_event, position=self._position),
            _NewEvents(self.is_new),
        )

    def _request(self) -> tuple[str, str, RequestOptions]:
        stream = self._stream
        request = stream.request.copy()
        headers = dict(request.get("headers", {}))
        if "cache-control" not in map(str.lower, headers):
            headers["Cache-Control"] = "no-cache"
        method, url = stream.method, stream.url
        if self._told_url is not None:
            method, url = "GET", self._told_url
            request.pop("json", None)
            request.pop("data", None)
        request["headers"] = headers
        place = self._started_from if self._place is None else self._place
        return method, *stream.resume.applied(place, url, request)


class _NewEvents(Stage[ServerSentEvent, ServerSentEvent]):
    """Leaves out what was seen."""

    def __init__(self, is_new: Callable[[ServerSentEvent], bool]) -> None:
        self._is_new = is_new

    def feed(self, batch: Iterable[ServerSentEvent]) -> Iterator[ServerSentEvent]:
        return filter(self._is_new, batch)
