"""litellm: the chunks that `completion(stream=True)` gives."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it fetches prices as it is imported

import litellm
import openai
from fixtures import Stream

from . import OPENAI_CHAT, PROMPT, Chunks, Client, Contestant, Piece, Read, Take, payloads, replay

PACKAGE = "litellm"
NAME = "litellm"
OPTIONS: dict[str, Any] = {"model": "openai/gpt-4o-mini", "messages": PROMPT, "api_key": "none", "stream": True}


def run(stream: Stream, chunks: Chunks, take: Take) -> None:
    client = openai.OpenAI(api_key="none", base_url="http://localhost/v1", http_client=replay.client(chunks))
    for chunk in litellm.completion(**OPTIONS, client=client):
        take(chunk)


def hear(chunk: Any) -> Iterator[Piece]:
    return payloads.hear(chunk.model_dump())


@asynccontextmanager
async def connected() -> AsyncIterator[Read]:
    async def read(url: str, take: Take) -> None:
        async for chunk in await litellm.acompletion(**OPTIONS, api_base=url):
            take(chunk)

    yield read


CONTESTANTS = {NAME: Contestant("objects", OPENAI_CHAT, run, hear)}
CLIENTS = {NAME: Client("objects", connected, hear)}
