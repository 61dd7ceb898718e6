"""Who takes part in the benchmarks: one module for each package, this one's own among them.

A module has `CONTESTANTS`, which are fed in process, and may have `CLIENTS`, which ask a server. Each is written as its
own documentation shows it, and must say what was sent before it is timed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal, NamedTuple, TypeAlias

from fixtures import Stream

Chunks: TypeAlias = Sequence[bytes]
Take: TypeAlias = Callable[[Any], None]
Piece: TypeAlias = tuple[str, str]
"""Where a piece of the answer belongs ("text 0", "reasoning", "name 0", "args 0"), and the piece."""

Gives: TypeAlias = Literal["payloads", "objects", "verified"]
"""Parsed JSON; objects of the package's own types; or those of an answer that is known to be whole."""

OPENAI_CHAT = ("openai-chat",)
DIALECTS = (*OPENAI_CHAT, "anthropic", "openai-responses", "gemini", "plain")


class Contestant(NamedTuple):
    """One way to read a stream whose bytes are there.

    Attributes:
        gives: What it makes of the bytes.
        dialects: Those it reads.
        run: Takes the stream's chunks, and hands on each item that it makes of them.
        hear: The pieces of the answer in an item.
    """

    gives: Gives
    dialects: Sequence[str]
    run: Callable[[Stream, Chunks, Take], None]
    hear: Callable[[Any], Iterable[Piece]]


Read: TypeAlias = Callable[[str, Take], Awaitable[None]]
"""Asks the server at a URL, and hands on each item of its answer."""


class Client(NamedTuple):
    """One way to read a stream from a server.

    Attributes:
        gives: What it makes of the bytes.
        connected: Opens what many requests share, and gives what makes one.
        hear: The pieces of the answer in an item.
    """

    gives: Gives
    connected: Callable[[], AbstractAsyncContextManager[Read]]
    hear: Callable[[Any], Iterable[Piece]]


Contestants: TypeAlias = Mapping[str, Contestant]
Clients: TypeAlias = Mapping[str, Client]
PROMPT: list[Any] = [{"role": "user", "content": "Hello?"}]
EVENT_STREAM = {"Content-Type": "text/event-stream"}


async def delivered(chunks: Chunks) -> AsyncIterator[bytes]:
    """The chunks, as an asynchronous client gets them."""
    for chunk in chunks:
        yield chunk
