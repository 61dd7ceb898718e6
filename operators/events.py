"""What framing gives: the events of the three framings, and the place where a reconnect would resume."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from .value import maker, value


class WireEvent(Protocol):
    """What every framing gives, and every dialect reads: a name, and text."""

    @property
    def event(self) -> str:
        """The event's type."""
        ...

    @property
    def data(self) -> str:
        """Its payload as text."""
        ...


@value
class ServerSentEvent:
    """One dispatched event (HTML Standard §9.2.6).

    Attributes:
        event: The event type, "message" where the stream gave none.
        data: The data lines, joined by line feeds.
        id: The last event id at the moment of dispatch, "" where there was none.
    """

    event: str
    data: str
    id: str = ""


make_event = maker(ServerSentEvent)
"""Makes a `ServerSentEvent`, see `maker`."""


@value
class JsonLine:
    """One line of newline-delimited JSON; it is not parsed yet."""

    data: str

    @property
    def event(self) -> str:
        """Always "message": such lines have no type of their own."""
        return "message"


HeaderValue: TypeAlias = str | bytes | int | bool


@value
class EventFrame:
    """One frame of the binary event stream of AWS; both its checksums were right.

    Attributes:
        headers: Its headers, by name: `:message-type`, `:event-type`, …
        payload: Its payload.
    """

    headers: Mapping[str, HeaderValue]
    payload: bytes

    @property
    def event(self) -> str:
        """The type of the event, or of the exception or error that the frame reports."""
        names = (":event-type", ":exception-type", ":error-code")
        return next((str(self.headers[name]) for name in names if name in self.headers), "message")

    @property
    def data(self) -> str:
        """The payload as text."""
        return self.payload.decode("utf-8", "replace")

    @property
    def is_failure(self) -> bool:
        """Whether it reports an exception or an error instead of an event."""
        return self.headers.get(":message-type") in ("exception", "error")


@dataclass(slots=True)
class StreamPosition:
    """Where a reconnect would resume; `group_events(position=…)` starts from it and keeps it up to date.

    Attributes:
        last_event_id: The id of the last finished block, "" where there was none.
        retry: The reconnection time the server asked for, in milliseconds; None where it asked for none.
        ids: How many finished blocks set the id: by its change an id is known that came, and was not kept from before.
    """

    last_event_id: str = ""
    retry: int | None = None
    ids: int = field(default=0, compare=False)
