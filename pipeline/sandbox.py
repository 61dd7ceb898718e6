"""A scripted provider on 127.0.0.1: the demo's server, and a test server for your own programs.

    async with Sandbox(Script(text="Hello"), Wire(seed=7), Fault("cut", after=300)) as base_url:
        ...

In a program without an event loop it is a plain `with`, which serves from a thread of its own.

It speaks each dialect where the provider's own clients look for it: below the base URL `openai-chat` at
/chat/completions, `openai-responses` at /responses and `plain` at /plain; below the root URL, which is the base URL
without /v1, `anthropic` at /v1/messages, `gemini` at /v1beta/models/{model}:streamGenerateContent (at /v1 too) and
`ollama` at /api/chat. A response that was asked for with `background` true is resumed by
GET /v1/responses/{id}?stream=true&starting_after={number}. A script says what is answered, a wire how the bytes
travel, a fault how they end badly. A replay in the script's place answers every request with what a `recorder` wrote.
"""

from __future__ import annotations

import asyncio
import json
import random
import socket
import struct
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from types import TracebackType
from typing import Literal, TypeAlias, get_args

from aiohttp import web

from rillet.operators.value import value

from .recorder import Recording
from .scripting import (
    DEFAULT_SCRIPT,
    DEMO,
    Payload,
    Script,
    ScriptedCall,
    anthropic_error,
    anthropic_events,
    gemini_error,
    gemini_events,
    ollama_error,
    ollama_lines,
    openai_chat_events,
    openai_error,
    openai_error_event,
    openai_responses_events,
    plain_events,
)

__all__ = ["DEMO", "Fault", "FaultKind", "Replay", "Request", "Sandbox", "Script", "ScriptedCall", "Wire"]

_Give: TypeAlias = "Callable[[web.Request, Request], Awaitable[web.StreamResponse]]"

FaultKind: TypeAlias = Literal["cut", "end", "error", "stall", "reset", "status", "html"]
"""How a stream ends badly; see `Fault`."""


@value
class Wire:
    """How the bytes travel.

    Attributes:
        sizes: The sizes of the writes in bytes, repeated as long as needed; by default one event a write.
        seed: Instead of `sizes`, random ones of 1 to 64 bytes from this seed: inside characters, CRLFs and events.
        delay: Seconds between writes.
        rate: Bytes a second at most; None for no limit.
        comments: How many comments stand before each event. `ollama` has none, and Google's own client takes none.
        crlf: Whether lines end in CRLF; those of `gemini` always do.
    """

    sizes: tuple[int, ...] = ()
    seed: int | None = None
    delay: float = 0.0
    rate: float | None = None
    comments: int = 0
    crlf: bool = False


@value
class Fault:
    """How it ends badly.

    Attributes:
        kind: After `after` bytes of the body: "cut" closes the connection without the end of the body, "end" ends the
            body as if it were whole, "reset" resets the connection, "stall" sends nothing more and keeps it open,
            "error" sends an error event and ends the body. Instead of a stream: "status" answers with an HTTP error,
            "html" with a page.
        after: How many bytes of the stream come first.
        status: The HTTP status for "status"; `anthropic` and `gemini` also name it in an "error".
    """

    kind: FaultKind
    after: int = 0
    status: int = 500


@value
class Replay:
    """A recorded answer: the same pieces, each in a write of its own, at their times, and the same end.

    What failed for want of bytes falls silent, a status that was no answer comes again, any other failure breaks the
    connection, and so does a recording that was cut. Where its reader had left, the body ends properly.

    Attributes:
        recording: What is answered, to every request at any path.
        pace: How many times as fast as it was; 1.0 by default, `math.inf` for as fast as it goes.
    """

    recording: Recording
    pace: float = 1.0


@dataclass(slots=True)
class Request:
    """A request that the sandbox got, and how far it came with the answer.

    Attributes:
        path: Its path.
        headers: Its headers.
        body: Its JSON.
        port: The client's port, by which its connection is known.
        sent: How many bytes of the body have been handed to the connection.
        over: Set when the sandbox is done with it, or the client has gone.
    """

    path: str
    headers: Mapping[str, str]
    body: Mapping[str, object]
    port: int
    sent: int = 0
    over: asyncio.Event = field(default_factory=asyncio.Event)


def _check(script: object, wire: object, fault: object) -> None:
    """A test whose sandbox does something else than it says may pass for the wrong reason."""
    if not (isinstance(script, Script | Replay) and isinstance(wire, Wire) and isinstance(fault, Fault | None)):
        raise TypeError("Sandbox takes a Script or a Replay, a Wire and a Fault, in this order or by name")
    if isinstance(script, Replay):
        _check_replay(script, wire, fault)
        return
    if not all(type(call) is ScriptedCall for call in script.calls):
        raise TypeError("the calls of a Script are ScriptedCalls")
    if script.piece < 1 or any(size < 1 for size in wire.sizes):
        raise ValueError("the pieces of a Script and the writes of a Wire have at least one character or byte")
    if fault is not None and fault.kind not in get_args(FaultKind):
        raise ValueError(f"no fault {fault.kind!r}; there are {', '.join(get_args(FaultKind))}")


