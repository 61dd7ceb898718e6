"""What an answer is, before it is a stream: errors by status, wrong types, redirects, encodings; over real servers."""

from __future__ import annotations

import asyncio
import gzip
import json
import sys
import time
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import aiohttp
import brotli
import pytest
from aiohttp import web
from compressors import CODECS
from hypothesis import given
from hypothesis import strategies as st

from rillet.operators import Delta, Done, TextDelta
from rillet.operators.errors import (
    HttpStatusError,
    LimitExceeded,
    NotAnEventStream,
    TransportError,
    TruncatedStream,
)
from rillet.pipeline import Limits, ask, bytes_from, connect, deltas, iterate

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serving(answer: Answer) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/"
    finally:
        await runner.cleanup()


async def answered(session: aiohttp.ClientSession, response: web.Response, **options: Any) -> bytes:
    """The body of this response, or the error."""

    async def answer(request: web.Request) -> web.Response:
        return response

    async with serving(answer) as url, asyncio.timeout(10):
        return b"".join([piece async for piece in iterate(bytes_from(session, "GET", url, **options))])


async def refused(session: aiohttp.ClientSession, response: web.Response) -> HttpStatusError:
    with pytest.raises(HttpStatusError) as caught:
        await answered(session, response)
    return caught.value


# Status


ERROR_BODIES: dict[str, tuple[object, tuple[object, object, str]]] = {
    "OpenAI": (
        {"error": {"message": "Slow down", "type": "requests", "param": None, "code": "rate_limit_exceeded"}},
        ("requests", "rate_limit_exceeded", "Slow down"),
    ),
    "Anthropic": (
        {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}, "request_id": "r"},
        ("overloaded_error", None, "Overloaded"),
    ),
    "Google": (
        {"error": {"code": 429, "message": "Out of quota", "status": "RESOURCE_EXHAUSTED"}},
        ("RESOURCE_EXHAUSTED", 429, "Out of quota"),
    ),
    "Google, as a list": (
        [{"error": {"code": 429, "message": "Out of quota", "status": "RESOURCE_EXHAUSTED"}}],
        ("RESOURCE_EXHAUSTED", 429, "Out of quota"),
    ),
    "Cohere": ({"id": "1", "message": "invalid api token"}, (None, None, "invalid api token")),
    "Ollama": ({"error": "model 'x' not found"}, (None, None, "model 'x' not found")),
    "AWS": (
        {"message": "Too many tokens", "__type": "ThrottlingException"},
        ("ThrottlingException", None, "Too many tokens"),
    ),
    "AWS, in capitals": ({"Message": "no such model"}, (None, None, "no such model")),
    "FastAPI": ({"detail": "Not Found"}, (None, None, "Not Found")),
    "FastAPI, of several fields": (
        {
            "detail": [
                {"type": "missing", "loc": ["body", "model"], "msg": "Field required", "input": {"prompt": "private"}},
                {"type": "int", "loc": ["body", "n"], "msg": "Not an integer", "input": "private"},
            ]
        },
        (None, None, "body.model: Field required; body.n: Not an integer"),
    ),
}


@pytest.mark.parametrize(("body", "said"), ERROR_BODIES.values(), ids=ERROR_BODIES)
async def test_an_error_says_what_its_body_says(
    session: aiohttp.ClientSession, body: object, said: tuple[object, object, str]
) -> None:
    error = await refused(session, web.json_response(body, status=429, headers={"X-Request-Id": "r"}))
    assert (error.type, error.code, error.message) == said
    assert (error.status, error.headers["X-Request-Id"], json.loads(error.body)) == (429, "r", body)
    assert error.retry_safe
    assert said[2] in str(error)
    assert "private" not in str(error)


