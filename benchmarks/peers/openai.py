"""openai-python: the stream that `create(stream=True)` gives, and the helper that sums it up."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import openai
from fixtures import Stream

from . import OPENAI_CHAT, PROMPT, Chunks, Client, Contestant, Piece, Read, Take, payloads, replay

PACKAGE = "openai"
MODEL = "any"
NAME = "openai-python, raw stream"
KEY = "none"


def opened(chunks: Chunks) -> openai.OpenAI:
    """A client that is answered with the chunks."""
    return openai.OpenAI(api_key=KEY, base_url="http://localhost/v1", http_client=replay.client(chunks))


def run(stream: Stream, chunks: Chunks, take: Take) -> None:
    client = opened(chunks)
    if stream.dialect == "openai-responses":
        for event in client.responses.create(model=MODEL, input="Hello?", stream=True):
            take(event)
    else:
        for chunk in client.chat.completions.create(model=MODEL, messages=PROMPT, stream=True):
            take(chunk)


def with_helper(stream: Stream, chunks: Chunks, take: Take) -> None:
    with opened(chunks).chat.completions.stream(model=MODEL, messages=PROMPT) as events:
        for event in events:
            take(event)


def hear(item: Any) -> Iterator[Piece]:
    return payloads.hear(item.model_dump())


def hear_event(event: Any) -> Iterator[Piece]:
    if event.type == "chunk":
        yield from hear(event.chunk)


@asynccontextmanager
async def connected() -> AsyncIterator[Read]:
    async with openai.AsyncOpenAI(api_key=KEY, base_url="http://localhost/v1", timeout=None) as client:

        async def read(url: str, take: Take) -> None:
            asked = client.with_options(base_url=url)
            async for chunk in await asked.chat.completions.create(model=MODEL, messages=PROMPT, stream=True):
                take(chunk)

        yield read


CONTESTANTS = {
    NAME: Contestant("objects", ("openai-chat", "openai-responses"), run, hear),
    "openai-python, stream helper": Contestant("objects", OPENAI_CHAT, with_helper, hear_event),
}
CLIENTS = {NAME: Client("objects", connected, hear)}
