"""httpx-sse: server-sent events over httpx; the JSON is for the caller, so orjson."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import httpx_sse
import orjson
from fixtures import Stream

from . import DIALECTS, EVENT_STREAM, Chunks, Client, Contestant, Read, Take, payloads

PACKAGE = "httpx-sse"
NAME = "httpx-sse, orjson"


def run(stream: Stream, chunks: Chunks, take: Take) -> None:
    response = httpx.Response(200, headers=EVENT_STREAM, content=iter(chunks))
    for event in httpx_sse.EventSource(response).iter_sse():
        if event.data != "[DONE]":
            take(orjson.loads(event.data))


@asynccontextmanager
async def connected() -> AsyncIterator[Read]:
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(limits=limits, timeout=None) as client:

        async def read(url: str, take: Take) -> None:
            async with httpx_sse.aconnect_sse(client, "GET", url) as source:
                async for event in source.aiter_sse():
                    if event.data != "[DONE]":
                        take(orjson.loads(event.data))

        yield read


CONTESTANTS = {NAME: Contestant("payloads", DIALECTS, run, payloads.hear)}
CLIENTS = {NAME: Client("payloads", connected, payloads.hear)}
