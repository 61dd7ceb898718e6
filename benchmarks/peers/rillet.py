"""Rillet itself, and the floor under everybody."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import orjson
import reactivex
from fixtures import Stream
from reactivex import Observable, abc
from reactivex.disposable import Disposable

from rillet.operators import (
    Delta,
    ReasoningDelta,
    TextDelta,
    ToolCall,
    assemble_tools,
    decode_deltas,
    decode_utf8,
    group_events,
    require_done,
    split_lines,
)
from rillet.pipeline import SSEParser, StreamAssembler, bytes_from, deltas, find_protocol, iterate

from . import DIALECTS, Chunks, Client, Contestant, Piece, Read, Take, payloads
from .sessions import session

PACKAGE = "rillet"
DONE = "[DONE]"
FLOOR = "the floor"
CHAIN = "the chain"
IN_RX = "the operators, in Rx"
FRAMING = "the framing operators, orjson"
PARSER = "SSEParser, orjson"


def hear(delta: Delta) -> Iterator[Piece]:
    """The pieces of the answer in a delta; of a call, in the finished one."""
    match delta:
        case TextDelta(text, choice):
            yield f"text {choice}", text
        case ReasoningDelta(text):
            yield "reasoning", text
        case ToolCall(index=index, name=name, args_text=args):
            yield f"name {index}", name
            yield f"args {index}", args
        case _:
            return


PAYLOAD_OF: dict[str, Callable[[bytes], bytes]] = {
    "bare": lambda event: event[6:],
    "typed": lambda event: event[event.index(b"\ndata: ") + 7 :],
    "lines": lambda event: event[6:].replace(b"\ndata: ", b"\n"),
}


def floor(stream: Stream, chunks: Chunks, take: Take) -> None:
    """The least that can be done: split at the blank lines, parse. It knows where in an event the JSON is."""
    tail, blank, payload_of = b"", stream.blank, PAYLOAD_OF[stream.shape]
    for chunk in chunks:
        *events, tail = (tail + chunk).split(blank)
        for event in events:
            payload = payload_of(event)
            if payload != b"[DONE]":
                take(orjson.loads(payload))


def chain(stream: Stream, chunks: Chunks, take: Take) -> None:
    """The whole chain, without Rx."""
    assembler = StreamAssembler(stream.dialect)
    for chunk in chunks:
        for delta in assembler.feed(chunk):
            take(delta)
    assembler.result()


def in_rx(stream: Stream, chunks: Chunks, take: Take) -> None:
    """The operators, piped one by one behind a source that does nothing but push."""
    framing = (decode_utf8(), split_lines(), group_events())
    meaning = (decode_deltas(find_protocol(stream.dialect)), assemble_tools(), require_done())
    pushed(chunks).pipe(*framing).pipe(*meaning).subscribe(take, on_error=fail)


def framing(stream: Stream, chunks: Chunks, take: Take) -> None:
    """Payloads alone, neither typed nor verified: what packages for server-sent events do."""

    def parse(event: Any) -> None:
        if event.data != DONE:
            take(orjson.loads(event.data))

    pushed(chunks).pipe(decode_utf8(), split_lines(), group_events()).subscribe(parse, on_error=fail)


def parser(stream: Stream, chunks: Chunks, take: Take) -> None:
    """The same without Rx."""
    parser = SSEParser()
    for chunk in chunks:
        for _, data in parser.feed(chunk):
            if data != DONE:
                take(orjson.loads(data))


def pushed(chunks: Chunks) -> Observable[bytes]:
    """The chunks, pushed as fast as they are taken."""

    def push(observer: abc.ObserverBase[bytes], scheduler: abc.SchedulerBase | None = None) -> abc.DisposableBase:
        for chunk in chunks:
            observer.on_next(chunk)
        observer.on_completed()
        return Disposable()

    return reactivex.create(push)


def fail(error: Exception) -> None:
    """Nothing that is measured may fail."""
    raise error


CONTESTANTS = {
    FLOOR: Contestant("payloads", DIALECTS, floor, payloads.hear),
    CHAIN: Contestant("verified", DIALECTS, chain, hear),
    IN_RX: Contestant("verified", DIALECTS, in_rx, hear),
    FRAMING: Contestant("payloads", DIALECTS, framing, payloads.hear),
    PARSER: Contestant("payloads", DIALECTS, parser, payloads.hear),
}


@asynccontextmanager
async def floor_client() -> AsyncIterator[Read]:
    """The floor over HTTP: what aiohttp has, split and parsed."""
    async with session() as opened:

        async def read(url: str, take: Take) -> None:
            tail = b""
            async with opened.get(url) as response:
                async for chunk in response.content.iter_any():
                    *events, tail = (tail + chunk).split(b"\n\n")
                    for event in events:
                        if event != b"data: [DONE]":
                            take(orjson.loads(event[6:]))

        yield read


@asynccontextmanager
async def iterated() -> AsyncIterator[Read]:
    """As a user would: `async for`, with a window that slows the server down."""
    async with session() as opened:

        async def read(url: str, take: Take) -> None:
            async with aclosing(iterate(deltas(bytes_from(opened, "GET", url), "openai-chat"))) as answer:
                async for delta in answer:
                    take(delta)

        yield read


@asynccontextmanager
async def subscribed() -> AsyncIterator[Read]:
    """With a subscriber, and no queue before it."""
    async with session() as opened:

        async def read(url: str, take: Take) -> None:
            over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            answer = deltas(bytes_from(opened, "GET", url), "openai-chat")
            with answer.subscribe(take, over.set_exception, lambda: over.set_result(None)):
                await over

        yield read


CLIENTS = {
    FLOOR: Client("payloads", floor_client, payloads.hear),
    "iterate": Client("verified", iterated, hear),
    "subscribe": Client("verified", subscribed, hear),
}
