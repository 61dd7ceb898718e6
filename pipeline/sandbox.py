"""A scripted provider on 127.0.0.1: the demo's server, and a test server for your own programs.

    async with Sandbox(Script(text="Hello"), Wire(seed=7), Fault("cut", after=300)) as base_url:
        ...

Below the base URL it speaks `openai-chat` at /chat/completions and `plain` at /plain. A script says what is answered,
a wire how the bytes travel, a fault how they end badly.
"""

from __future__ import annotations

import asyncio
import json
import random
import socket
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from types import TracebackType
from typing import Literal, TypeAlias

from aiohttp import web

from rillet.operators.value import value

FaultKind: TypeAlias = Literal["cut", "end", "error", "stall", "reset", "status", "html"]
"""How a stream ends badly; see `Fault`."""


@value
class ScriptedCall:
    """A tool call to answer with.

    Attributes:
        name: The tool's name.
        args: Its arguments; a string is sent as it is, valid or not.
        id: Its id; by default one is made.
    """

    name: str
    args: Mapping[str, object] | str
    id: str = ""


@value
class Script:
    """What is answered.

    Attributes:
        text: The answer's text.
        reasoning: What comes before it; `plain` has no reasoning and leaves it out.
        calls: The tool calls after it.
        usage: Input and output tokens; None sends none. `plain` leaves it out.
        finish: The finish reason; by default "tool_calls" where there are calls, else "stop". `plain` leaves it out.
        piece: How many characters a delta carries.
        interleave: Whether the calls' arguments interleave, fragment by fragment, or come one after another.
    """

    text: str = "Hello from the sandbox."
    reasoning: str = ""
    calls: tuple[ScriptedCall, ...] = ()
    usage: tuple[int, int] | None = None
    finish: str | None = None
    piece: int = 4
    interleave: bool = True


@value
class Wire:
    """How the bytes travel.

    Attributes:
        sizes: The sizes of the writes in bytes, repeated as long as needed; by default one event a write.
        seed: Instead of `sizes`, random ones of 1 to 64 bytes from this seed: inside characters, CRLFs and events.
        delay: Seconds between writes.
        rate: Bytes a second at most; None for no limit.
        comments: How many comments stand before each event.
        crlf: Whether lines end in CRLF.
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
        status: The HTTP status for "status".
    """

    kind: FaultKind
    after: int = 0
    status: int = 500


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


