"""The aiohttp session that every client over aiohttp uses."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp


@asynccontextmanager
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    """A session without a limit to its connections or its time."""
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None)) as opened:
        yield opened
