"""What framing gives: server-sent events, and the place in the stream where a reconnect would resume."""

from __future__ import annotations

from dataclasses import dataclass

from .value import value


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


@dataclass(slots=True)
class StreamPosition:
    """Where a reconnect would resume; `group_events(position=…)` starts from it and keeps it up to date.

    Attributes:
        last_event_id: The id of the last finished block, "" where there was none.
        retry: The reconnection time the server asked for, in milliseconds; None where it asked for none.
    """

    last_event_id: str = ""
    retry: int | None = None
