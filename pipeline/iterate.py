"""`iterate`: an observable as an asynchronous iterator, with back-pressure to the socket."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TypeVar

from reactivex import Observable

from rillet.operators import ByteWindow

from .pressure import MAX_ITEMS, Inbox

T = TypeVar("T")


async def iterate(
    observable: Observable[T], *, window: ByteWindow | None = None, max_items: int = MAX_ITEMS
) -> AsyncGenerator[T, None]:
    """Iterate over an observable; while the consumer is busy, its source reads no further than the window.

    It subscribes at the first step and disposes on any exit: the end, an error, `break`, cancellation. Items may come
    from another thread. The timers of this library's operators run on this event loop, where they were given no other.

    Args:
        observable: What to iterate over.
        window: How many wire bytes may wait for the consumer; a new `ByteWindow`, of 128 KiB, by default.
        max_items: How many items may wait where the source knows no window, as reactivex's own do; a million by
            default.

    Yields:
        Each item, in order.

    Raises:
        Exception: Whatever the observable failed with, after the items before it.
        BufferOverflow: A source that can't be made to wait ran away, after the items that waited.
    """
    inbox: Inbox[T] = Inbox(window or ByteWindow(), max_items=max_items)
    subscription = inbox.fill_from(observable)
    try:
        while await inbox.filled():
            for item in inbox.batch:
                yield item
            inbox.drop_batch()
    finally:
        subscription.dispose()
