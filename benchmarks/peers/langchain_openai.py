"""langchain-openai: the message chunks that `ChatOpenAI.stream` gives."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

from fixtures import Stream
from langchain_openai import ChatOpenAI

from . import OPENAI_CHAT, Chunks, Client, Contestant, Piece, Read, Take, replay

PACKAGE = "langchain-openai"
NAME = "langchain-openai"
OPTIONS: dict[str, Any] = {"model": "gpt-4o-mini", "api_key": "none"}


def run(stream: Stream, chunks: Chunks, take: Take) -> None:
    model = ChatOpenAI(
        **OPTIONS,
        base_url="http://localhost/v1",
        http_client=replay.client(chunks),
        http_async_client=replay.async_client(chunks),
    )
    for chunk in model.stream("Hello?"):
        take(chunk)


def hear(chunk: Any) -> Iterator[Piece]:
    yield "text 0", chunk.content
    for call in chunk.tool_call_chunks:
        yield f"name {call['index']}", call["name"] or ""
        yield f"args {call['index']}", call["args"] or ""


@asynccontextmanager
async def connected() -> AsyncIterator[Read]:
    models: dict[str, ChatOpenAI] = {}

    async def read(url: str, take: Take) -> None:
        if url not in models:
            models[url] = ChatOpenAI(**OPTIONS, base_url=url)
        async for chunk in models[url].astream("Hello?"):
            take(chunk)

    yield read


CONTESTANTS = {NAME: Contestant("objects", OPENAI_CHAT, run, hear)}
CLIENTS = {NAME: Client("objects", connected, hear)}
