"""aiohttp-sse-client: server-sent events over aiohttp, from a URL alone; the JSON is for the caller, so orjson."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import orjson
from aiohttp_sse_client.client import EventSource

from . import Client, Read, Take, payloads
from .sessions import session

PACKAGE = "aiohttp-sse-client"


@asynccontextmanager
async def connected() -> AsyncIterator[Read]:
    async with session() as opened:

        async def read(url: str, take: Take) -> None:
            async with EventSource(url, session=opened) as source:
                async for event in source:
                    if event.data == "[DONE]":  # else it connects again
                        break
                    take(orjson.loads(event.data))

        yield read


CLIENTS = {"aiohttp-sse-client, orjson": Client("payloads", connected, payloads.hear)}
