"""`connect`: one HTTP request, and an answer that is the stream that was asked for."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from ssl import SSLContext
from typing import Literal, TypedDict, cast
from urllib.parse import urlsplit

import aiohttp
import orjson
from aiohttp.http_exceptions import HttpProcessingError

from rillet.operators import Chain, Stage
from rillet.operators.decompress import Decompress
from rillet.operators.errors import (
    ConnectTimeout,
    HttpStatusError,
    IdleTimeout,
    NotAnEventStream,
    ProviderError,
    StreamError,
    TransportError,
)

from .protocols.payload import provider_error
from .timeouts import Timeouts

READ_BUFFER = 64 * 1024
BODY_SHOWN = 64 * 1024
BODY_SECONDS = 5.0
BROKE_OFF = " (the body broke off here)"
MAX_ENCODINGS = 5

_NUMBER = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")

FAILURES = (aiohttp.ClientError, HttpProcessingError, OSError, TimeoutError)
NO_URL = (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError)
BREAKS = (*FAILURES, RuntimeError)  # of a body: the last is aiohttp's for one whose session is just being closed

log = logging.getLogger(__name__)


class RequestOptions(TypedDict, total=False):
    """What `bytes_from` hands to `aiohttp.ClientSession.request`, which says what each means."""

    params: Mapping[str, str | int | float] | str
    data: bytes | str | Mapping[str, str] | aiohttp.FormData | None
    json: object
    headers: Mapping[str, str]
    cookies: Mapping[str, str]
    auth: aiohttp.BasicAuth
    skip_auto_headers: Iterable[str]
    allow_redirects: bool
    max_redirects: int
    compress: str | bool
    proxy: str
    proxy_auth: aiohttp.BasicAuth
    proxy_headers: Mapping[str, str]
    ssl: SSLContext | bool | aiohttp.Fingerprint
    server_hostname: str
    timeout: aiohttp.ClientTimeout
    trace_request_ctx: object
    read_bufsize: int


async def connect(
    session: aiohttp.ClientSession,
    method: str,
    url: str,
    *,
    content_type: str | None,
    timeouts: Timeouts,
    request: RequestOptions,
) -> aiohttp.ClientResponse:
    """Make a request, and give its answer where that is the stream that was asked for; otherwise it is closed.

    The body is left compressed: see `decoder`.

    Args:
        session: The session to use.
        method: The HTTP method.
        url: Where to.
        content_type: The content type that the answer must have, parameters aside; None takes any.
        timeouts: `connect` and `liveness` count here; see `in_force`.
        request: Further arguments of `aiohttp.ClientSession.request`.

    Raises:
        HttpStatusError: Its status is not 200.
        NotAnEventStream: Its content type is another.
        TransportError: There was no answer.
        IdleTimeout: There was a connection, and no answer in time.
    """
    response = await _request(session, method, url, content_type, timeouts, request)
    if log.isEnabledFor(logging.DEBUG):
        came, encoding = (response.headers.get(f"Content-{name}", f"no {name}") for name in ("Type", "Encoding"))
        log.debug("%s %s: %d, %s, %s", method, _place(url), response.status, came, encoding)
    try:
        await _check(response, content_type)
    except BaseException:
        response.close()
        raise
    return response


def in_force(timeouts: Timeouts, session: aiohttp.ClientSession, request: RequestOptions) -> Timeouts:
    """The timeouts of one request: the shorter of these and of aiohttp's own, the request's or else the session's.

    A `total` of the session's would cut a long answer: it does not count.
    """
    asked = request.get("timeout")
    own = asked or session.timeout
    return Timeouts(
        connect=_shorter(own.connect, timeouts.connect),
        liveness=_shorter(own.sock_read, timeouts.liveness),
        progress=_shorter(timeouts.progress),
        total=_shorter(asked.total if asked else None, timeouts.total),
    )


def decoder(response: aiohttp.ClientResponse) -> Stage[bytes, bytes] | None:
    """What undoes the content encodings of an answer, the last one applied first; None where there is none.

    It gives empty pieces too, so that whoever unpacks a bomb can let others have their turns.

    Raises:
        TransportError: One is unknown here, or its package is not installed, or there are too many.
    """
    encodings = ",".join(response.headers.getall("Content-Encoding", ())).lower().split(",")
    wanted = [name for encoding in reversed(encodings) if (name := encoding.strip()) not in ("", "identity")]
    if len(wanted) > MAX_ENCODINGS:
        raise TransportError(f"the body is encoded {len(wanted):,} times over: {MAX_ENCODINGS} are the most")
    try:
        return Chain(*(Decompress(name, paced=True) for name in wanted)) if wanted else None
    except ModuleNotFoundError as error:
        raise TransportError(f"the body is compressed as {wanted}: install rillet[compress] to read it") from error
    except ValueError as error:
        raise TransportError(f"the body is encoded as {wanted}, which nobody here can read") from error


async def _request(
    session: aiohttp.ClientSession,
    method: str,
    url: str,
    content_type: str | None,
    timeouts: Timeouts,
    request: RequestOptions,
) -> aiohttp.ClientResponse:
    headers = dict(request.get("headers", {}))
    if content_type is not None and "accept" not in map(str.lower, headers):
        headers["Accept"] = content_type
    options: RequestOptions = {"read_bufsize": READ_BUFFER, **request, "headers": headers}
    own = request.get("timeout") or session.timeout
    options["timeout"] = aiohttp.ClientTimeout(
        total=None, connect=timeouts.connect, sock_connect=own.sock_connect, sock_read=timeouts.liveness
    )
    try:
        return await session.request(method, url, raise_for_status=False, auto_decompress=False, **options)
    except aiohttp.InvalidURL as error:
        if _is_own(error, url):
            raise
        raise TransportError("the server redirects to no URL", retry_safe=True) from error
    except aiohttp.NonHttpUrlClientError as error:
        if not isinstance(error, aiohttp.NonHttpUrlRedirectClientError):
            raise
        raise TransportError("the server redirects to no HTTP URL", retry_safe=True) from error
    except aiohttp.ConnectionTimeoutError as error:
        message = f"no connection to {urlsplit(url).hostname} in time"
        raise ConnectTimeout(message, retry_safe=True) from error
    except aiohttp.SocketTimeoutError:
        raise silence("liveness", timeouts.liveness, 0) from None  # as later, where it is not aiohttp that times it
    except (*FAILURES, UnicodeError) as error:
        reason = (isinstance(error, OSError) and error.strerror) or type(error).__name__
        raise TransportError(f"no answer from {urlsplit(url).hostname}: {reason}", retry_safe=True) from error
    except ValueError as error:
        if "Cannot combine" not in str(error) or _gives_credentials_twice(session, url, request):
            raise  # the caller's mistake
        raise TransportError("the server redirects to a URL with credentials", retry_safe=True) from error


def _is_own(error: aiohttp.InvalidURL, url: str) -> bool:
    """Whether it complains of what the caller gave, or of where the server redirects to."""
    if isinstance(error, aiohttp.InvalidUrlRedirectClientError):
        return False
    return not isinstance(error, aiohttp.InvalidUrlClientError) or str(error.url) in url  # which may be the host alone


def _gives_credentials_twice(session: aiohttp.ClientSession, url: str, request: RequestOptions) -> bool:
    names = map(str.lower, (*request.get("headers", {}), *session.headers))
    ways = (
        request.get("auth") or session.auth or session.trust_env,
        "@" in urlsplit(url).netloc,
        "authorization" in names,
    )
    return sum(map(bool, ways)) > 1


def silence(which: Literal["liveness", "progress"], seconds: float | None, bytes_seen: int) -> IdleTimeout:
    """The error for a connection on which no byte, or nothing but heartbeats, came for so many seconds."""
    what = "no byte" if which == "liveness" else "nothing but heartbeats"
    waited = "in time" if seconds is None else f"for {seconds:g} s"
    message = f"{what} came {waited}, after {bytes_seen:,} bytes of the body"
    return IdleTimeout(message, which=which, seconds=seconds, bytes_seen=bytes_seen)


def _shorter(*seconds: float | None) -> float | None:
    return min((some for some in seconds if some), default=None)


def _place(url: str) -> str:
    """Where a request goes, without what may be a secret: user, password, query."""
    parts = urlsplit(url)
    return f"{parts.netloc.rpartition('@')[2]}{parts.path}"


async def _check(response: aiohttp.ClientResponse, content_type: str | None) -> None:
    came = response.headers.get("Content-Type", "")
    if response.status != HTTPStatus.OK:
        body = await _body(response)
        error = HttpStatusError(
            response.status,
            response.headers.copy(),
            body,
            retry_after=_retry_after(response.headers),
            details=_details(body, response.headers),
        )
        if response.status in (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED):
            error.add_note(_asked_for(response))
        raise error
    if content_type is not None and _essence(came) != content_type:
        page = NotAnEventStream(came, await _body(response), status=response.status, expected=content_type)
        page.add_note(_asked_for(response))
        raise page


def _asked_for(response: aiohttp.ClientResponse) -> str:
    return f"asked for was {response.method} {_place(str(response.url))}"


async def _body(response: aiohttp.ClientResponse) -> str:
    """The start of a body that is not what was asked for; what can't be read of it does not matter."""
    body = bytearray()
    try:
        unpack = decoder(response)
        async with asyncio.timeout(BODY_SECONDS):
            while len(body) < BODY_SHOWN and (chunk := await response.content.readany()):
                for piece in unpack.feed((chunk,)) if unpack else (chunk,):
                    body += piece
                    if len(body) >= BODY_SHOWN:
                        break
                    await asyncio.sleep(0)  # a bomb must not stop the loop, nor its timers
    except (*BREAKS, StreamError):
        return body[:BODY_SHOWN].decode("utf-8", "replace") + BROKE_OFF
    return body[:BODY_SHOWN].decode("utf-8", "replace")