def _check_replay(replay: Replay, wire: Wire, fault: Fault | None) -> None:
    if wire != Wire() or fault is not None:
        raise TypeError("a Replay has its own wire and its own end")
    if not replay.pace > 0:
        raise ValueError(f"the pace of a Replay is more than 0, not {replay.pace}")


class Sandbox:
    """The scripted provider, as a context manager, asynchronous or plain, that gives its base URL.

    Args:
        script: What is answered, to every request; or a replay.
        wire: How the bytes travel.
        fault: How it ends badly; by default it ends well.
        port: The port on 127.0.0.1; by default a free one.

    Attributes:
        base_url: "http://127.0.0.1:PORT/v1", while it runs.
        root_url: "http://127.0.0.1:PORT": the base URL for the clients of Anthropic, Google and Ollama.
        requests: The requests it got, oldest first.

    Raises:
        TypeError: An argument is in another's place.
        ValueError: A piece or a write has no size, there is no such fault, or no such pace.
    """

    def __init__(
        self,
        script: Script | Replay = DEFAULT_SCRIPT,
        wire: Wire = Wire(),
        fault: Fault | None = None,
        *,
        port: int = 0,
    ) -> None:
        _check(script, wire, fault)
        self.base_url = ""
        self.root_url = ""
        self.requests: list[Request] = []
        self._script = script
        self._wire = wire
        self._fault = fault
        self._port = port

    async def __aenter__(self) -> str:
        app = web.Application()
        if isinstance(self._script, Replay):
            app.router.add_route("*", "/{path:.*}", partial(self._answer, partial(self._replay, self._script)))
        else:
            for dialect in _DIALECTS:
                app.router.add_post(
                    dialect.path, partial(self._answer, partial(self._stream_or_fault, self._script, dialect))
                )
            app.router.add_get(f"{_RESPONSES.path}/{{id}}", partial(self._resume, self._script))
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port)
        try:
            await site.start()
        except OSError:
            await self._runner.cleanup()
            raise
        _, port = self._runner.addresses[0][:2]
        self.root_url = f"http://127.0.0.1:{port}"
        self.base_url = f"{self.root_url}/v1"
        return self.base_url

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._runner.cleanup()

    def __enter__(self) -> str:
        started: Future[str] = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(started)), name="sandbox", daemon=True)
        self._thread.start()
        try:
            return started.result()
        except Exception:
            self._thread.join()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._leave.set)
        self._thread.join()

    async def _serve(self, started: Future[str]) -> None:
        self._loop, self._leave = asyncio.get_running_loop(), asyncio.Event()
        try:
            base_url = await self.__aenter__()
        except Exception as error:
            started.set_exception(error)
            return
        started.set_result(base_url)
        await self._leave.wait()
        await self.__aexit__(None, None, None)

    async def requests_over(self) -> None:
        """Wait until the sandbox is done with every request it got, or their clients have gone."""
        for request in self.requests:
            await request.over.wait()

    async def _resume(self, script: Script, request: web.Request) -> web.StreamResponse:
        if not any(_is_background(asked) for asked in self.requests):
            return web.json_response(openai_error(404), status=404)
        rest = _background(int(request.query.get("starting_after", -1)))
        return await self._answer(partial(self._stream_or_fault, script, rest), request)

    async def _answer(self, give: _Give, request: web.Request) -> web.StreamResponse:
        body: dict[str, object] = await request.json() if request.can_read_body else {}
        assert request.transport is not None
        seen = Request(request.path, request.headers, body, request.transport.get_extra_info("peername")[1])
        self.requests.append(seen)
        try:
            return await give(request, seen)
        finally:
            seen.over.set()

    async def _stream_or_fault(
        self, script: Script, dialect: _Dialect, request: web.Request, seen: Request
    ) -> web.StreamResponse:
        if self._fault is not None and self._fault.kind == "status":
            return web.json_response(dialect.error(self._fault.status), status=self._fault.status)
        if self._fault is not None and self._fault.kind == "html":
            return web.Response(text="<!doctype html><title>Sign in</title>", content_type="text/html")
        body = self._body(script, _background() if _is_background(seen) else dialect)
        response = await _begun(request, dialect.content_type)
        for write in _cut(body, self._wire):
            await response.write(write)
            seen.sent += len(write)
            await asyncio.sleep(self._wire.delay + (len(write) / self._wire.rate if self._wire.rate else 0))
        await self._end(request, None if self._fault is None else self._fault.kind)
        return response

    async def _replay(self, replay: Replay, request: web.Request, seen: Request) -> web.StreamResponse:
        recording = replay.recording
        begin = asyncio.get_running_loop().time()
        if recording.status is not None:
            return web.json_response(openai_error(recording.status), status=recording.status)
        response = await _begun(request, recording.content_type)
        for piece in recording.pieces:
            await _until(begin + piece.seconds / replay.pace)
            await response.write(piece.data)
            seen.sent += len(piece.data)
        if recording.seconds is not None:
            await _until(begin + recording.seconds / replay.pace)
        await self._end(request, _replayed_fault(recording))
        return response

    def _body(self, script: Script, dialect: _Dialect) -> Iterator[bytes]:
        events = (dialect.frame(data, self._wire) for data in dialect.events(script))
        if self._fault is None:
            return events
        error = json.dumps(dialect.error_event(self._fault.status))
        return _ended(events, self._fault, dialect.frame(error, self._wire))

    async def _end(self, request: web.Request, kind: FaultKind | None) -> None:
        transport = request.transport
        if kind == "stall":
            await asyncio.Event().wait()  # until the client has gone, or the sandbox closes
        if kind == "reset" and transport is not None:
            linger = struct.pack("ii", 1, 0)  # closing then sends RST instead of FIN
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        if kind in ("cut", "reset") and transport is not None:
            transport.abort()


