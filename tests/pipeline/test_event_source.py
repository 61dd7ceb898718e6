"""`event_source` against real servers on the loopback interface: what it asks, when it asks again, what it gives."""

from __future__ import annotations

import asyncio
import struct
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from io import BytesIO
from socket import SO_LINGER, SOL_SOCKET
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st
from reactivex import operators as rxops
from subscriber import Seen

from rillet.operators import (
    ByteWindow,
    Done,
    ServerSentEvent,
    TextDelta,
    assemble_tools,
    decode_deltas,
    require_done,
)
from rillet.operators.errors import (
    DeadlineExceeded,
    HttpStatusError,
    InvalidUtf8,
    LimitExceeded,
    NotAnEventStream,
    TransportError,
    TruncatedStream,
)
from rillet.operators.meter import Meter, metering
from rillet.operators.window import offered
from rillet.pipeline import Backoff, ResumeBy, Timeouts, background_response, event_source, iterate
from rillet.pipeline.protocols import OPENAI_CHAT, OPENAI_RESPONSES, PLAIN

Eventually = Callable[[Callable[[], object]], Awaitable[None]]
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]

FAST = Backoff(first=0.001, longest=0.001, jitter=0)
UNTIL_DISPOSED = asyncio.Event


class Asked:
    """One request that came."""

    def __init__(self, request: web.Request, body: bytes) -> None:
        self.method = request.method
        self.path = request.path
        self.query = request.query_string
        self.headers = request.headers.copy()
        self.raw = dict(request.raw_headers)
        self.body = body

    @property
    def last_event_id(self) -> str | None:
        return self.headers.get("Last-Event-ID")


class Feed:
    """A server that gives its answers one after another, then 204; a context manager that gives its URL."""

    def __init__(self, *answers: bytes | Answer) -> None:
        self.asked: list[Asked] = []
        self.open = 0
        self._answers = iter(answers)

    async def __aenter__(self) -> str:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}/"

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(Asked(request, await request.read()))
        answer = next(self._answers, status(204))
        self.open += 1
        try:
            return await (stream(answer) if isinstance(answer, bytes) else answer)(request)
        finally:
            self.open -= 1


