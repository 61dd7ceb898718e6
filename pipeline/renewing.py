"""`renewing`: one subscription that outlives its sources."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from typing import TypeVar

from reactivex import Observable, abc, typing
from reactivex.disposable import Disposable, SerialDisposable, SingleAssignmentDisposable
from reactivex.scheduler.eventloop import AsyncIOThreadSafeScheduler

from .pressure import call_in

T = TypeVar("T")
State = TypeVar("State")


def renewing(
    observer: abc.ObserverBase[T],
    connect: Callable[[], Observable[T]],
    after: Callable[[Exception | None], float | None],
    *,
    scheduler: abc.SchedulerBase | None,
    timers: abc.SchedulerBase | None = None,
) -> abc.DisposableBase:
    """Subscribe to one source after another, with a wait between them.

    Each is subscribed to in the context of this call, so that the window and the meter of whoever subscribes are those
    of all of them. What the observer itself raises ends it, whatever the error is.

    Args:
        observer: Who gets what they emit.
        connect: Gives the next source.
        after: How many seconds to wait for it after the end of the one before: its error, or None where it completed.
            It gives None for completing, and raises what to fail with.
        scheduler: What the subscriber gave, for the sources.
        timers: What times the waits; the running event loop by default.

    Returns:
        Disposes the present source, or calls the wait off; from any thread.
    """
    clock = timers or _LoopTimers(asyncio.get_running_loop())
    context = copy_context()
    current = SerialDisposable()
    thrown: Exception | None = None

    def subscribe(*_: object) -> None:
        try:
            source = connect()
        except Exception as error:
            observer.on_error(error)
            return
        if current.is_disposed:  # by what was told while connecting
            return
        present = SingleAssignmentDisposable()
        current.disposable = present  # before it may end, within subscribe
        present.disposable = source.subscribe(on_next, end, partial(end, None), scheduler=scheduler)

    def on_next(item: T) -> None:
        nonlocal thrown
        try:
            observer.on_next(item)
        except Exception as error:
            thrown = error
            raise

    def end(error: Exception | None) -> None:
        try:
            if error is not None and error is thrown:
                raise error
            seconds = after(error)
        except Exception as fault:
            observer.on_error(fault)
            return
        if seconds is None:
            observer.on_completed()
        else:
            current.disposable = clock.schedule_relative(seconds, renew)

    def renew(*_: object) -> None:
        context.copy().run(subscribe)

    renew()
    return current


class _LoopTimers(AsyncIOThreadSafeScheduler):
    """The scheduler of an event loop, whose timers may be called off from any thread, and after the loop's end."""

    def schedule_relative(
        self, duetime: typing.RelativeTime, action: typing.ScheduledAction[State], state: State | None = None
    ) -> abc.DisposableBase:
        timer = super().schedule_relative(duetime, action, state)

        def dispose() -> None:
            try:
                here = asyncio.get_running_loop() is self._loop
            except RuntimeError:
                here = False
            if here:
                timer.dispose()
            else:
                call_in(self._loop, timer.dispose)

        return Disposable(dispose)
