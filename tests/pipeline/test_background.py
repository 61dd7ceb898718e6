"""`run_in_background` and `BackgroundLoop`: threads, every way to stop, and the pressure on the source."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from queue import SimpleQueue
from typing import Any

import aiohttp
import pytest
import reactivex as rx
from reactivex import Observable, Subject, abc
from reactivex import operators as rxops
from reactivex.disposable import Disposable
from reactivex.scheduler.eventloop import AsyncIOScheduler

from rillet.operators import ByteWindow, Delta, Done, TextDelta, coalesce
from rillet.operators.errors import BufferOverflow, TruncatedStream
from rillet.operators.window import current_window
from rillet.pipeline import BackgroundLoop, ask, run_in_background
from rillet.pipeline.background import Background, Work
from rillet.pipeline.sandbox import Fault, Sandbox, Script, Wire

Eventually = Callable[[Callable[[], object]], Awaitable[None]]

STALLED = Fault("stall", after=600)


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        if thread.name == "rillet loop":
            thread.join(5)
            assert not thread.is_alive()


def asking(base_url: str) -> Callable[[aiohttp.ClientSession], Observable[Delta]]:
    return lambda session: ask(session, "hi", provider="openai", base_url=base_url)


def text_of(deltas: list[Delta]) -> str:
    return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


class Broken(Exception):
    """What a subscriber, or an observable, of these tests raises."""


async def test_a_script_loops_over_an_answer_and_nothing_is_left() -> None:
    sandbox = Sandbox(Script("Hello there."), Wire(seed=1))
    async with sandbox as base_url:
        deltas = await asyncio.to_thread(lambda: list(run_in_background(asking(base_url))))
        await sandbox.requests_over()
    assert text_of(deltas) == "Hello there."
    assert deltas[-1] == Done()


@pytest.mark.parametrize("make", [run_in_background, BackgroundLoop().run])
async def test_a_loop_over_it_inside_a_coroutine_is_an_error_and_blocks_nothing(
    make: Callable[[Observable[int]], Background[int]],
) -> None:
    before = set(threading.enumerate())
    with pytest.raises(RuntimeError, match="blocks the event loop that runs here: use iterate"):
        next(iter(make(rx.never())))
    assert set(threading.enumerate()) <= before


def test_an_observable_that_needs_no_session_is_taken_as_it_is() -> None:
    assert list(run_in_background(rx.from_iterable(range(100)))) == list(range(100))
    assert list(run_in_background(rx.empty())) == []


def ticks(session: aiohttp.ClientSession) -> Observable[int]:
    """Numbers, one a millisecond, on the loop."""
    return rx.interval(0.001, scheduler=AsyncIOScheduler(asyncio.get_running_loop()))


def test_what_times_this_librarys_operators_is_the_loop_in_its_thread() -> None:
    names: list[str] = []
    bursts = rx.concat(rx.from_iterable(range(3)), rx.never()).pipe(
        coalesce(0.001), rxops.do_action(lambda _: names.append(threading.current_thread().name)), rxops.take(3)
    )
    assert list(run_in_background(bursts)) == [0, 1, 2]
    assert names == ["rillet loop"] * 3


def test_a_source_that_cannot_wait_is_cut_off_at_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rillet.pipeline.background.MAX_ITEMS", 100)
    seen: list[int] = []
    with pytest.raises(BufferOverflow):
        seen.extend(run_in_background(rx.from_iterable(range(1_000))))
    assert seen == list(range(len(seen)))
    assert len(seen) >= 100


def test_an_error_comes_after_the_items_before_it() -> None:
    items: list[int] = []
    fault = Broken()
    with pytest.raises(Broken) as raised:
        items.extend(run_in_background(rx.concat(rx.of(1, 2), rx.throw(fault))))
    assert (items, raised.value) == ([1, 2], fault)


async def test_a_cut_answer_raises() -> None:
    def consume() -> None:
        with pytest.raises(TruncatedStream):
            list(run_in_background(asking(base_url)))

    async with Sandbox(Script("x" * 900), fault=Fault("cut", after=600)) as base_url:
        await asyncio.to_thread(consume)


def test_a_function_that_raises_is_an_error_of_the_observable() -> None:
    def fail(session: aiohttp.ClientSession) -> Observable[int]:
        raise Broken

    with pytest.raises(Broken):
        list(run_in_background(fail))
    with pytest.raises(ValueError, match="unknown provider"):
        list(run_in_background(lambda session: ask(session, "hi", provider="nobody")))


def test_a_session_that_cannot_be_made_is_told_where_it_is_wanted() -> None:
    def fail() -> aiohttp.ClientSession:
        raise Broken

    background = BackgroundLoop(fail)
    for _ in range(2):
        with pytest.raises(Broken):
            list(background.run(rx.empty()))
    background.stop()


async def test_leaving_the_loop_closes_the_connection_and_ends_the_thread() -> None:
    def consume() -> list[threading.Thread]:
        for _ in run_in_background(asking(base_url)):
            break
        return [thread for thread in threading.enumerate() if thread.name == "rillet loop"]

    sandbox = Sandbox(fault=STALLED)
    async with sandbox as base_url:
        assert await asyncio.to_thread(consume) == []
        await sandbox.requests_over()


async def test_leaving_a_with_block_stops_what_runs() -> None:
    def consume() -> None:
        with run_in_background(asking(base_url)) as answer:
            answer.subscribe(lambda _: begun.set())
            assert begun.wait(5)

    begun = threading.Event()
    sandbox = Sandbox(fault=STALLED)
    async with sandbox as base_url:
        await asyncio.to_thread(consume)
        await sandbox.requests_over()


async def test_stopped_from_another_thread_and_twice_a_for_does_not_look_complete() -> None:
    def consume() -> str:
        with pytest.raises(RuntimeError, match="stopped") as raised:
            for _ in answer:
                begun.set()
        return str(raised.value)

    begun = threading.Event()
    sandbox = Sandbox(fault=STALLED)
    async with sandbox as base_url:
        with BackgroundLoop() as background:
            for answer in (run_in_background(asking(base_url)), background.run(asking(base_url))):
                consumer = asyncio.create_task(asyncio.to_thread(consume))
                await asyncio.to_thread(begun.wait, 5)
                begun.clear()
                await asyncio.to_thread(answer.stop)
                await asyncio.to_thread(answer.stop)
                assert await consumer == "the background loop was stopped"
        await sandbox.requests_over()


async def test_one_loop_serves_many_and_stopping_it_stops_them_all(eventually: Eventually) -> None:
    ports: list[int] = []
    ends: list[object] = []
    whole, stalled = Sandbox(Script("one")), Sandbox(fault=STALLED)
    async with whole as base_url, stalled as stalled_url:
        background = BackgroundLoop()
        for _ in range(2):
            deltas = await asyncio.to_thread(lambda: list(background.run(asking(base_url))))
            assert text_of(deltas) == "one"
        ports = [request.port for request in whole.requests]
        seen: list[Delta] = []
        for _ in range(2):
            background.run(asking(stalled_url)).subscribe(seen.append, ends.append, lambda: ends.append("end"))
        await eventually(lambda: len(stalled.requests) == 2 and seen)
        await asyncio.to_thread(background.stop)
        await stalled.requests_over()
    assert ports[0] == ports[1], "the session keeps its connections"
    assert ends == [], "what is disposed hears nothing more"
    with pytest.raises(RuntimeError, match="stopped"):
        await asyncio.to_thread(lambda: list(background.run(rx.empty())))
    background.stop()


async def test_disposed_from_another_thread_the_connection_closes(eventually: Eventually) -> None:
    sandbox = Sandbox(fault=STALLED)
    seen: list[Delta] = []
    async with sandbox as base_url:
        subscription = run_in_background(asking(base_url)).subscribe(seen.append)
        await eventually(lambda: seen)
        subscription.dispose()
        await sandbox.requests_over()


def test_disposed_before_it_started_it_never_subscribes() -> None:
    subscribed: list[bool] = []

    def subscribe(observer: abc.ObserverBase[int], scheduler: Any = None) -> abc.DisposableBase:
        subscribed.append(True)
        return rx.never().subscribe(observer)

    with BackgroundLoop() as background:
        blocked, release = threading.Event(), threading.Event()

        def block(_: int) -> None:
            blocked.set()
            release.wait(5)

        background.run(rx.just(1)).subscribe(block)
        assert blocked.wait(5)
        background.run(Observable(subscribe)).subscribe().dispose()
        release.set()
    assert subscribed == []


def test_stopped_inside_on_next_on_its_own_thread_it_does_not_wait_for_itself() -> None:
    background = BackgroundLoop()
    seen: list[int] = []
    done = threading.Event()

    def leave(item: int) -> None:
        seen.append(item)
        background.stop()
        done.set()

    background.run(ticks).subscribe(leave)
    assert done.wait(5)
    background.stop()
    assert seen == [0]


def test_stopped_inside_on_next_nothing_more_is_delivered_nor_begun() -> None:
    background = BackgroundLoop()
    seen: list[int] = []
    subscribed: list[int] = []

    def push(observer: abc.ObserverBase[int], _: abc.SchedulerBase | None = None) -> abc.DisposableBase:
        loop = asyncio.get_running_loop()
        for n in range(3):
            loop.call_soon(observer.on_next, n)  # all of them in one turn of the loop
        return Disposable()

    def note(_: abc.ObserverBase[int], __: abc.SchedulerBase | None = None) -> abc.DisposableBase:
        subscribed.append(1)
        return Disposable()

    def leave(item: int) -> None:
        seen.append(item)
        background.run(Observable(note)).subscribe()
        background.stop()

    background.run(Observable(push)).subscribe(leave)
    for thread in threading.enumerate():
        if thread.name == "rillet loop":
            thread.join(5)
    assert (seen, subscribed) == ([0], [])


async def test_an_exception_of_a_subscriber_arrives_once_at_on_error_and_the_loop_goes_on(
    eventually: Eventually,
) -> None:
    def fail(_: Delta) -> None:
        raise fault

    fault = Broken()
    ends: list[object] = []
    sandbox = Sandbox(fault=STALLED)
    async with sandbox as base_url:
        with BackgroundLoop() as background:
            background.run(asking(base_url)).subscribe(fail, ends.append, lambda: ends.append("end"))
            await sandbox_idle(sandbox, eventually)
            assert await asyncio.to_thread(lambda: list(background.run(rx.of(1)))) == [1]
    assert ends == [fault]


async def sandbox_idle(sandbox: Sandbox, eventually: Eventually) -> None:
    await eventually(lambda: sandbox.requests)
    await sandbox.requests_over()


async def test_a_slow_loop_slows_the_socket_and_gets_everything(eventually: Eventually) -> None:
    text = "0123456789" * 300_000
    windows: list[ByteWindow] = []

    def make(session: aiohttp.ClientSession) -> Observable[Delta]:
        window = current_window()
        assert window is not None
        windows.append(window)
        return asking(base_url)(session)

    def consume() -> str:
        pieces: list[Delta] = []
        for delta in run_in_background(make):
            if not pieces:
                stalled.wait(5)
            pieces.append(delta)
        return text_of(pieces)

    stalled = threading.Event()
    async with Sandbox(Script(text, piece=1_000)) as base_url:
        consumer = asyncio.create_task(asyncio.to_thread(consume))
        await eventually(lambda: windows and windows[0].stalls)
        assert windows[0].pending <= windows[0].limit
        stalled.set()
        assert await consumer == text


class Desk:
    """A thread's queue of calls, as a GUI's event loop has it."""

    def __init__(self) -> None:
        self.calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.wake_ups = 0

    def run_until(self, condition: Callable[[], object]) -> None:
        while not condition():
            call = self.calls.get(timeout=5)
            self.wake_ups += 1
            call()


def test_with_post_everything_comes_on_the_thread_it_reaches_in_one_call_for_all_that_waits() -> None:
    desk, seen, ends = Desk(), list[int](), list[object]()
    threads: set[int] = set()

    def show(item: int) -> None:
        seen.append(item)
        threads.add(threading.get_ident())

    work: Work[int] = rx.from_iterable(range(1_000))
    run_in_background(work, post=desk.calls.put).subscribe(show, ends.append, lambda: ends.append("end"))
    first = desk.calls.get(timeout=5)
    for thread in threading.enumerate():  # all has been put, and the loop has ended, before the first call is made
        if thread.name == "rillet loop":
            thread.join(5)
    first()
    desk.run_until(lambda: ends)
    assert (seen, ends, threads) == (list(range(1_000)), ["end"], {threading.get_ident()})
    assert desk.wake_ups == 0


def test_with_post_an_error_and_a_subscribers_exception_come_there_too() -> None:
    def fail(_: int) -> None:
        raise second

    first, second = Broken(), Broken()
    desk, ends = Desk(), list[object]()
    run_in_background(rx.throw(first), post=desk.calls.put).subscribe(on_error=ends.append)
    desk.run_until(lambda: ends)
    subject: Subject[int] = Subject()
    run_in_background(rx.merge(subject, rx.just(1)), post=desk.calls.put).subscribe(fail, ends.append)
    desk.run_until(lambda: len(ends) == 2)
    assert ends == [first, second]


def test_with_post_nothing_comes_after_dispose() -> None:
    desk, seen = Desk(), list[int]()
    subscription = run_in_background(rx.merge(rx.never(), rx.of(1, 2, 3)), post=desk.calls.put).subscribe(
        lambda item: (seen.append(item), subscription.dispose())
    )
    desk.run_until(lambda: seen)
    while not desk.calls.empty():
        desk.calls.get()()
    assert seen == [1]


def test_with_post_nothing_comes_after_the_loop_was_stopped() -> None:
    desk, seen = Desk(), list[object]()
    with BackgroundLoop() as background:
        endless = background.run(rx.merge(rx.never(), rx.of(1, 2, 3)), post=desk.calls.put)
        endless.subscribe(seen.append, seen.append, lambda: seen.append("end"))
        call = desk.calls.get(timeout=5)
    call()
    assert (seen, desk.calls.empty()) == ([], True)


def test_with_post_a_flood_does_not_hold_the_thread() -> None:
    """One call delivers what had come when it was made, not what comes meanwhile."""
    desk, seen = Desk(), list[int]()
    subject: Subject[int] = Subject()

    def show(item: int) -> None:
        seen.append(item)
        subject.on_next(item + 1)

    with BackgroundLoop() as background:
        background.run(rx.merge(subject, rx.just(0)), post=desk.calls.put).subscribe(show)
        desk.run_until(lambda: len(seen) >= 20)
    assert seen == list(range(20))


async def test_with_post_a_blocked_thread_slows_the_socket(eventually: Eventually) -> None:
    text = "0123456789" * 300_000
    windows: list[ByteWindow] = []

    def make(session: aiohttp.ClientSession) -> Observable[Delta]:
        window = current_window()
        assert window is not None
        windows.append(window)
        return asking(base_url)(session).pipe(coalesce(0.005))

    desk, seen, ends = Desk(), list[Delta](), list[object]()
    async with Sandbox(Script(text, piece=1_000)) as base_url:
        run_in_background(make, post=desk.calls.put).subscribe(seen.append, ends.append, lambda: ends.append("end"))
        await eventually(lambda: windows and windows[0].stalls)
        assert windows[0].pending <= windows[0].limit
        await asyncio.to_thread(desk.run_until, lambda: ends)
    assert (text_of(seen), ends) == (text, ["end"])


async def test_with_post_what_comes_before_the_first_item_may_be_larger_than_the_window() -> None:
    desk, ends = Desk(), list[object]()
    async with Sandbox(Script(), Wire(comments=20_000)) as base_url:
        run_in_background(asking(base_url), post=desk.calls.put).subscribe(
            on_error=ends.append, on_completed=lambda: ends.append("end")
        )
        await asyncio.to_thread(desk.run_until, lambda: ends)
    assert ends == ["end"]


def test_a_post_that_fails_is_not_silent(caplog: pytest.LogCaptureFixture) -> None:
    def post(_: Callable[[], None]) -> None:
        raise Broken

    with run_in_background(ticks, post=post) as background:
        logged = threading.Event()
        caplog.handler.addFilter(lambda _: logged.set() or True)
        background.subscribe()
        assert logged.wait(5)
    assert caplog.records[0].exc_info is not None
    assert caplog.records[0].exc_info[0] is Broken


FORGOTTEN = """
import asyncio, threading
from rillet.pipeline import BackgroundLoop, ask, run_in_background

begun = threading.Event()
background = BackgroundLoop()
for answer in (background.run, run_in_background):
    begun.clear()
    asking = answer(lambda session: ask(session, "hi", provider="openai", base_url={url!r}))
    asking.subscribe(lambda _: begun.set(), print)
    assert begun.wait(5)
print("over")
"""


async def test_the_interpreter_exits_cleanly_where_nobody_stopped() -> None:
    sandbox = Sandbox(fault=STALLED)
    async with sandbox as base_url:
        command = [sys.executable, "-X", "dev", "-W", "error", "-c", FORGOTTEN.format(url=base_url)]
        ran = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=20, check=False)
        await sandbox.requests_over()
    said = re.sub(r"Executing <.* took [0-9.]+ seconds\n", "", ran.stderr)  # what else this machine does
    assert (ran.returncode, ran.stdout, said) == (0, "over\n", "")
