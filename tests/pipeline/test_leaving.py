"""Leaving while the loop is just being closed: from another thread, in whatever state the stream is."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest
import reactivex as rx
from reactivex import Observable, abc

from rillet.operators.errors import TruncatedStream
from rillet.pipeline import attempts, bytes_from, for_each


class ClosedWhenLookedAt(asyncio.SelectorEventLoop):
    """A loop that its own thread closes right after another has seen that it is open."""

    is_over = False

    def is_closed(self) -> bool:
        was_closed = super().is_closed()
        if self.is_over:
            self.is_over = False
            self.close()
        return was_closed


def reading(session: aiohttp.ClientSession) -> Observable[bytes]:
    return bytes_from(session, "GET", "http://127.0.0.1:9/")


def handling(_: aiohttp.ClientSession) -> Observable[None]:
    return rx.never().pipe(for_each(lambda _: asyncio.sleep(0)))


def waiting(_: aiohttp.ClientSession) -> Observable[Any]:
    return rx.throw(TruncatedStream("cut")).pipe(attempts())


@pytest.mark.parametrize("make", [reading, handling, waiting])
def test_who_leaves_as_the_loop_closes_is_not_told_so(
    make: Callable[[aiohttp.ClientSession], Observable[object]],
) -> None:
    async def subscribed() -> abc.DisposableBase:
        async with aiohttp.ClientSession() as session:
            subscription = make(session).subscribe(on_error=print)
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return subscription

    loop = ClosedWhenLookedAt()
    subscription = loop.run_until_complete(subscribed())
    loop.is_over = True
    faults: list[object] = []

    def leave() -> None:
        try:
            subscription.dispose()
        except BaseException as fault:
            faults.append(fault)

    thread = threading.Thread(target=leave)
    thread.start()
    thread.join()
    loop.is_over = False
    loop.close()
    assert faults == []