def _details(body: str, headers: Mapping[str, str]) -> ProviderError | None:
    """What an error's body says of it, where that is JSON as providers write it."""
    try:
        payload: object = orjson.loads(body.removesuffix(BROKE_OFF))
        if isinstance(payload, list) and payload:  # Google's, without alt=sse
            payload = cast("list[object]", payload)[0]
        if not isinstance(payload, dict):
            return None
        said = cast("dict[str, object]", payload)
        details = provider_error(said.get("error") or said, said)
    except (orjson.JSONDecodeError, RecursionError):
        return None
    # AWS names the kind of error, and the place that explains it, in a header.
    kind = details.type or headers.get("x-amzn-ErrorType", "").partition(":")[0]
    return ProviderError(details.message, type=kind or None, code=details.code, status=details.status)


def _essence(content_type: str) -> str:
    """The media type without its parameters; of several headers in one, the last counts (Fetch §2.2.5)."""
    return content_type.rpartition(",")[2].partition(";")[0].strip().lower()


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait (RFC 9110 §10.2.3): a number of them, or a date; OpenAI has one in ms; some have fractions."""
    for name, unit in (("retry-after-ms", 0.001), ("Retry-After", 1.0)):
        wanted = headers.get(name, "").strip()
        if _NUMBER.fullmatch(wanted):
            return float(wanted) * unit
    with suppress(ValueError, OverflowError):
        until = parsedate_to_datetime(headers.get("Retry-After", ""))
        if until.tzinfo is None:  # the old form of a date names no zone, and means UTC
            until = until.replace(tzinfo=UTC)
        return max(0.0, (until.astimezone(UTC) - datetime.now(UTC)).total_seconds())
    return None
