"""What the tests over real sockets share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp
import pytest


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.fixture
def eventually() -> Callable[[Callable[[], object]], Awaitable[None]]:
    """Wait until something that another task or thread brings about is so; fail after five seconds."""

    async def wait(condition: Callable[[], object]) -> None:
        async with asyncio.timeout(5):
            while not condition():
                await asyncio.sleep(0.001)

    return wait


@pytest.fixture(autouse=True)
async def nothing_left_behind() -> AsyncIterator[None]:
    """No task outlives a test."""
    before = asyncio.all_tasks()
    yield
    async with asyncio.timeout(5):
        while left := asyncio.all_tasks() - before - {asyncio.current_task()}:
            await asyncio.wait(left, timeout=0.1)
