"""`watched`: what passes through a stream, and how it ends, told once to somebody who must not harm it."""

from __future__ import annotations

import asyncio
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from threading import Lock
from typing import Generic, Literal, TypeAlias, TypeVar

from reactivex import Observable, abc
from reactivex.disposable import Disposable, SingleAssignmentDisposable

from rillet.operators.errors import StreamError

T = TypeVar("T")

Ending: TypeAlias = Literal["completed", "failed", "disposed"]
"""How a subscription ended; "disposed" where its subscriber left first."""


class Watch(ABC, Generic[T]):
    """Who watches one subscription."""

    def subscribing(self) -> AbstractContextManager[object]:
        """What the source is subscribed to in."""
        return nullcontext()

    @abstractmethod
    def item(self, item: T) -> None:
        """An item is about to be handed on. This must not raise: it is called for each of them."""

    @abstractmethod
    def end(self, ending: Ending, error: Exception | None) -> None:
        """The subscription is over: called once, before its subscriber hears of it; `error` where it failed.

        What this raises is reported, and the stream goes on.
        """


def watched(source: Observable[T], begin: Callable[[], Watch[T]]) -> Observable[T]:
    """The same stream, watched.

    Args:
        source: The stream.
        begin: Makes the watch of one subscription, before the source is subscribed to. What it raises, the subscriber
            gets, and the source is left alone.

    Returns:
        An observable of the same items. An exception that its subscriber raises in `on_next` disposes the source, and
        arrives once at `on_error`.
    """

    def subscribe(observer: abc.ObserverBase[T], scheduler: abc.SchedulerBase | None = None) -> abc.DisposableBase:
        try:
            watch = begin()
        except Exception as error:
            observer.on_error(error)
            return Disposable()
        upstream = SingleAssignmentDisposable()
        hand_on, see = observer.on_next, watch.item
        end = _once(watch)

        def on_next(item: T) -> None:
            if upstream.is_disposed:  # a source that pushes inside subscribe can't be stopped from here
                return
            see(item)
            try:
                hand_on(item)
            except Exception as error:
                upstream.dispose()
                on_error(error)

        def on_error(error: Exception) -> None:
            end("failed", error)
            observer.on_error(error)

        def on_completed() -> None:
            end("completed", None)
            observer.on_completed()

        def dispose() -> None:
            upstream.dispose()
            end("disposed", None)

        with watch.subscribing():
            upstream.disposable = source.subscribe(on_next, on_error, on_completed, scheduler=scheduler)
        return Disposable(dispose)

    return Observable(subscribe)


def _once(watch: Watch[T]) -> Callable[[Ending, Exception | None], None]:
    """The end of a watch: the first to come counts, from whatever thread."""
    first = Lock()

    def end(ending: Ending, error: Exception | None) -> None:
        if not first.acquire(blocking=False):
            return
        try:
            watch.end(ending, error)
        except Exception as own:
            report("unhandled error at the end of a watched stream", own)

    return end


def report(message: str, error: Exception) -> None:
    """Tell of an error that the stream must not suffer from: to the event loop, or to `sys.excepthook` without one."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        sys.excepthook(type(error), error, error.__traceback__)
    else:
        loop.call_exception_handler({"message": message, "exception": error})


def error_kind(error: Exception) -> str:
    """One word for an error, without what it says: the `kind` of a `StreamError`, the class's name of any other."""
    return error.kind if isinstance(error, StreamError) else type(error).__name__