async def test_aws_names_the_error_in_a_header(session: aiohttp.ClientSession) -> None:
    headers = {"x-amzn-ErrorType": "ThrottlingException:http://internal.example/coral"}
    error = await refused(session, web.json_response({"message": "wait"}, status=429, headers=headers))
    assert (error.type, error.message) == ("ThrottlingException", "wait")


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "7"}, 7.0),
        ({"Retry-After": "1.5"}, 1.5),
        ({"Retry-After": "9", "retry-after-ms": "250"}, 0.25),
        ({"Retry-After": "9", "retry-after-ms": "soon"}, 9.0),
        ({"Retry-After": "-1"}, None),
        ({"Retry-After": "1e9"}, None),
        ({"Retry-After": "9" * 400}, None),
        ({}, None),
    ],
)
async def test_how_long_to_wait(session: aiohttp.ClientSession, headers: dict[str, str], seconds: float | None) -> None:
    assert (await refused(session, web.Response(status=503, headers=headers))).retry_after == seconds


def test_a_date_without_a_zone_is_in_utc_wherever_we_are(monkeypatch: pytest.MonkeyPatch) -> None:
    in_an_hour = time.strftime("%a %b %d %H:%M:%S %Y", time.gmtime(time.time() + 3_600))
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        seconds = connect._retry_after({"Retry-After": in_an_hour})
    finally:
        monkeypatch.undo()
        time.tzset()
    assert seconds is not None
    assert 3_000 < seconds <= 3_600


HOSTILE: dict[str, bytes] = {
    "nothing": b"",
    "a page": b"<!doctype html><title>Bad gateway</title>",
    "no UTF-8": b"\xff\xfe{\x00",
    "null": b"null",
    "a number": b"1" * 1_000,
    "an empty list": b"[]",
    "a list of lists": b"[[[]]]",
    "an error that is null": b'{"error":null}',
    "an error that is a list": b'{"error":[1,{"message":"x"},null]}',
    "a message that is an object": b'{"error":{"message":{"detail":[{"loc":1,"msg":"x"}]}}}',
    "deep": b'{"error":{"message":' + b"[" * 1_000 + b"]" * 1_000 + b"}}",
    "deep objects": b'{"error":{"message":' + b'{"msg":' * 1_000 + b"1" + b"}" * 1_001 + b"}",
    "too deep": b'{"error":' * 20_000,
    "codes that are none": b'{"error":{"code":[1],"type":{},"status":1e99,"message":false}}',
    "a lone surrogate": b'{"error":{"message":"\\ud800"}}',
    "very long": b'{"error":{"message":"' + b"x" * 60_000 + b'"}}',
    "too long": b'{"error":{"message":"' + b"x" * 200_000 + b'"}}',
}


@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE)
async def test_a_hostile_body_hurts_nobody(session: aiohttp.ClientSession, body: bytes) -> None:
    error = await refused(session, web.Response(status=500, body=body))
    assert error.status == 500
    assert len(error.body) <= 64 * 1024
    assert len(str(error)) < 1_000


def error_objects(inner: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    keys = st.sampled_from(["error", "message", "detail", "code", "type", "status", "msg", "loc", "status_code"])
    return st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4)


@given(body=st.recursive(st.none() | st.booleans() | st.integers() | st.text(), error_objects))
def test_any_json_is_an_error_s_body(body: object) -> None:
    details = connect._details(json.dumps(body), {})
    assert details is None or isinstance(details.message, str)


