"""The subscriber that the tests over real sockets share."""

from __future__ import annotations

import asyncio
from typing import Any


class Seen(list[Any]):
    """A subscriber that notes everything it gets, and can be waited for."""

    def __init__(self) -> None:
        self.over = asyncio.Event()

    def on_next(self, item: object) -> None:
        self.append(item)

    def on_error(self, error: Exception) -> None:
        self.append(error)
        self.over.set()

    def on_completed(self) -> None:
        self.append("completed")
        self.over.set()

    async def outcome(self) -> Any:
        async with asyncio.timeout(5):
            await self.over.wait()
        return self[-1]