class Sandbox:
    """The scripted provider, as an asynchronous context manager that gives its base URL.

    Args:
        script: What is answered, to every request.
        wire: How the bytes travel.
        fault: How it ends badly; by default it ends well.
        port: The port on 127.0.0.1; by default a free one.

    Attributes:
        base_url: "http://127.0.0.1:PORT/v1", while it runs.
        requests: The requests it got, oldest first.
    """

    def __init__(
        self, script: Script = Script(), wire: Wire = Wire(), fault: Fault | None = None, *, port: int = 0
    ) -> None:
        self.base_url = ""
        self.requests: list[Request] = []
        self._script = script
        self._wire = wire
        self._fault = fault
        self._port = port

    async def __aenter__(self) -> str:
        app = web.Application()
        app.router.add_post("/v1/plain", self._plain)
        app.router.add_post("/v1/chat/completions", self._openai_chat)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port)
        await site.start()
        _, port = self._runner.addresses[0][:2]
        self.base_url = f"http://127.0.0.1:{port}/v1"
        return self.base_url

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._runner.cleanup()

    async def requests_over(self) -> None:
        """Wait until the sandbox is done with every request it got, or their clients have gone."""
        for request in self.requests:
            await request.over.wait()

    async def _plain(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, plain_events(self._script), {"type": "error", **_SERVER_ERROR})

    async def _openai_chat(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, openai_chat_events(self._script), {"error": _SERVER_ERROR})

    async def _answer(
        self, request: web.Request, events: Iterable[str], error: Mapping[str, object]
    ) -> web.StreamResponse:
        body: dict[str, object] = await request.json() if request.can_read_body else {}
        assert request.transport is not None
        seen = Request(request.path, request.headers, body, request.transport.get_extra_info("peername")[1])
        self.requests.append(seen)
        try:
            if self._fault is not None and self._fault.kind == "status":
                return web.json_response({"error": _SERVER_ERROR}, status=self._fault.status)
            if self._fault is not None and self._fault.kind == "html":
                return web.Response(text="<!doctype html><title>Sign in</title>", content_type="text/html")
            return await self._stream(request, seen, events, json.dumps(error))
        finally:
            seen.over.set()

    async def _stream(
        self, request: web.Request, seen: Request, events: Iterable[str], error: str
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        body = _ended(_framed(events, self._wire), self._fault, _frame(error, self._wire))
        for write in _cut(body, self._wire):
            await response.write(write)
            seen.sent += len(write)
            await asyncio.sleep(self._wire.delay + (len(write) / self._wire.rate if self._wire.rate else 0))
        await self._end(request)
        return response

    async def _end(self, request: web.Request) -> None:
        kind = self._fault and self._fault.kind
        transport = request.transport
        if kind == "stall":
            await asyncio.Event().wait()  # until the client has gone, or the sandbox closes
        if kind == "reset" and transport is not None:
            linger = struct.pack("ii", 1, 0)  # closing then sends RST instead of FIN
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        if kind in ("cut", "reset") and transport is not None:
            transport.abort()


def plain_events(script: Script) -> Iterator[str]:
    """The script as the data of `plain` events."""
    for piece in _pieces(script.text, script.piece):
        yield _json(type="text", delta=piece)
    for index, step in _call_steps(script):
        if isinstance(step, ScriptedCall):
            yield _json(type="tool_call_start", index=index, id=_id(step, index), name=step.name)
        elif step:
            yield _json(type="tool_call_delta", index=index, args=step)
        else:
            yield _json(type="tool_call_end", index=index)
    yield "[DONE]"


def openai_chat_events(script: Script) -> Iterator[str]:
    """The script as the data of `openai-chat` events."""
    yield _chunk({"role": "assistant", "content": ""})
    for piece in _pieces(script.reasoning, script.piece):
        yield _chunk({"reasoning_content": piece})
    for piece in _pieces(script.text, script.piece):
        yield _chunk({"content": piece})
    for index, step in _call_steps(script):
        if isinstance(step, ScriptedCall):
            head = {"index": index, "id": _id(step, index), "type": "function"}
            yield _chunk({"tool_calls": [{**head, "function": {"name": step.name, "arguments": ""}}]})
        elif step:
            yield _chunk({"tool_calls": [{"index": index, "function": {"arguments": step}}]})
    yield _chunk({}, script.finish or ("tool_calls" if script.calls else "stop"))
    if script.usage is not None:
        prompt, completion = script.usage
        yield _json(
            **_CHUNK,
            choices=[],
            usage={"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion},
        )
    yield "[DONE]"


_CHUNK: Mapping[str, object] = {
    "id": "chatcmpl-sandbox",
    "object": "chat.completion.chunk",
    "created": 1_700_000_000,
    "model": "sandbox",
}

_SERVER_ERROR: Mapping[str, object] = {
    "message": "The sandbox was told to fail.",
    "type": "server_error",
    "code": "scripted",
}


def _chunk(delta: Mapping[str, object], finish: str | None = None) -> str:
    return _json(**_CHUNK, choices=[{"index": 0, "delta": delta, "finish_reason": finish}])


def _json(**fields: object) -> str:
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))


def _id(call: ScriptedCall, index: int) -> str:
    return call.id or f"call_{index}"


def _pieces(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def _call_steps(script: Script) -> Iterator[tuple[int, ScriptedCall | str]]:
    """The calls step by step, by index: the call itself for its head, its fragments, "" for its end."""
    per_call = [_steps(index, call, script.piece) for index, call in enumerate(script.calls)]
    rounds: Iterable[Iterable[tuple[int, ScriptedCall | str] | None]] = per_call
    if script.interleave:
        rounds = zip_longest(*per_call)
    for steps in rounds:
        yield from (step for step in steps if step is not None)


def _steps(index: int, call: ScriptedCall, piece: int) -> list[tuple[int, ScriptedCall | str]]:
    text = call.args if isinstance(call.args, str) else _json(**call.args)
    return [(index, call), *((index, fragment) for fragment in _pieces(text, piece)), (index, "")]


def _frame(data: str, wire: Wire) -> bytes:
    end = "\r\n" if wire.crlf else "\n"
    return f"{f': still here{end}{end}' * wire.comments}data: {data}{end}{end}".encode()


def _framed(events: Iterable[str], wire: Wire) -> Iterator[bytes]:
    return (_frame(data, wire) for data in events)


def _ended(body: Iterator[bytes], fault: Fault | None, error: bytes) -> Iterator[bytes]:
    """The body as far as the fault lets it come; an error comes between two events."""
    if fault is None:
        yield from body
        return
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