async def test_an_error_s_body_that_breaks_off_still_says_what_came(session: aiohttp.ClientSession) -> None:
    body = b'{"error":{"message":"Slow down","type":"requests"}}'

    async def unended(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 429 No\r\nContent-Type: application/json\r\nContent-Length: 9999\r\n\r\n" + body)
        writer.close()

    server = await asyncio.start_server(unended, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        with pytest.raises(HttpStatusError, match="Slow down") as caught:
            await anext(iterate(bytes_from(session, "GET", url)))
    assert caught.value.body == body.decode() + " (the body broke off here)"


async def test_a_compressed_error_is_read(session: aiohttp.ClientSession) -> None:
    body = gzip.compress(b'{"error":{"message":"Slow down"}}')
    error = await refused(session, web.Response(status=429, body=body, headers={"Content-Encoding": "gzip"}))
    assert error.message == "Slow down"


async def test_a_bomb_in_an_error_is_read_no_further_than_shown(session: aiohttp.ClientSession) -> None:
    body = gzip.compress(bytes(1 << 24))
    error = await refused(session, web.Response(status=500, body=body, headers={"Content-Encoding": "gzip"}))
    assert len(error.body) == 64 * 1024


async def test_no_content_is_no_stream(session: aiohttp.ClientSession) -> None:
    error = await refused(session, web.Response(status=204))
    assert (error.status, error.body) == (204, "")


# Content type


async def test_another_content_type_tells_what_came(session: aiohttp.ClientSession) -> None:
    page = "<!doctype html>\n<title>Sign in</title>\n" + "<p>please</p>\n" * 20_000
    with pytest.raises(NotAnEventStream) as caught:
        await answered(session, web.Response(text=page, content_type="text/html"))
    error = caught.value
    assert (error.status, error.content_type) == (200, "text/html; charset=utf-8")
    assert error.snippet.startswith("<!doctype html> <title>Sign in</title> <p>please</p>")
    assert (len(error.snippet), len(error.body)) == (200, 64 * 1024)
    assert "Sign in" not in str(error)


# Redirects


async def redirecting(request: web.Request) -> web.Response:
    if request.path == "/":
        raise web.HTTPTemporaryRedirect("/there")
    return web.Response(body=b"data: x\n\n", content_type="text/event-stream")


async def test_bytes_from_follows_a_redirect(session: aiohttp.ClientSession) -> None:
    async with serving(redirecting) as url:
        assert [piece async for piece in iterate(bytes_from(session, "POST", url))] == [b"data: x\n\n"]


async def test_a_redirect_that_is_not_to_be_followed_is_a_status(session: aiohttp.ClientSession) -> None:
    async with serving(redirecting) as url:
        with pytest.raises(HttpStatusError) as caught:
            await anext(iterate(bytes_from(session, "POST", url, allow_redirects=False)))
    assert (caught.value.status, caught.value.headers["Location"]) == (307, "/there")


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_key_goes_nowhere_but_where_it_was_sent(session: aiohttp.ClientSession, status: int) -> None:
    elsewhere: list[web.Request] = []

    async def thief(request: web.Request) -> web.Response:
        elsewhere.append(request)
        return web.Response()

    async with serving(thief) as far:

        async def gate(request: web.Request) -> web.Response:
            return web.Response(status=status, headers={"Location": far})

        async with serving(gate) as near:
            for provider in ("openai", "anthropic", "gemini"):
                with pytest.raises(HttpStatusError) as caught:
                    await anext(iterate(ask(session, "hi", "secret", provider=provider, base_url=near)))
                assert caught.value.status == status
    assert elsewhere == []


async def test_a_redirect_to_credentials_beside_those_of_the_request_is_a_transport_error(
    session: aiohttp.ClientSession,
) -> None:
    async def answer(request: web.Request) -> web.Response:
        raise web.HTTPFound(f"http://user:password@{request.host}/else")

    async with serving(answer) as url:
        with pytest.raises(TransportError, match="redirects to a URL with credentials"):
            await anext(iterate(bytes_from(session, "GET", url, headers={"Authorization": "Bearer key"})))


@pytest.mark.parametrize(
    ("method", "request_", "says"),
    [("GE T", {}, "Method"), ("POST", {"data": b"x", "json": {}}, "at the same time")],
)
async def test_a_request_that_can_t_be_made_is_the_callers_mistake(
    session: aiohttp.ClientSession, method: str, request_: dict[str, Any], says: str
) -> None:
    with pytest.raises(ValueError, match=says) as caught:
        await anext(iterate(bytes_from(session, method, "http://127.0.0.1:9/", **request_)))
    assert type(caught.value) is ValueError


async def test_credentials_that_the_caller_gives_twice_are_the_callers_mistake(session: aiohttp.ClientSession) -> None:
    url = "http://user:password@127.0.0.1:9/"
    with pytest.raises(ValueError, match="Cannot combine") as caught:
        await anext(iterate(bytes_from(session, "GET", url, headers={"Authorization": "Bearer key"})))
    assert type(caught.value) is ValueError


async def test_redirects_without_end_are_a_transport_error(session: aiohttp.ClientSession) -> None:
    async def again(request: web.Request) -> web.Response:
        raise web.HTTPFound("/")

    async with serving(again) as url:
        with pytest.raises(TransportError, match="TooManyRedirects"):
            await anext(iterate(bytes_from(session, "GET", url)))


# Encodings


HI = b'data: {"choices":[{"index":0,"delta":{"content":"Hi"}}]}\n\n'
each_codec = pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)


def encoded(body: bytes, encoding: str) -> web.Response:
    return web.Response(body=body, headers={"Content-Type": "text/event-stream", "Content-Encoding": encoding})


@each_codec
async def test_a_flushed_event_shows_before_the_next_is_sent(
    session: aiohttp.ClientSession, codec: tuple[str, Callable[[], Any]]
) -> None:
    encoding, new = codec
    seen = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        compressor = new()
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Content-Encoding": encoding})
        await response.prepare(request)
        for _ in range(5):
            await response.write(compressor.compress(HI) + compressor.flush(zlib.Z_SYNC_FLUSH))
            await seen.wait()
            seen.clear()
        await response.write(compressor.compress(b"data: [DONE]\n\n") + compressor.flush())
        return response

    items: list[Delta] = []
    async with serving(answer) as url, asyncio.timeout(5):
        async for delta in iterate(deltas(bytes_from(session, "GET", url), "openai-chat")):
            items.append(delta)
            seen.set()
    assert items == [*[TextDelta("Hi")] * 5, Done()]


async def test_several_encodings_are_undone_from_the_last(session: aiohttp.ClientSession) -> None:
    body = brotli.compress(gzip.compress(HI))
    assert await answered(session, encoded(body, "gzip, identity, BR")) == HI
    twice = encoded(body, "gzip")
    twice.headers.add("Content-Encoding", "br")
    assert await answered(session, twice) == HI
    with pytest.raises(TruncatedStream):
        await answered(session, encoded(brotli.compress(gzip.compress(HI)[:-1]), "gzip, br"))


@pytest.mark.parametrize(
    ("encoding", "message"),
    [("rot13", "nobody here can read"), (", ".join(["gzip"] * 6), "6 times"), (",".join(["gzip"] * 1_500), "1,500")],
)
async def test_an_encoding_that_is_not_to_be_undone_is_told(
    session: aiohttp.ClientSession, encoding: str, message: str
) -> None:
    with pytest.raises(TransportError, match=message):
        await answered(session, encoded(HI, encoding))


@pytest.mark.parametrize("encoding", ["br", "zstd"])
async def test_a_missing_package_is_told(
    session: aiohttp.ClientSession, encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("brotli", "backports.zstd", "compression.zstd"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(TransportError, match=r"install rillet\[compress\]") as caught:
        await answered(session, encoded(b"x", encoding))
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)


async def test_concatenated_members_are_one_body(session: aiohttp.ClientSession) -> None:
    body = b"".join(map(gzip.compress, (HI, b"", HI)))
    assert await answered(session, encoded(body, "gzip")) == HI * 2


@each_codec
async def test_an_empty_compressed_body_is_empty(
    session: aiohttp.ClientSession, codec: tuple[str, Callable[[], Any]]
) -> None:
    assert await answered(session, encoded(b"", codec[0])) == b""
    assert await answered(session, encoded(codec[1]().flush(), codec[0])) == b""


@each_codec
async def test_damaged_bytes_are_a_transport_error_with_its_cause(
    session: aiohttp.ClientSession, codec: tuple[str, Callable[[], Any]]
) -> None:
    compressor = codec[1]()
    body = compressor.compress(HI) + compressor.flush(zlib.Z_SYNC_FLUSH) + b"\xff" * 50
    with pytest.raises(TransportError) as caught:
        await answered(session, encoded(body, codec[0]))
    assert caught.value.__cause__ is not None


def test_no_encoding_costs_nothing() -> None:
    for encoding in ("", "identity", " , identity"):
        headers = aiohttp.typedefs.CIMultiDict({"Content-Encoding": encoding} if encoding else {})
        assert connect.decoder(SimpleNamespace(headers=headers)) is None  # type: ignore[arg-type]


# Bombs


def comment_bomb(size: int) -> Iterator[bytes]:
    """A gzip body of an event stream that says nothing, a thousandth of its size."""
    member = gzip.compress((b":" * 1_023 + b"\n") * 4_096)
    for _ in range(size >> 22):
        yield member


async def test_limits_count_what_is_unpacked_and_a_bomb_is_stopped_there(session: aiohttp.ClientSession) -> None:
    body = b"".join(comment_bomb(1 << 30))
    assert len(body) < 8 << 20

    async def answer(request: web.Request) -> web.Response:
        return encoded(body, "gzip")

    limits = Limits(max_bytes=4 << 20)
    async with serving(answer) as url:
        source = bytes_from(session, "GET", url)
        with pytest.raises(LimitExceeded) as caught:
            await anext(iterate(deltas(source, "openai-chat", limits=limits)))
    error = caught.value
    assert (error.which, error.limit) == ("max_bytes", 4 << 20)
    assert error.bytes_seen is not None
    assert error.bytes_seen <= (4 << 20) + 64 * 1024


async def test_a_bomb_inside_a_bomb_that_gives_nothing_gives_turns(session: aiohttp.ClientSession) -> None:
    body = gzip.compress(gzip.compress(b"") * (1 << 18))
    response = web.Response(body=body, headers={"Content-Encoding": "gzip, gzip"})
    unpack = connect.decoder(cast("aiohttp.ClientResponse", response))
    assert unpack is not None
    given = list(unpack.feed((body,)))
    assert not any(given)
    assert len(given) >= (20 << 18) // (64 * 1024)
    assert await answered(session, response, content_type=None) == b""


async def test_a_bomb_takes_no_memory_but_the_piece_in_hand(session: aiohttp.ClientSession) -> None:
    body = b"".join(comment_bomb(1 << 28))

    async def answer(request: web.Request) -> web.Response:
        return encoded(body, "gzip")

    async with serving(answer) as url:
        tracemalloc.start()
        try:
            with pytest.raises(LimitExceeded):
                await anext(iterate(deltas(bytes_from(session, "GET", url), "openai-chat")))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < 32 << 20


@pytest.mark.parametrize("url", ["127.0.0.1:1/v1", "localhost:1", "ftp://127.0.0.1:1/"])
async def test_a_url_that_is_no_http_is_the_caller_s_mistake(session: aiohttp.ClientSession, url: str) -> None:
    with pytest.raises(aiohttp.NonHttpUrlClientError):
        await anext(iterate(bytes_from(session, "GET", url)))


@pytest.mark.parametrize(("status", "is_told"), [(404, True), (405, True), (401, False)])
async def test_what_is_not_there_says_where_it_was_asked_for_without_secrets(
    session: aiohttp.ClientSession, status: int, is_told: bool
) -> None:
    async def refuse(request: web.Request) -> web.Response:
        return web.Response(status=status)

    async with serving(refuse) as url:
        secret = url.replace("http://", "http://user:secret@") + "?key=secret"
        with pytest.raises(HttpStatusError) as caught:
            await anext(iterate(bytes_from(session, "POST", secret)))
    notes = getattr(caught.value, "__notes__", [])
    assert notes == ([f"asked for was POST {url.removeprefix('http://')}"] if is_told else [])
