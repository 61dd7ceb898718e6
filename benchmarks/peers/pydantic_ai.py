"""pydantic-ai: the events that a direct, streamed model request gives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

from fixtures import Stream
from openai import AsyncOpenAI
from pydantic_ai.direct import model_request_stream
from pydantic_ai.messages import ModelRequest, PartDeltaEvent, PartStartEvent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from . import OPENAI_CHAT, Chunks, Client, Contestant, Piece, Read, Take, replay

PACKAGE = "pydantic-ai-slim"
NAME = "pydantic-ai"
runner = asyncio.Runner()


async def request(client: AsyncOpenAI, take: Take) -> None:
    model = OpenAIChatModel("gpt-4o-mini", provider=OpenAIProvider(openai_client=client))
    async with model_request_stream(model, [ModelRequest.user_text_prompt("Hello?")]) as events:
        async for event in events:
            take(event)


def run(stream: Stream, chunks: Chunks, take: Take) -> None:
    http_client = replay.async_client(chunks)
    runner.run(request(AsyncOpenAI(api_key="none", base_url="http://localhost/v1", http_client=http_client), take))


def hear(event: Any) -> Iterator[Piece]:
    match event:
        case PartStartEvent(part=part) if part.part_kind == "text":
            yield "text 0", part.content
        case PartStartEvent(part=part) if part.part_kind == "tool-call":
            yield "name 0", part.tool_name
            yield "args 0", part.args
        case PartDeltaEvent(delta=delta) if delta.part_delta_kind == "text":
            yield "text 0", delta.content_delta
        case PartDeltaEvent(delta=delta) if delta.part_delta_kind == "tool_call":
            yield "args 0", delta.args_delta
        case _:
            return


@asynccontextmanager
async def connected() -> AsyncIterator[Read]:
    async with AsyncOpenAI(api_key="none", base_url="http://localhost/v1", timeout=None) as client:

        async def read(url: str, take: Take) -> None:
            await request(client.with_options(base_url=url), take)

        yield read


CONTESTANTS = {NAME: Contestant("objects", OPENAI_CHAT, run, hear)}
CLIENTS = {NAME: Client("objects", connected, hear)}
