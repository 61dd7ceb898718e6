"""`ResumeBy`: how a request says where to go on."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Literal, TypeAlias, cast
from urllib.parse import quote

from yarl import URL

from rillet.operators import ServerSentEvent
from rillet.operators.errors import MalformedPayload
from rillet.operators.value import value

from .connect import RequestOptions
from .protocols.payload import load_object

Cursor: TypeAlias = str | int
"""The place of an event in its stream. A number grows from event to event; a text is opaque."""


@value
class ResumeBy:
    """How a request says where to go on; by default as the HTML Standard has it.

    Attributes:
        name: The header, or the query parameter, that carries the place of the last event.
        carrier: "header" or "query".
        cursor: The place that an event gives, None where it gives none; by default the stream's last event id.
        url: Where to go on, by GET and without the body, where an event tells that; by default nowhere else.

    Source: HTML Standard §9.2.3 (Last-Event-ID).
    """

    name: str = "Last-Event-ID"
    carrier: Literal["header", "query"] = "header"
    cursor: Callable[[ServerSentEvent], Cursor | None] | None = None
    url: Callable[[ServerSentEvent], str | None] | None = None

    def applied(self, place: str | None, url: str, request: RequestOptions) -> tuple[str, RequestOptions]:
        """A request that goes on from a place: its URL, and its further arguments.

        Args:
            place: The place; None where none is known, so that the request stays as it is, "" where the server has
                said to send none.
            url: The URL without it.
            request: The further arguments without it; they stay as they are.
        """
        if place is None:
            return url, request
        if self.carrier == "query":
            whole = URL(url).extend_query(request.get("params")).without_query_params(self.name)
            rest = request.copy()
            rest.pop("params", None)
            return str(whole.update_query({self.name: place} if place else {})), rest
        headers = {name: text for name, text in request.get("headers", {}).items() if name.lower() != self.name.lower()}
        if place and not _CONTROLS.search(place):
            headers[self.name] = place
        return url, {**request, "headers": headers}


_CONTROLS = re.compile("[\0-\x1f\x7f]")

_NO_NAMES = ("", ".", "..")  # in a path they mean the place itself, or the one above: no response

LAST_EVENT_ID = ResumeBy()


def background_response(url: str) -> ResumeBy:
    """How a response of OpenAI's Responses API is resumed: by GET, with `starting_after` a `sequence_number`.

    A response is resumed only where it was asked for with `background` and `stream` true, since any other dies with its
    connection; of such a one the address is known from its first event on.

    Args:
        url: Where responses are asked for, with the query that each request must have: ".../v1/responses".

    Source: platform.openai.com/docs/guides/background (streaming a background response).
    """
    responses = URL(url)

    def resume_at(event: ServerSentEvent) -> str | None:
        response = _object(_payload(event).get("response"))
        identity = response.get("id")
        if response.get("background") is not True or not isinstance(identity, str) or identity in _NO_NAMES:
            return None
        place = responses.joinpath(quote(identity, safe=""), encoded=True)
        return str(place.with_query(responses.query).update_query(stream="true"))

    return ResumeBy("starting_after", "query", sequence_number, resume_at)


def sequence_number(event: ServerSentEvent) -> int | None:
    """The `sequence_number` in an event's payload, None where it has none."""
    number = _payload(event).get("sequence_number")
    return number if type(number) is int else None


def _payload(event: ServerSentEvent) -> dict[str, Any]:
    """The payload of an event; what can't be read is for the dialect to complain of."""
    try:
        return load_object(event.data)
    except MalformedPayload:
        return {}


def _object(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