def stream(body: bytes, *, content_type: str = "text/event-stream", then: Answer | None = None) -> Answer:
    """A 200 with this body; `then` says how it goes on, where it does not end."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": content_type})
        await response.prepare(request)
        await response.write(body)
        if then is not None:
            await then(request)
        return response

    return answer


async def cut(request: web.Request) -> web.StreamResponse:
    """The connection is closed inside the body."""
    assert request.transport is not None
    request.transport.abort()
    return web.StreamResponse()


async def reset(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
    request.transport.abort()
    return web.StreamResponse()


async def stall(request: web.Request) -> web.StreamResponse:
    await asyncio.Event().wait()  # until the client has gone, or the server closes
    return web.StreamResponse()


def too_short(body: bytes) -> Answer:
    """Content-Length promises a byte more than comes."""

    async def answer(request: web.Request) -> web.StreamResponse:
        headers = {"Content-Type": "text/event-stream", "Content-Length": str(len(body) + 1)}
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        await response.write(body)
        return await cut(request)

    return answer


def status(number: int, **headers: str) -> Answer:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(status=number, headers=headers)

    return answer


class Noted(Backoff):
    """Waits no time, and notes how long it should have waited."""

    def __init__(self) -> None:
        super().__init__(jitter=0)
        waits.clear()

    def wait(self, failures: int, asked: float | None = None) -> float | None:
        waits.append((failures, asked))
        return 0.0


waits: list[tuple[int, float | None]] = []


async def events_of(session: aiohttp.ClientSession, url: str, **options: Any) -> Seen:
    """All that comes of an event source."""
    seen = Seen()
    event_source(session, url, **{"backoff": FAST, **options}).subscribe(seen)
    await seen.outcome()
    return seen


def data_of(seen: list[Any]) -> list[str]:
    return [event.data for event in seen if isinstance(event, ServerSentEvent)]


# The request


async def test_it_asks_by_get_for_an_event_stream_past_any_cache_and_first_without_an_id(
    session: aiohttp.ClientSession,
) -> None:
    feed = Feed()
    async with feed as url:
        await events_of(session, url)
    (first,) = feed.asked
    assert (first.method, first.last_event_id) == ("GET", None)
    assert (first.headers["Accept"], first.headers["Cache-Control"]) == ("text/event-stream", "no-cache")


async def test_the_caller_s_own_headers_count(session: aiohttp.ClientSession) -> None:
    feed = Feed(b"id: 1\ndata: a\n\n")
    async with feed as url:
        await events_of(session, url, headers={"cache-control": "max-age=1", "accept": "text/*"})
    for asked in feed.asked:
        assert (asked.headers.getall("Cache-Control"), asked.headers.getall("Accept")) == (["max-age=1"], ["text/*"])


async def test_a_reconnect_carries_the_last_id_and_gives_what_follows(session: aiohttp.ClientSession) -> None:
    feed = Feed(b"id: 1\ndata: a\n\nid: 2\ndata: b\n\n", b"id: 3\ndata: c\n\n")
    async with feed as url:
        seen = await events_of(session, url)
    assert [asked.last_event_id for asked in feed.asked] == [None, "2", "3"]
    assert seen == [
        ServerSentEvent("message", "a", "1"),
        ServerSentEvent("message", "b", "2"),
        ServerSentEvent("message", "c", "3"),
        "completed",
    ]


async def test_without_an_id_the_header_is_absent(session: aiohttp.ClientSession) -> None:
    feed = Feed(b": nothing yet\n\n", b"id: 1\ndata: a\n\nid:\ndata: b\n\n", b"data: c\n\n")
    async with feed as url:
        seen = await events_of(session, url, headers={"last-event-id": "0"})
    # The caller's own counts until the stream says something about ids; cleared by the stream, it is gone.
    assert [asked.last_event_id for asked in feed.asked] == ["0", "0", None, None]
    assert [event.id for event in seen[:-1]] == ["1", "", ""]


async def test_an_id_that_is_not_ascii_is_sent_as_utf8(session: aiohttp.ClientSession) -> None:
    feed = Feed("id: …é\ndata: a\n\n".encode())
    async with feed as url:
        await events_of(session, url)
    assert feed.asked[1].raw[b"Last-Event-ID"] == "…é".encode()


@pytest.mark.parametrize("control", ["\x01", "\x1f", "\x7f", "\t"])
async def test_an_id_with_a_control_character_is_not_sent_but_the_reconnect_happens(
    session: aiohttp.ClientSession, control: str
) -> None:
    feed = Feed(f"id: a{control}b\ndata: a\n\n".encode(), b"data: b\n\n")
    async with feed as url:
        seen = await events_of(session, url)
    assert [asked.last_event_id for asked in feed.asked] == [None, None, None]
    assert data_of(seen) == ["a", "b"]


async def test_a_preset_id_is_sent_at_first_and_counts_as_received(session: aiohttp.ClientSession) -> None:
    feed = Feed(b"", b"data: a\n\n")
    async with feed as url:
        seen = await events_of(session, url, last_event_id="41")
    assert [asked.last_event_id for asked in feed.asked] == ["41", "41"]
    assert seen == [ServerSentEvent("message", "a", "41"), "completed"]


async def test_a_repeatable_post_resends_method_headers_and_body(session: aiohttp.ClientSession) -> None:
    feed = Feed(b"id: 1\ndata: a\n\n")
    async with feed as url:
        options = {"json": {"q": 1}, "headers": {"X-Mine": "yes"}, "params": {"p": "2"}}
        await events_of(session, url, method="POST", repeatable=True, **options)
    assert [(asked.method, asked.body, asked.headers["X-Mine"], asked.query) for asked in feed.asked] == [
        ("POST", b'{"q": 1}', "yes", "p=2")
    ] * 2
    assert feed.asked[1].last_event_id == "1"


@pytest.mark.parametrize(
    "answer",
    [b"", b"data: a\n\n", b"id: 1\ndata: a\n\n", stream(b"id: 1\ndata: a\n\n", then=cut), reset],
    ids=["empty", "no id", "id", "cut", "no answer"],
)
async def test_a_post_is_never_repeated_by_itself(session: aiohttp.ClientSession, answer: Any) -> None:
    feed = Feed(answer)
    async with feed as url:
        seen = await events_of(session, url, method="POST", json={})
    assert len(feed.asked) == 1
    assert seen[-1] == "completed" or type(seen[-1]) in (TruncatedStream, TransportError)


@pytest.mark.parametrize("data", [b"q", "q", {"q": "1"}, lambda: aiohttp.FormData({"q": BytesIO(b"1")})])
async def test_a_body_is_sent_whole_each_time(session: aiohttp.ClientSession, data: Any) -> None:
    feed = Feed(b"id: 1\ndata: a\n\n")
    async with feed as url:
        await events_of(session, url, method="POST", repeatable=True, data=data() if callable(data) else data)
    assert len({len(asked.body) for asked in feed.asked}) == 1
    assert len(feed.asked) == 2
    assert feed.asked[0].body


async def test_a_body_that_can_not_be_sent_twice_is_refused(session: aiohttp.ClientSession) -> None:
    async def body() -> AsyncIterator[bytes]:
        yield b"once"

    once: Any = body()
    with pytest.raises(TypeError, match="second time"):
        event_source(session, "http://127.0.0.1:1", method="POST", repeatable=True, data=once)


# The answer


@pytest.mark.parametrize("answers", [(), (b"id: 1\ndata: a\n\n",)], ids=["at first", "on a reconnect"])
@pytest.mark.parametrize("number", [201, 205, 206, 210, 299, 304, 400, 401, 403, 404, 410, 418, 429, 500, 503])
async def test_any_other_status_is_final_whatever_its_retry_after(
    session: aiohttp.ClientSession, number: int, answers: tuple[bytes, ...]
) -> None:
    feed = Feed(*answers, status(number, **{"Retry-After": "0", "Content-Type": "text/event-stream"}))
    async with feed as url:
        seen = await events_of(session, url)
    assert type(seen[-1]) is HttpStatusError
    assert (seen[-1].status, seen[-1].retry_safe, len(feed.asked)) == (number, not answers, len(answers) + 1)


@pytest.mark.parametrize("answers", [(), (b"id: 1\ndata: a\n\n",)], ids=["at first", "on a reconnect"])
@pytest.mark.parametrize("content_type", ["text/plain", "text/event-streamx", "x bogus"])
async def test_another_content_type_is_final(
    session: aiohttp.ClientSession, content_type: str, answers: tuple[bytes, ...]
) -> None:
    feed = Feed(*answers, stream(b"data: x\n\n", content_type=content_type))
    async with feed as url:
        seen = await events_of(session, url)
    assert (type(seen[-1]), len(feed.asked)) == (NotAnEventStream, len(answers) + 1)


async def test_the_charset_is_not_believed(session: aiohttp.ClientSession) -> None:
    async with Feed(stream("data: é\n\n".encode(), content_type="text/event-stream;charset=windows-1252")) as url:
        assert data_of(await events_of(session, url)) == ["é"]


@pytest.mark.parametrize("answers", [(), (b"id: 1\ndata: a\n\n",), (status(302, Location="/gone"),)])
async def test_204_stops_and_is_no_error(session: aiohttp.ClientSession, answers: tuple[Any, ...]) -> None:
    feed = Feed(*answers, status(204))
    async with feed as url:
        seen = await events_of(session, url)
    assert (seen[-1], len(feed.asked)) == ("completed", len(answers) + 1)


@pytest.mark.parametrize("number", [301, 302, 303, 307, 308])
async def test_a_redirect_is_followed_and_a_reconnect_asks_the_first_url_again(
    session: aiohttp.ClientSession, number: int
) -> None:
    feed = Feed(status(number, Location="/there"), b"id: 1\ndata: a\n\n", status(number, Location="/there"))
    async with feed as url:
        seen = await events_of(session, url)
    assert [asked.path for asked in feed.asked] == ["/", "/there"] * 2
    assert [asked.last_event_id for asked in feed.asked] == [None, None, "1", "1"]
    assert data_of(seen) == ["a"]


@pytest.mark.parametrize(
    ("location", "kind"),
    [
        (None, HttpStatusError),
        ("http://", TransportError),
        ("http://1.2.3.4.5/", TransportError),
        ("ftp://a/b", TransportError),
    ],
)
async def test_a_redirect_to_nowhere_is_final(
    session: aiohttp.ClientSession, location: str | None, kind: type[Exception]
) -> None:
    feed = Feed(status(302, **({} if location is None else {"Location": location})))
    async with feed as url:
        seen = await events_of(session, url)
    assert (type(seen[-1]), len(feed.asked)) == (kind, 1)


async def test_a_redirect_loop_is_a_failure_of_the_network(session: aiohttp.ClientSession) -> None:
    feed = Feed(*[status(302, Location="/loop")] * 4, b"id: 1\ndata: a\n\n")
    async with feed as url:
        seen = await events_of(session, url, max_redirects=2)
    assert data_of(seen) == ["a"]


async def test_the_authorization_does_not_follow_a_redirect_to_another_origin(session: aiohttp.ClientSession) -> None:
    other = Feed(b"id: 1\ndata: a\n\n")
    async with other as there, Feed(status(302, Location=there)) as url:
        await events_of(session, url, headers={"Authorization": "Bearer secret"})
    assert ["Authorization" in asked.headers for asked in other.asked] == [False]


@pytest.mark.parametrize("before", [cut, reset])
async def test_no_answer_is_asked_again(session: aiohttp.ClientSession, before: Answer) -> None:
    feed = Feed(before, b"id: 1\ndata: a\n\n", before, before, b"id: 2\ndata: b\n\n")
    async with feed as url:
        seen = await events_of(session, url)
    assert data_of(seen) == ["a", "b"]


async def test_nobody_there_is_asked_again_and_fails_in_the_end(session: aiohttp.ClientSession) -> None:
    seen = await events_of(session, "http://127.0.0.1:1", reconnects=3, backoff=Noted())
    assert (type(seen[-1]), len(seen), seen[-1].retry_safe) == (TransportError, 1, True)
    assert waits == [(1, None), (2, None), (3, None), (4, None)]


# While open, and the end


@pytest.mark.parametrize(
    "ending",
    [
        b"id: 1\ndata: a\n\n",
        stream(b"id: 1\ndata: a\n\n", then=cut),
        stream(b"id: 1\ndata: a\n\n", then=reset),
        too_short(b"id: 1\ndata: a\n\n"),
        stream(b"id: 1\ndata: a\n\ndata: \xe2\x82"),
    ],
    ids=["clean", "cut", "reset", "too short", "inside a character"],
)
async def test_however_it_ended_it_goes_on(session: aiohttp.ClientSession, ending: bytes | Answer) -> None:
    feed = Feed(ending, b"id: 2\ndata: b\n\n")
    async with feed as url:
        seen = await events_of(session, url)
    assert [asked.last_event_id for asked in feed.asked] == [None, "1", "2"]
    assert (data_of(seen), seen[-1]) == (["a", "b"], "completed")


async def test_an_empty_body_is_asked_again(session: aiohttp.ClientSession) -> None:
    async with Feed(b"", b"", b"id: 1\ndata: a\n\n") as url:
        assert data_of(await events_of(session, url)) == ["a"]


@pytest.mark.parametrize("then", [None, cut])
async def test_what_was_handed_on_without_ids_can_not_be_gone_on_from(
    session: aiohttp.ClientSession, then: Answer | None
) -> None:
    feed = Feed(stream(b"data: a\n\n", then=then), b"data: b\n\n")
    async with feed as url:
        seen = await events_of(session, url)
    assert (data_of(seen), len(feed.asked)) == (["a"], 1)
    assert seen[-1] == "completed" if then is None else type(seen[-1]) is TruncatedStream


async def test_a_live_feed_goes_on_without_ids(session: aiohttp.ClientSession) -> None:
    feed = Feed(b"data: a\n\n", stream(b"data: a\n\n", then=cut), b"data: b\n\n")
    async with feed as url:
        seen = await events_of(session, url, live=True)
    assert (data_of(seen), [asked.last_event_id for asked in feed.asked]) == (["a", "a", "b"], [None] * 4)


@pytest.mark.parametrize("then", [None, cut])
async def test_an_unfinished_event_is_discarded_and_nothing_is_glued_to_the_next_connection(
    session: aiohttp.ClientSession, then: Answer | None
) -> None:
    first = b"\xef\xbb\xbfid: 1\ndata: a\n\nid: 2\nevent: odd\ndata: half"
    feed = Feed(stream(first, then=then), b"\xef\xbb\xbfdata: b\n\ndata: c\n\n")
    async with feed as url:
        seen = await events_of(session, url)
    assert [asked.last_event_id for asked in feed.asked] == [None, "1", "1"]
    assert seen[1:-1] == [ServerSentEvent("message", "b", "1"), ServerSentEvent("message", "c", "1")]


async def test_an_id_without_data_counts_and_one_with_nul_does_not(session: aiohttp.ClientSession) -> None:
    feed = Feed(b"data: a\n\nid: 7\n\n", b"id: 8\0\ndata: b\n\n")
    async with feed as url:
        seen = await events_of(session, url)
    assert [asked.last_event_id for asked in feed.asked] == [None, "7", "7"]
    assert [event.id for event in seen[:-1]] == ["", "7"]


async def test_the_server_s_retry_counts_from_its_line_on_and_stays(session: aiohttp.ClientSession) -> None:
    feed = Feed(
        b"",
        b"retry: 20\n",  # in a block that never ends
        b"retry: soon\nretry: -1\nretry:\nid: 1\ndata: a\n\n",
        b"id: 2\ndata: b\n\nretry: 0\n\n",
        b"",
    )
    async with feed as url:
        await events_of(session, url, backoff=Noted())
    assert waits == [(1, None), (2, 0.02), (1, 0.02), (1, 0.0), (2, 0.0)]


async def test_a_server_that_asks_for_too_long_a_wait_is_not_waited_for(session: aiohttp.ClientSession) -> None:
    feed = Feed(b"retry: 999999999999999\nid: 1\ndata: a\n\n")
    async with feed as url:
        seen = await events_of(session, url)
    assert (data_of(seen), type(seen[-1]), len(feed.asked)) == (["a"], TruncatedStream, 1)


async def test_an_error_event_is_an_event(session: aiohttp.ClientSession) -> None:
    async with Feed(b"event: error\nid: 1\ndata: x\n\n") as url:
        assert await events_of(session, url) == [ServerSentEvent("error", "x", "1"), "completed"]


async def test_silence_is_a_dropped_connection(session: aiohttp.ClientSession, eventually: Eventually) -> None:
    feed = Feed(stream(b"id: 1\ndata: a\n\n", then=stall), stall, b"id: 2\ndata: b\n\n")
    async with feed as url:
        seen = await events_of(session, url, timeouts=Timeouts(liveness=0.05))
        await eventually(lambda: feed.open == 0)
    assert [asked.last_event_id for asked in feed.asked] == [None, "1", "1", "2"]
    assert (data_of(seen), seen[-1]) == (["a", "b"], "completed")


async def test_heartbeats_alone_are_a_dropped_connection_where_deltas_are_read(session: aiohttp.ClientSession) -> None:
    async def beats(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        while True:
            await response.write(b": still here\n\n")
            await asyncio.sleep(0.005)

    text = b'data: {"type":"text","delta":"%b"}\n\n'
    feed = Feed(b"id: 1\n" + text % b"a", beats, b"id: 2\n" + text % b"b" + b"data: [DONE]\n\n")
    async with feed as url:
        seen = Seen()
        source = event_source(session, url, backoff=FAST, timeouts=Timeouts(progress=0.05))
        source.pipe(decode_deltas(PLAIN), require_done()).subscribe(seen)
        assert await seen.outcome() == "completed"
    assert seen == [TextDelta("a"), TextDelta("b"), Done(), "completed"]
    assert len(feed.asked) == 3


async def test_the_deadline_is_final(session: aiohttp.ClientSession) -> None:
    feed = Feed(stream(b"id: 1\ndata: a\n\n", then=stall))
    async with feed as url:
        seen = await events_of(session, url, timeouts=Timeouts(total=0.05))
    assert (type(seen[-1]), len(feed.asked)) == (DeadlineExceeded, 1)


@pytest.mark.parametrize(
    ("poison", "kind", "limit"),
    [
        (b"id: 2\ndata: " + b"x" * 100 + b"\n\n", LimitExceeded, {"max_event": 50}),
        (b"id: 2\ndata: " + b"x" * 100 + b"\n\n", LimitExceeded, {"max_line": 50}),
        (b"id: 2\ndata: \xff\n\n", InvalidUtf8, {}),
    ],
)
async def test_a_poisoned_event_is_not_asked_for_again(
    session: aiohttp.ClientSession, poison: bytes, kind: type[Exception], limit: dict[str, int]
) -> None:
    feed = Feed(b"id: 1\ndata: a\n\n" + poison)
    async with feed as url:
        seen = await events_of(session, url, **limit)
    assert (data_of(seen), type(seen[-1]), len(feed.asked)) == (["a"], kind, 1)
    assert not seen[-1].retry_safe


# The ceiling


@pytest.mark.parametrize("then", [None, cut])
async def test_reconnects_without_a_new_event_are_counted_and_a_new_event_starts_anew(
    session: aiohttp.ClientSession, then: Answer | None
) -> None:
    nothing = stream(b": still here\n\n", then=then)
    first, second = (stream(b"id: %d\ndata: a\n\n" % n, then=then) for n in (1, 2))
    feed = Feed(first, nothing, nothing, second, *[nothing] * 9)
    async with feed as url:
        seen = await events_of(session, url, reconnects=3, backoff=Noted())
    assert data_of(seen) == ["a", "a"]
    assert (type(seen[-1]), seen[-1].retry_safe, len(feed.asked)) == (TruncatedStream, False, 7)
    assert [failures for failures, _ in waits] == [1, 2, 3, 1, 2, 3, 4]


async def test_what_is_only_repeated_is_no_progress(session: aiohttp.ClientSession) -> None:
    feed = Feed(*[b"id: 1\ndata: a\n\n"] * 9)
    async with feed as url:
        seen = await events_of(session, url, reconnects=3)
    assert (data_of(seen), type(seen[-1]), len(feed.asked)) == (["a"], TruncatedStream, 4)


async def test_without_reconnects_it_ends_as_the_first_connection(session: aiohttp.ClientSession) -> None:
    feed = Feed(stream(b"id: 1\ndata: a\n\n", then=cut))
    async with feed as url:
        seen = await events_of(session, url, reconnects=0)
    assert (type(seen[-1]), len(feed.asked)) == (TruncatedStream, 1)


# What was seen


@pytest.mark.parametrize(
    "again",
    [
        b"id: 3\ndata: d\n\n",
        b"id: 2\ndata: b\n\ndata: c\n\nid: 3\ndata: d\n\n",
        b"id: 1\ndata: a\n\nid: 2\ndata: b\n\ndata: c\n\nid: 3\ndata: d\n\n",
        b": hello\n\nid: 2\n\nid: 2\ndata: b\n\ndata: c\n\nid: 3\ndata: d\n\n",
    ],
    ids=["after the last", "from the last on", "all", "with other blocks"],
)
async def test_events_that_were_seen_are_not_given_twice(session: aiohttp.ClientSession, again: bytes) -> None:
    async with Feed(b"id: 1\ndata: a\n\nid: 2\ndata: b\n\ndata: c\n\n", again) as url:
        seen = await events_of(session, url)
    assert (data_of(seen), seen[-1]) == (["a", "b", "c", "d"], "completed")


async def test_equal_events_that_are_new_are_all_given(session: aiohttp.ClientSession) -> None:
    """The same id over and over, numbers that start again, and events without an id say nothing of being seen."""
    feed = Feed(
        b"id: 1\ndata: tick\n\nid: 1\ndata: tick\n\n",
        b"data: tick\n\nid: 1\ndata: tick\n\nid: 1\ndata: tick\n\nid: 1\ndata: tick\n\n",
        b"id: 1\ndata: other\n\nid: 1\ndata: tick\n\n",
    )
    async with feed as url:
        seen = await events_of(session, url)
    assert data_of(seen) == ["tick"] * 2 + ["tick"] * 2 + ["other", "tick"]


async def test_an_event_that_only_keeps_the_id_from_before_is_no_repetition(session: aiohttp.ClientSession) -> None:
    feed = Feed(b"id: 1\ndata: tick\n\n", b"data: tick\n\nevent: message\ndata: tick\n\n")
    async with feed as url:
        seen = await events_of(session, url)
    assert seen == [ServerSentEvent("message", "tick", "1")] * 3 + ["completed"]


WIRE = b"".join(b"id: %d\ndata: %d\n\n" % (n, n) for n in range(1, 13))


@given(
    cuts=st.lists(st.integers(0, len(WIRE)), max_size=6),
    back=st.integers(0, 3) | st.just(12),
    ends=st.lists(st.sampled_from([None, cut]), min_size=7, max_size=7),
)
@settings(max_examples=40)
def test_wherever_the_connections_break_each_event_comes_once(
    cuts: list[int], back: int, ends: list[Answer | None]
) -> None:
    """The server resumes `back` events before the one that it should."""

    def answer(place: int | None, end: Answer | None) -> Answer:
        async def given(request: web.Request) -> web.StreamResponse:
            last = int(request.headers.get("Last-Event-ID", 0))
            start = WIRE.find(b"id: %d\n" % max(last + 1 - back, 1))
            body = WIRE[start if start >= 0 else len(WIRE) :][:place]
            return await stream(body, then=end)(request)

        return given

    async def go() -> list[Any]:
        answers = [answer(*parts) for parts in zip(cuts, ends, strict=False)]
        async with Feed(*answers, answer(None, None)) as url, aiohttp.ClientSession() as session:
            return await events_of(session, url)

    seen = asyncio.run(go())
    assert (data_of(seen), seen[-1]) == ([str(n) for n in range(1, 13)], "completed")


# Its end


@pytest.mark.parametrize("then", [None, cut, stall])
async def test_after_done_nothing_is_asked_although_there_are_ids(
    session: aiohttp.ClientSession, then: Answer | None, eventually: Eventually
) -> None:
    """Also where the connection ends in the chunk that has the end of the answer."""
    chunk = b'{"choices":[{"index":0,"delta":{"content":"%b"},"finish_reason":%b}]}'
    whole = b"id: 0\ndata: %b\n\nid: 1\ndata: %b\n\nid: 2\ndata: [DONE]\n\nid: 3\ndata: late\n\n"
    feed = Feed(
        stream(whole % (chunk % (b"Hel", b"null"), chunk % (b"lo", b'"stop"')), then=then), b"id: 4\ndata: x\n\n"
    )
    async with feed as url:
        seen, noted = Seen(), Noted()
        source = event_source(session, url, backoff=noted)
        source.pipe(decode_deltas(OPENAI_CHAT), assemble_tools(), require_done()).subscribe(seen)
        assert await seen.outcome() == "completed"
        await eventually(lambda: feed.open == 0)
    assert "".join(delta.text for delta in seen if isinstance(delta, TextDelta)) == "Hello"
    assert (len(feed.asked), waits) == (1, [])


async def test_a_post_with_ids_that_ends_is_not_asked_again(session: aiohttp.ClientSession) -> None:
    """K5: a clean end with ids present never triggers another POST."""
    chunk = b'{"choices":[{"index":0,"delta":{"content":"%b"},"finish_reason":%b}]}'
    body = b"id: 0\ndata: %b\n\nid: 1\ndata: %b\n\ndata: [DONE]\n\n"
    feed = Feed(body % (chunk % (b"Hel", b"null"), chunk % (b"lo", b'"stop"')), b"data: again\n\n")
    async with feed as url:
        raw, verified = Seen(), Seen()
        source = event_source(session, url, method="POST", json={}, backoff=FAST)
        source.subscribe(raw)
        assert await raw.outcome() == "completed"
        assert (len(raw), len(feed.asked)) == (4, 1)
        feed._answers = iter([body % (chunk % (b"Hel", b"null"), chunk % (b"lo", b'"stop"'))])
        source.pipe(decode_deltas(OPENAI_CHAT), require_done()).subscribe(verified)
        assert await verified.outcome() == "completed"
    assert (verified[-2], len(feed.asked)) == (Done(), 2)


async def test_an_operator_that_has_enough_ends_it(session: aiohttp.ClientSession) -> None:
    feed = Feed(b"id: 1\ndata: a\n\nid: 2\ndata: end\n\nid: 3\ndata: b\n\n")
    async with feed as url:
        seen = Seen()
        source = event_source(session, url, backoff=FAST)
        source.pipe(rxops.take_while(lambda event: event.data != "end", inclusive=True)).subscribe(seen)
        await seen.outcome()
    assert (data_of(seen), seen[-1], len(feed.asked)) == (["a", "end"], "completed", 1)


async def test_disposed_inside_on_next_nothing_more_comes_nor_is_asked(session: aiohttp.ClientSession) -> None:
    feed = Feed(b"id: 1\ndata: a\n\nid: 2\ndata: b\n\n")
    async with feed as url:
        first = asyncio.Event()
        got: list[str] = []

        def leave(event: ServerSentEvent) -> None:
            got.append(event.data)
            subscription.dispose()
            first.set()

        subscription = event_source(session, url, backoff=FAST).subscribe(leave)
        await first.wait()
        await asyncio.sleep(0.02)  # for a request that must not come
    assert (got, len(feed.asked)) == (["a"], 1)


def timers() -> list[asyncio.TimerHandle]:
    scheduled: list[asyncio.TimerHandle] = getattr(asyncio.get_running_loop(), "_scheduled")  # noqa: B009
    return [timer for timer in scheduled if not timer.cancelled()]


@pytest.mark.parametrize("where", ["here", "another thread"])
async def test_disposed_while_it_waits_nothing_stays_scheduled(
    session: aiohttp.ClientSession, where: str, eventually: Eventually
) -> None:
    feed = Feed(b"id: 1\ndata: a\n\n")
    async with feed as url:
        subscription = event_source(session, url, backoff=Backoff(first=37, jitter=0)).subscribe(Seen())

        def waiting() -> list[asyncio.TimerHandle]:
            now = asyncio.get_running_loop().time()
            return [timer for timer in timers() if 30 < timer.when() - now < 38]

        await eventually(lambda: feed.asked and not feed.open and waiting())
        if where == "here":
            subscription.dispose()
            assert not waiting()
        else:
            thread = threading.Thread(target=subscription.dispose)
            thread.start()
            thread.join()
            await eventually(lambda: not waiting())
    assert len(feed.asked) == 1


async def test_a_subscriber_s_own_error_is_not_taken_for_the_connection_s(session: aiohttp.ClientSession) -> None:
    feed = Feed(b"id: 1\ndata: a\n\n", b"id: 2\ndata: b\n\n")
    failure = TransportError("of another stream")
    failure.__cause__ = OSError("reset")

    def fail(_: object) -> None:
        raise failure

    async with feed as url:
        seen = Seen()
        event_source(session, url, backoff=FAST).subscribe(fail, seen.on_error, seen.on_completed)
        assert await seen.outcome() is failure
    assert (len(seen), len(feed.asked)) == (1, 1)


async def test_a_closed_session_is_told(session: aiohttp.ClientSession) -> None:
    async with Feed(stream(b"id: 1\ndata: a\n\n", then=stall)) as url:
        seen = Seen()
        event_source(session, url, backoff=FAST).subscribe(seen)
        while not seen:
            await asyncio.sleep(0.001)
        await session.close()
        assert type(await seen.outcome()) is RuntimeError


async def test_without_a_running_loop_the_subscriber_is_told() -> None:
    errors: list[Exception] = []
    async with aiohttp.ClientSession() as session:
        source = event_source(session, "http://127.0.0.1:1")
        await asyncio.to_thread(source.subscribe, None, errors.append)
    assert type(errors[0]) is RuntimeError


# Subscriptions, windows, meters


async def test_each_subscription_has_its_own_place(session: aiohttp.ClientSession) -> None:
    def numbered(request: web.Request) -> Awaitable[web.StreamResponse]:
        last = int(request.headers.get("Last-Event-ID", 0))
        body = b"id: %d\ndata: %d\n\n" % (last + 1, last + 1)
        return (stream(body) if last < 3 else status(204))(request)

    feed = Feed(*[numbered] * 16)
    async with feed as url:
        source = event_source(session, url, backoff=FAST)
        first, second, third = Seen(), Seen(), Seen()
        source.subscribe(first)
        source.subscribe(second)
        await first.outcome()
        await second.outcome()
        source.subscribe(third)
        await third.outcome()
    assert data_of(first) == data_of(second) == data_of(third) == ["1", "2", "3"]


async def test_reactivex_retry_starts_it_anew(session: aiohttp.ClientSession) -> None:
    feed = Feed(b"id: 1\ndata: a\n\n", status(503), b"id: 1\ndata: a\n\n")
    async with feed as url:
        seen = Seen()
        event_source(session, url, backoff=FAST).pipe(rxops.retry(2)).subscribe(seen)
        assert await seen.outcome() == "completed"
    assert data_of(seen) == ["a", "a"]
    assert [asked.last_event_id for asked in feed.asked] == [None, "1", None, "1"]


@pytest.mark.parametrize("passed", [False, True])
async def test_the_window_slows_each_connection(
    session: aiohttp.ClientSession, passed: bool, eventually: Eventually
) -> None:
    first, second = b"id: 1\ndata: a\n\n", b"id: 2\ndata: b\n\n"
    window, seen = ByteWindow(len(first)), Seen()
    feed = Feed(first, second)
    async with feed as url:
        with offered(None if passed else window):
            source = event_source(session, url, backoff=FAST, window=window if passed else None)
            source.subscribe(seen)
        for n in range(1, 3):
            await eventually(lambda n=n: window.read == len(first) * n and window.stalls == n)
            assert (len(feed.asked), len(seen)) == (n, n)  # the connection's end is not even read
            window.release(window.read)
        assert await seen.outcome() == "completed"


async def test_iterate_slows_each_connection(session: aiohttp.ClientSession) -> None:
    window = ByteWindow(100)
    feed = Feed(*[b"id: %d\ndata: %b\n\n" % (n, b"x" * 10_000) for n in range(3)])
    async with feed as url:
        got = [event.id async for event in iterate(event_source(session, url, backoff=FAST), window=window)]
    assert (got, window.read) == (["0", "1", "2"], 3 * len(b"id: 0\ndata: \n\n" + b"x" * 10_000))


async def test_the_meter_counts_all_connections(session: aiohttp.ClientSession) -> None:
    meter, seen = Meter(), Seen()
    async with Feed(b": hi\n\nid: 1\ndata: a\n\n", b"id: 2\ndata: b\n\n") as url:
        with metering(meter):
            event_source(session, url, backoff=FAST).subscribe(seen)
        await seen.outcome()
    assert (meter.bytes_read, meter.heartbeats) == (6 + 15 + 15, 1)


async def test_nothing_is_pushed_inside_subscribe(session: aiohttp.ClientSession) -> None:
    async with Feed(b"id: 1\ndata: a\n\n") as url:
        seen = Seen()
        event_source(session, url, backoff=FAST).subscribe(seen)
        assert seen == []
        await seen.outcome()


async def test_a_hundred_connections_leave_nothing_behind(
    session: aiohttp.ClientSession, eventually: Eventually
) -> None:
    feed = Feed(*[stream(b"id: %d\ndata: a\n\n" % n, then=(None, cut)[n % 2]) for n in range(100)])
    async with feed as url:
        tasks = len(asyncio.all_tasks())
        seen = await events_of(session, url)
        await eventually(lambda: feed.open == 0 and len(asyncio.all_tasks()) <= tasks + 1)  # the server's last one
        assert session.connector is not None
        assert not session.connector._acquired
    assert (len(seen), seen[-1]) == (101, "completed")


# Other ways to resume


async def test_a_server_may_resume_by_a_query_parameter(session: aiohttp.ClientSession) -> None:
    feed = Feed(b"id: a b\ndata: a\n\n", b"id: c\ndata: b\n\nid:\n\n")
    async with feed as url:
        resume = ResumeBy("since", "query")
        seen = await events_of(session, url + "?x=1&since=0", resume=resume, params={"y": "2"})
    assert [asked.query for asked in feed.asked] == ["x=1&since=0&y=2", "x=1&y=2&since=a b", "x=1&y=2"]
    assert [asked.last_event_id for asked in feed.asked] == [None] * 3
    assert data_of(seen) == ["a", "b"]


async def test_numbers_in_the_payload_may_be_the_place(session: aiohttp.ClientSession) -> None:
    feed = Feed(b"data: 0\n\ndata: 1\n\ndata: x\n\n", b"data: x\n\ndata: 1\n\ndata: 2\n\ndata: 0\n\n")
    async with feed as url:
        resume = ResumeBy("after", "query", lambda event: int(event.data) if event.data.isdigit() else None)
        seen = await events_of(session, url, resume=resume)
    # Only the beginning of a connection can be a repetition; an event without a number is none.
    assert data_of(seen) == ["0", "1", "x", "x", "2", "0"]
    assert [asked.query for asked in feed.asked] == ["", "after=1", "after=0"]


def response_event(number: int, kind: str, more: bytes = b"") -> bytes:
    return b'event: %b\ndata: {"type":"%b","sequence_number":%d%b}\n\n' % ((kind.encode(),) * 2 + (number, more))


def background_answer(background: bytes = b"true") -> list[bytes]:
    about = b',"response":{"id":"resp/1","background":%b,"status":"in_progress"}' % background
    text = b',"output_index":0,"content_index":0,"delta":"%b"'
    ended = b',"response":{"id":"resp/1","status":"completed"}'
    return [
        response_event(0, "response.created", about),
        *(response_event(n, "response.output_text.delta", text % word) for n, word in enumerate((b"a", b"b", b"c"), 1)),
        response_event(4, "response.completed", ended),
    ]


async def test_a_background_response_is_resumed_by_get_and_starting_after(session: aiohttp.ClientSession) -> None:
    events = background_answer()
    feed = Feed(
        stream(b"".join(events[:2]) + events[2][:30], then=cut),
        stream(events[1] + events[2], then=cut),  # from the last one on, inclusively
        b"".join(events[3:]),
    )
    async with feed as url:
        address = url + "v1/responses?api-version=9"
        options: dict[str, Any] = {
            "json": {"stream": True, "background": True},
            "headers": {"Authorization": "Bearer k"},
        }
        source = event_source(
            session, address, method="POST", resume=background_response(address), backoff=FAST, **options
        )
        seen = Seen()
        source.pipe(decode_deltas(OPENAI_RESPONSES), assemble_tools(), require_done()).subscribe(seen)
        assert await seen.outcome() == "completed"
    assert [delta.text for delta in seen if isinstance(delta, TextDelta)] == ["a", "b", "c"]
    path = "/v1/responses/resp/1"
    assert [(asked.method, asked.path) for asked in feed.asked] == [("POST", "/v1/responses"), *[("GET", path)] * 2]
    assert [asked.query for asked in feed.asked[1:]] == [
        f"api-version=9&stream=true&starting_after={number}" for number in (1, 2)
    ]
    assert [asked.body for asked in feed.asked[1:]] == [b"", b""]
    assert all(asked.headers["Authorization"] == "Bearer k" for asked in feed.asked)


@given(st.lists(st.integers(0, 400), max_size=4), st.integers(0, 2), st.sampled_from([None, cut]))
@settings(max_examples=40)
def test_wherever_a_background_response_is_cut_the_answer_is_the_same(
    cuts: list[int], back: int, end: Answer | None
) -> None:
    """The server resumes `back` events before the one that it should."""
    events = background_answer()
    first = len(events[0])

    def resumed(request: web.Request) -> Awaitable[web.StreamResponse]:
        start = max(int(request.query["starting_after"]) + 1 - back, 0)
        body = b"".join(events[start:])
        place = next(places, None)
        return stream(body[:place], then=None if place is None else end)(request)

    places = iter(cuts)

    async def go() -> list[Any]:
        feed = Feed(stream(b"".join(events)[: first + next(places, 0)], then=end), *[resumed] * 9)
        seen = Seen()
        async with feed as url, aiohttp.ClientSession() as session:
            source = event_source(
                session, url + "r", method="POST", json={}, resume=background_response(url + "r"), backoff=FAST
            )
            source.pipe(decode_deltas(OPENAI_RESPONSES), assemble_tools(), require_done()).subscribe(seen)
            await seen.outcome()
        return seen

    seen = asyncio.run(go())
    assert "".join(delta.text for delta in seen if isinstance(delta, TextDelta)) == "abc"
    assert (seen[-2:], seen.count(Done())) == ([Done(), "completed"], 1)


@pytest.mark.parametrize("background", [b"false", b"null"])
async def test_a_response_that_is_not_in_the_background_is_not_asked_for_again(
    session: aiohttp.ClientSession, background: bytes
) -> None:
    feed = Feed(stream(b"".join(background_answer(background)[:3]), then=cut))
    async with feed as url:
        seen = await events_of(session, url, method="POST", json={}, resume=background_response(url))
    assert (len(seen), type(seen[-1]), len(feed.asked)) == (4, TruncatedStream, 1)


async def test_a_response_whose_first_event_did_not_come_is_not_asked_for_again(session: aiohttp.ClientSession) -> None:
    feed = Feed(stream(background_answer()[0][:40], then=cut))
    async with feed as url:
        seen = await events_of(session, url, method="POST", json={}, resume=background_response(url))
    assert (len(seen), type(seen[-1]), len(feed.asked)) == (1, TruncatedStream, 1)
    assert seen[-1].retry_safe