async def _begun(request: web.Request, content_type: str) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": content_type, "Cache-Control": "no-cache"})
    response.enable_chunked_encoding()
    await response.prepare(request)
    return response


async def _until(moment: float) -> None:
    """Sleep until the loop's clock says so; let others run at least."""
    await asyncio.sleep(max(0.0, moment - asyncio.get_running_loop().time()))


def _replayed_fault(recording: Recording) -> FaultKind | None:
    if recording.end in ("complete", "left"):
        return None
    return "stall" if recording.error_kind in ("idle_timeout", "deadline_exceeded") else "cut"


def _event(data: str, wire: Wire) -> bytes:
    return _lines(wire, *_comments(wire), f"data: {data}", "")


def _named_event(data: str, wire: Wire) -> bytes:
    return _lines(wire, *_comments(wire), f"event: {json.loads(data)['type']}", f"data: {data}", "")


def _crlf_event(data: str, wire: Wire) -> bytes:
    return _event(data, replace(wire, crlf=True))


def _line(data: str, wire: Wire) -> bytes:
    return _lines(wire, data)


def _comments(wire: Wire) -> list[str]:
    return [": still here", ""] * wire.comments


def _lines(wire: Wire, *lines: str) -> bytes:
    end = "\r\n" if wire.crlf else "\n"
    return "".join(line + end for line in lines).encode()


@value
class _Dialect:
    """Where and how one dialect is served: its events, what an error is outside and inside a stream, its framing."""

    path: str
    events: Callable[[Script], Iterator[str]]
    error: Callable[[int], Payload]
    error_event: Callable[[int], Payload]
    frame: Callable[[str, Wire], bytes]
    content_type: str = "text/event-stream"


_RESPONSES = _Dialect("/v1/responses", openai_responses_events, openai_error, openai_error_event, _named_event)

_DIALECTS = (
    _Dialect("/v1/plain", plain_events, openai_error, openai_error_event, _event),
    _Dialect("/v1/chat/completions", openai_chat_events, openai_error, openai_error, _event),
    _RESPONSES,
    _Dialect("/v1/messages", anthropic_events, anthropic_error, anthropic_error, _named_event),
    _Dialect(
        "/{version:v1|v1beta}/models/{model}:streamGenerateContent",
        gemini_events,
        gemini_error,
        gemini_error,
        _crlf_event,
    ),
    _Dialect("/api/chat", ollama_lines, ollama_error, ollama_error, _line, "application/x-ndjson"),
)


def _is_background(asked: Request) -> bool:
    return asked.path == _RESPONSES.path and asked.body.get("background") is True


def _background(after: int = -1) -> _Dialect:
    """A response that outlives its connection, after the event of this number."""
    return replace(_RESPONSES, events=partial(openai_responses_events, background=True, after=after))


def _ended(body: Iterator[bytes], fault: Fault, error: bytes) -> Iterator[bytes]:
    """The body as far as the fault lets it come; an error comes between two events."""
    room = fault.after
    for event in body:
        if len(event) > room:
            yield error if fault.kind == "error" else event[:room]
            return
        room -= len(event)
        yield event


def _cut(body: Iterator[bytes], wire: Wire) -> Iterator[bytes]:
    """The body in the pieces it is written in."""
    if not wire.sizes and wire.seed is None:
        yield from body
        return
    sizes = _sizes(wire)
    pending = bytearray()
    size = next(sizes)
    for event in body:
        pending += event
        while len(pending) >= size:
            yield bytes(pending[:size])
            del pending[:size]
            size = next(sizes)
    if pending:
        yield bytes(pending)


def _sizes(wire: Wire) -> Iterator[int]:
    rng = random.Random(wire.seed)
    while True:
        yield from wire.sizes or (rng.randint(1, 64),)
