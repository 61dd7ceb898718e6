"""Each fault, at each point of an answer, in each framing of its body, over real sockets; docs/faults.md tells the end.

`python tests/pipeline/test_faults.py` writes that page anew.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import struct
import zlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path
from socket import SHUT_WR, SO_LINGER, SOL_SOCKET

import aiohttp
import pytest
import reactivex
import trustme
from reactivex import operators as rxops

from rillet.operators import Delta, Finish, Message, ToolCall
from rillet.operators.errors import IdleTimeout, StreamError
from rillet.pipeline import Timeouts, bytes_from, deltas

PAGE = Path(__file__).parents[2] / "docs" / "faults.md"


def event(**delta: object) -> bytes:
    return chunk_event({"choices": [{"index": 0, "delta": delta}]})


def chunk_event(payload: object) -> bytes:
    return b"data: " + json.dumps(payload).encode() + b"\n\n"


def fragment(args: str, **rest: object) -> bytes:
    return event(tool_calls=[{"index": 0, "function": {"arguments": args} | rest}])


OPENING = event(tool_calls=[{"index": 0, "id": "call_1", "function": {"name": "get_weather", "arguments": ""}}])
FINISH = chunk_event({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
EVENTS = (event(content="Let me "), event(content="look."), OPENING, fragment('{"city":'), fragment('"Oslo"}'), FINISH)
DONE = b"data: [DONE]\n\n"
WHOLE = b"".join(EVENTS) + DONE
ERROR = chunk_event({"error": {"message": "try later", "type": "overloaded", "code": 529}})
HEARTBEAT = b": still here\n\n"

POINTS = {
    "before the headers": b"",
    "before the first event": b"",
    "mid-event": EVENTS[0] + EVENTS[1][:30],
    "mid-tool": b"".join(EVENTS[:4]),
    "after the finish reason": b"".join(EVENTS),
    "after the terminal": WHOLE,
}
CALL = ToolCall(0, "call_1", "get_weather", {"city": "Oslo"}, '{"city":"Oslo"}')
PARTIAL = {
    "before the headers": (),
    "before the first event": (),
    "mid-event": (Message("Let me "),),
    "mid-tool": (Message("Let me look."),),
    "after the finish reason": (
        Message("Let me look.", tool_calls=(CALL,), finish=Finish("tool_calls", "tool_calls")),
    ),
}
FRAMINGS = ("chunked", "content-length", "close-delimited", "gzip")


QUIET = Timeouts(liveness=60, progress=None)


class Skipping(asyncio.SelectorEventLoop):
    """A real event loop whose clock can be put forward: a timeout runs out at once, and never too early."""

    skipped = 0.0

    def time(self) -> float:
        return super().time() + self.skipped


class Body:
    """The bytes of one answer, in a framing."""

    def __init__(self, framing: str, length: int) -> None:
        self.framing = framing
        self._length = length
        self._gzip = zlib.compressobj(wbits=31)

    def head(self) -> bytes:
        lines = {
            "chunked": "Transfer-Encoding: chunked",
            "content-length": f"Content-Length: {self._length}",
            "close-delimited": "Connection: close",
            "gzip": "Transfer-Encoding: chunked\r\nContent-Encoding: gzip",
        }
        return f"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n{lines[self.framing]}\r\n\r\n".encode()

    def data(self, data: bytes) -> bytes:
        if not data:
            return b""
        if self.framing == "gzip":
            return _chunk(self._gzip.compress(data) + self._gzip.flush(zlib.Z_SYNC_FLUSH))
        return _chunk(data) if self.framing == "chunked" else data

    def end(self) -> bytes:
        last = {"chunked": _chunk(b""), "gzip": _chunk(self._gzip.flush()) + _chunk(b"")}
        return last.get(self.framing, b"")

    def end_without_trailer(self) -> bytes:
        return _chunk(self._gzip.flush()[:-8]) + _chunk(b"")

    def damage(self) -> bytes:
        return _chunk(b"\xff\xff") if self.framing == "gzip" else self.data(b"\xff")


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


class Run:
    """One cell: a server that writes what the cell says, and a subscriber that notes all it gets."""

    def __init__(self, fault: Fault, point: str, framing: str) -> None:
        self.fault = fault
        self.point = point
        self.loop = asyncio.get_running_loop()
        length = len(POINTS[point]) if fault.name == "clean end" else len(WHOLE) + 1_000
        self.body = Body(framing, length)
        self.items: list[Delta] = []
        self.terminals: list[Exception | None] = []
        self.over = asyncio.Event()
        self.left = asyncio.Event()
        self._news = asyncio.Event()
        self._has_head = False
        self._received = 0

    async def outcome(self) -> Exception | None:
        async with asyncio.timeout(5) as self._guard:
            return await self._outcome()

    async def _outcome(self) -> Exception | None:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=_tls()[0] if self.fault.tls else None)
        trace = aiohttp.TraceConfig()
        trace.on_request_end.append(self._noted_head)
        async with server, aiohttp.ClientSession(trace_configs=[trace]) as self.session:
            self._ask(server.sockets[0].getsockname()[1])
            await self.over.wait()
            if self.fault.ends_body:
                await self.session.close()  # until then the connection may serve another request
            await self.left.wait()
        (terminal,) = self.terminals
        return terminal

    def _ask(self, port: int) -> None:
        url = f"{'https' if self.fault.tls else 'http'}://127.0.0.1:{port}/"
        source = bytes_from(
            self.session, "POST", url, timeouts=self.fault.timeouts, ssl=_tls()[1] if self.fault.tls else True
        )
        counted = source.pipe(rxops.do_action(self._noted))
        deltas(counted, "openai-chat").subscribe(
            self.items.append, lambda error: self._ended(error), lambda: self._ended(None)
        )

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if self.point != "before the headers":
            writer.write(self.body.head() + self.body.data(POINTS[self.point]))
            await self._until(lambda: self._has_head and self._received == len(POINTS[self.point]))
        try:
            await self.fault.strike(self, writer)
            while await reader.read(1024):
                pass
        except OSError:
            pass  # reset by one side or the other
        finally:
            self.left.set()
            writer.close()

    async def beat(self, writer: asyncio.StreamWriter) -> None:
        """Heartbeats for ever, each 25 seconds."""
        early = self.point == "before the headers"
        while not self.over.is_set():
            writer.write(b"HTTP/1.1 102 Processing\r\n\r\n" if early else self.body.data(HEARTBEAT))
            await self.skip(25.1)

    async def skip(self, seconds: float) -> None:
        for _ in range(5):
            await asyncio.sleep(0)
        assert isinstance(self.loop, Skipping)
        self.loop.skipped += seconds
        self._guard.reschedule(self.loop.time() + 5)
        for _ in range(5):
            await asyncio.sleep(0)

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._news.clear()
            await self._news.wait()

    def _noted(self, piece: bytes) -> None:
        self._received += len(piece)
        self._news.set()

    async def _noted_head(self, *_: object) -> None:
        self._has_head = True
        self._news.set()

    def _ended(self, error: Exception | None) -> None:
        self.terminals.append(error)
        self.over.set()
        self._news.set()


Strike = Callable[[Run, asyncio.StreamWriter], Awaitable[None]]


@dataclass(frozen=True, eq=False)
class Fault:
    """What goes wrong, and what is to come of it, as the page writes that; "" where it can't be.

    Attributes:
        early: What comes of it before the headers.
        later: What comes of it after them.
        framed: What comes of it after them in one framing, where that is something else.
        mid_event: Whether it can be inside an event.
    """

    name: str
    strike: Strike
    early: str
    later: str
    framed: Mapping[str, str] = field(default_factory=dict)
    timeouts: Timeouts = QUIET
    framings: tuple[str, ...] = FRAMINGS
    mid_event: bool = True
    tls: bool = False
    ends_body: bool = False

    def expected(self, point: str, framing: str) -> str:
        if point == "before the headers":
            return self.early
        if point == "mid-event" and not self.mid_event:
            return ""
        # openai-chat ends with its terminal, or with a clean end after the finish reason.
        if point == "after the terminal" or (point == "after the finish reason" and self._ends_cleanly(framing)):
            return "complete"
        return self.framed.get(framing, self.later)

    def _ends_cleanly(self, framing: str) -> bool:
        return self.name == "clean end" or (self.name in ("cut", "TLS cut") and framing == "close-delimited")


async def cut(run: Run, writer: asyncio.StreamWriter) -> None:
    writer.write_eof()


async def tls_cut(run: Run, writer: asyncio.StreamWriter) -> None:
    writer.get_extra_info("socket").shutdown(SHUT_WR)


async def clean_end(run: Run, writer: asyncio.StreamWriter) -> None:
    writer.write(run.body.end())
    if run.body.framing == "close-delimited":
        writer.write_eof()


async def reset(run: Run, writer: asyncio.StreamWriter) -> None:
    writer.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def stall(run: Run, writer: asyncio.StreamWriter) -> None:
    while not run.over.is_set():
        await run.skip(15.1)


async def deadline(run: Run, writer: asyncio.StreamWriter) -> None:
    await (run.skip(100.1) if run.point == "mid-event" else run.beat(writer))


async def heartbeats(run: Run, writer: asyncio.StreamWriter) -> None:
    await run.beat(writer)


async def error_event(run: Run, writer: asyncio.StreamWriter) -> None:
    writer.write(run.body.data(ERROR))


async def damage(run: Run, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 2\xff0 OK\r\n\r\n" if run.point == "before the headers" else run.body.damage())


async def no_trailer(run: Run, writer: asyncio.StreamWriter) -> None:
    writer.write(run.body.end_without_trailer())


async def close_session(run: Run, writer: asyncio.StreamWriter) -> None:
    await run.session.close()


LOST = "TransportError ← ServerDisconnectedError"
BROKEN = "TruncatedStream ← ClientPayloadError"
FAULTS = (
    Fault("clean end", clean_end, "", "TruncatedStream", ends_body=True),
    Fault("cut", cut, LOST, BROKEN, {"close-delimited": "TruncatedStream"}),
    Fault("TLS cut", tls_cut, LOST, BROKEN, {"close-delimited": "TruncatedStream"}, tls=True),
    Fault(
        "reset",
        reset,
        "TransportError ← ClientOSError",
        BROKEN,
        {"close-delimited": "TruncatedStream ← ClientConnectionError"},
    ),
    Fault("session closed", close_session, LOST, "TruncatedStream ← ClientConnectionError"),
    Fault("stall", stall, *("IdleTimeout (liveness)",) * 2),
    Fault(
        "heartbeats only",
        heartbeats,
        *("IdleTimeout (progress)",) * 2,
        timeouts=Timeouts(liveness=60, progress=100),
        mid_event=False,
    ),
    Fault("deadline", deadline, *("DeadlineExceeded",) * 2, timeouts=Timeouts(total=100)),
    Fault("error event", error_event, "", "ProviderError", mid_event=False),
    Fault(
        "damaged byte",
        damage,
        "TransportError ← ClientResponseError",
        "InvalidUtf8",
        {"gzip": "TransportError ← zlib.error"},
    ),
    Fault("no gzip trailer", no_trailer, "", "TruncatedStream", framings=("gzip",), ends_body=True),
)
CELLS = [
    (fault, point, framing)
    for fault in FAULTS
    for framing in fault.framings
    for point in POINTS
    if fault.expected(point, framing)
]


@cache
def _tls() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    authority = trustme.CA()
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("127.0.0.1").configure_cert(server)
    authority.configure_trust(client)
    return server, client


@cache
def whole_answer() -> tuple[Delta, ...]:
    items: list[Delta] = []
    deltas(reactivex.of(WHOLE), "openai-chat").subscribe(items.append)
    return tuple(items)


@cache
def observed(fault: Fault, point: str, framing: str) -> tuple[Exception | None, tuple[Delta, ...]]:
    async def run() -> tuple[Exception | None, tuple[Delta, ...]]:
        cell = Run(fault, point, framing)
        return await cell.outcome(), tuple(cell.items)

    with asyncio.Runner(loop_factory=Skipping) as runner:
        return runner.run(run())


def told(error: Exception | None) -> str:
    """An outcome as the page writes it."""
    if error is None:
        return "complete"
    which = f" ({error.which})" if isinstance(error, IdleTimeout) else ""
    cause = error.__cause__
    chained = "" if cause is None else f" ← {type(cause).__name__}".replace("← error", "← zlib.error")
    return f"{type(error).__name__}{which}{chained}"


@pytest.mark.parametrize(("fault", "point", "framing"), CELLS, ids=lambda it: getattr(it, "name", it))
def test_nothing_unfinished_looks_finished(fault: Fault, point: str, framing: str) -> None:
    error, items = observed(fault, point, framing)
    assert told(error) == fault.expected(point, framing)
    assert items == whole_answer()[: len(items)]
    if error is None:
        assert items == whole_answer()
    else:
        assert isinstance(error, StreamError)
        assert error.partial == PARTIAL[point]
        assert error.retry_safe is (not PARTIAL[point])
        assert not isinstance(error.__cause__, zlib.error) or framing == "gzip"


def row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def table(*head: str) -> Iterator[str]:
    yield row(*head)
    yield row(*["---"] * len(head))


def outcomes() -> Iterator[str]:
    yield from table("fault", "body", *POINTS)
    for fault in FAULTS:
        seen = {framing: cells(fault, framing) for framing in fault.framings}
        for these in dict.fromkeys(seen.values()):
            framings = [framing for framing in fault.framings if seen[framing] == these]
            body = "any" if len(framings) == len(FRAMINGS) else ", ".join(framings)
            yield row(fault.name, body, these[0], *("″" if a == b != "–" else b for a, b in pairwise(these)))


def cells(fault: Fault, framing: str) -> tuple[str, ...]:
    return tuple(
        told(observed(fault, point, framing)[0]) if fault.expected(point, framing) else "–" for point in POINTS
    )


def partials() -> Iterator[str]:
    yield from table("where it happens", "`partial[0].text`", "`.tool_calls`", "`.finish`", "`retry_safe`")
    for point in PARTIAL:
        error, _ = observed(FAULTS[1], point, "chunked")
        assert isinstance(error, StreamError)
        yield row(point, *(of_message(error.partial[0]) if error.partial else ("–",) * 3), str(error.retry_safe))


def of_message(message: Message) -> tuple[str, str, str]:
    calls = ", ".join(f"`{call.name}({call.args_text})`" for call in message.tool_calls)
    return f"`{message.text}`", calls or "–", message.finish.reason if message.finish else "–"


def kinds() -> Iterator[str]:
    yield from table("error", "`kind`", "is also a")
    errors = {type(observed(*cell)[0]) for cell in CELLS} - {type(None)}
    for error in sorted(errors, key=lambda error: error.__name__):
        assert issubclass(error, StreamError)
        others = [f"`{base.__name__}`" for base in error.__bases__ if base is not StreamError]
        yield row(f"`{error.__name__}`", f"`{error.kind}`", ", ".join(["`ValueError`", *others]))


def page() -> str:
    return PAGE_FORM.format(*("\n".join(lines) for lines in (outcomes(), partials(), kinds())))


PAGE_FORM = """\
# What becomes of a broken answer

