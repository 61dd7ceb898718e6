"""`LoopTimers`: they run in their loop, and whoever calls one off waits for nobody."""

from __future__ import annotations

import asyncio
import threading

import pytest
import reactivex as rx
from reactivex import Observable, abc

from rillet.operators.timers import timer_scheduler
from rillet.pipeline import for_each, iterate, run_in_background
from rillet.pipeline.loop_timers import LoopTimers, runs_here


def timers_here() -> LoopTimers:
    return LoopTimers(asyncio.get_running_loop())


async def call_off(timer: abc.DisposableBase) -> None:
    timer.dispose()


@pytest.mark.parametrize("seconds", [0.0, 0.001])
async def test_they_run_in_their_loop(seconds: float) -> None:
    ran: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    timers = timers_here()
    timers.schedule_relative(seconds, lambda *_: ran.set_result(runs_here(asyncio.get_running_loop())))
    assert await ran


@pytest.mark.parametrize("seconds", [0.0, 0.001])
@pytest.mark.parametrize("has_loop", [False, True])
async def test_another_thread_calls_one_off_though_the_loop_is_busy(seconds: float, has_loop: bool) -> None:
    ran: list[object] = []
    timer = timers_here().schedule_relative(seconds, lambda *_: ran.append("too late"))
    thread = threading.Thread(target=(lambda: asyncio.run(call_off(timer))) if has_loop else timer.dispose)
    thread.start()
    thread.join(5)  # and so the loop turns for nobody
    assert not thread.is_alive()
    over = asyncio.Event()
    timers_here().schedule_relative(0.005, lambda *_: over.set())
    await over.wait()
    assert not ran


def test_one_is_called_off_after_its_loop_has_ended() -> None:
    async def schedule() -> abc.DisposableBase:
        return timers_here().schedule_relative(60, lambda *_: None)

    timer = asyncio.run(schedule())
    timer.dispose()
    asyncio.run(call_off(timer))


async def test_each_boundary_offers_them() -> None:
    offered: list[abc.SchedulerBase] = []

    def subscribe(observer: abc.ObserverBase[int], _: abc.SchedulerBase | None = None) -> abc.DisposableBase:
        offered.append(timer_scheduler())
        return rx.of(1).subscribe(observer)

    async def handle(item: int) -> int:
        return item

    source = Observable(subscribe)
    assert [item async for item in iterate(source)] == [1]
    assert await source.pipe(for_each(handle)) == 1
    assert await asyncio.to_thread(lambda: list(run_in_background(source))) == [1]
    assert [type(scheduler) for scheduler in offered] == [LoopTimers] * 3
