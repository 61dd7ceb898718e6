"""`LoopTimers`: the scheduler of an event loop, whose timers may be called off from anywhere."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TypeVar

from reactivex import abc, typing
from reactivex.disposable import Disposable
from reactivex.scheduler.eventloop import AsyncIOThreadSafeScheduler

State = TypeVar("State")


class LoopTimers(AsyncIOThreadSafeScheduler):
    """The scheduler of an event loop, whose timers may be called off from any thread, and after the loop's end.

    reactivex's own makes a thread that has a loop itself wait for this one: with an operator's lock held, for a timer
    that waits for that lock, for ever.
    """

    def schedule(self, action: typing.ScheduledAction[State], state: State | None = None) -> abc.DisposableBase:
        return self._called_off_here(super().schedule(action, state))

    def schedule_relative(
        self, duetime: typing.RelativeTime, action: typing.ScheduledAction[State], state: State | None = None
    ) -> abc.DisposableBase:
        return self._called_off_here(super().schedule_relative(duetime, action, state))

    def _called_off_here(self, timer: abc.DisposableBase) -> abc.DisposableBase:
        def dispose() -> None:
            if runs_here(self._loop):
                timer.dispose()
            else:
                with suppress(RuntimeError):  # the loop is closed, and its timers with it
                    self._loop.call_soon_threadsafe(timer.dispose)

        return Disposable(dispose)


def runs_here(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether this is called on the thread of a loop, while that runs."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
