"""`LoopTimers`: the scheduler of an event loop, whose timers may be called off from anywhere."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Generic, TypeVar

from reactivex import abc, typing
from reactivex.scheduler.eventloop import AsyncIOThreadSafeScheduler

State = TypeVar("State")


class LoopTimers(AsyncIOThreadSafeScheduler):
    """The scheduler of an event loop, whose timers may be called off from any thread, and after the loop's end.

    reactivex's own makes a thread that has a loop itself wait for this one: with an operator's lock held, for a timer
    that waits for that lock, for ever.
    """

    def schedule(self, action: typing.ScheduledAction[State], state: State | None = None) -> abc.DisposableBase:
        timer = _Timer(self._loop, action)
        timer.handle = super().schedule(timer.run, state)
        return timer

    def schedule_relative(
        self, duetime: typing.RelativeTime, action: typing.ScheduledAction[State], state: State | None = None
    ) -> abc.DisposableBase:
        timer = _Timer(self._loop, action)
        timer.handle = super().schedule_relative(duetime, timer.run, state)
        return timer


class _Timer(abc.DisposableBase, Generic[State]):
    """One timer: once it is called off it does nothing, though the loop comes to forgetting it only later."""

    handle: abc.DisposableBase

    def __init__(self, loop: asyncio.AbstractEventLoop, action: typing.ScheduledAction[State]) -> None:
        self._loop = loop
        self._action = action
        self._called_off = False

    def run(self, scheduler: abc.SchedulerBase, state: State | None = None) -> abc.DisposableBase | None:
        return None if self._called_off else self._action(scheduler, state)

    def dispose(self) -> None:
        self._called_off = True
        if runs_here(self._loop):
            self.handle.dispose()
        else:
            with suppress(RuntimeError):  # the loop is closed, and its timers with it
                self._loop.call_soon_threadsafe(self.handle.dispose)


def runs_here(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether this is called on the thread of a loop, while that runs."""
    return loop_here() is loop


def loop_here() -> asyncio.AbstractEventLoop | None:
    """The loop that runs on this thread, None where none does."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