This page is written by `python tests/pipeline/test_faults.py`, from what came out of real sockets; a test checks that
it is what comes out. The dialect is openai-chat, and the answer two pieces of text, one tool call in two fragments,
the finish reason, and `[DONE]`.

{0}

`A ← B`: the error is an `A`, and its `__cause__` a `B`. In brackets stands its `which`. ″: as at its
left. –: it can't be.

- After the terminal nothing undoes an answer: it is complete before the fault is seen.
- A clean end after the finish reason is an ending too: openai-chat's contract, see [dialects.md](dialects.md).
- A close-delimited body has no end of its own. There a cut is a clean end, over TLS too, since Python's asyncio does
  not tell whether the other side said good-bye. A connection that is reset, or that our own side closes, is not.
- "gzip" is a chunked body that is compressed. It has an end of its own, which must have come.
- Before the headers, an error of the provider's is an HTTP status, and a clean end is a cut; heartbeats are 1xx
  answers.
- A heartbeat, or an error, can't stand inside another event's line.

In each cell, what had arrived is in the error's `partial`, whatever the fault was and whatever the framing:

{1}

What was handed on is always a beginning of the whole answer's deltas; exactly one terminal comes; and the server sees
the connection closed, unless the body ended properly and the connection may serve another request.

{2}
"""


def test_the_page_says_what_comes_out() -> None:
    assert PAGE.read_text(encoding="utf-8") == page()


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
