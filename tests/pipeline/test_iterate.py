"""`iterate`: order, errors, every way to leave, and the pressure on the source."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any

import aiohttp
import pytest
import reactivex as rx
from reactivex import Observable, abc
from reactivex import operators as rxops
from reactivex.disposable import Disposable
from reactivex.subject import Subject

from rillet.operators import ByteWindow, TextDelta
from rillet.operators.window import current_window
from rillet.pipeline import ask, iterate
from rillet.pipeline.sandbox import Fault, Sandbox, Script, Wire

Eventually = Callable[[Callable[[], object]], Awaitable[None]]


async def test_it_gives_every_item_in_order() -> None:
    assert [item async for item in iterate(rx.from_iterable(range(100)))] == list(range(100))


async def test_an_empty_observable_gives_nothing() -> None:
    assert [item async for item in iterate(rx.empty())] == []


async def test_an_error_comes_after_the_items_before_it() -> None:
    items: list[int] = []
    failure = KeyError("mine")
    with pytest.raises(KeyError) as raised:
        async for item in iterate(rx.from_iterable([1, 2]).pipe(rxops.concat(rx.throw(failure)))):
            items.append(item)  # noqa: PERF401 - the items before the error count
    assert (items, raised.value) == ([1, 2], failure)


async def test_it_subscribes_at_the_first_step_and_each_time_anew() -> None:
    subscriptions = 0

    def source(scheduler: abc.SchedulerBase) -> Observable[int]:
        nonlocal subscriptions
        subscriptions += 1
        return rx.just(subscriptions)

    observable = rx.defer(source)
    first, second = iterate(observable), iterate(observable)
    assert subscriptions == 0
    assert [item async for item in first] == [1]
    assert [item async for item in second] == [2]


def watched(subject: Subject[int], disposed: list[bool]) -> Observable[int]:
    return subject.pipe(rxops.finally_action(lambda: disposed.append(True)))


async def test_leaving_early_disposes() -> None:
    disposed: list[bool] = []
    async with aclosing(iterate(watched(Subject(), disposed).pipe(rxops.start_with(1)))) as items:
        async for _ in items:
            break
    assert disposed == [True]


async def test_break_alone_disposes_too(eventually: Eventually) -> None:
    disposed: list[bool] = []
    async for _ in iterate(watched(Subject(), disposed).pipe(rxops.start_with(1))):
        break
    await eventually(lambda: disposed)


async def test_an_exception_in_the_loop_disposes(eventually: Eventually) -> None:
    disposed: list[bool] = []

    async def fails() -> None:
        async for _ in iterate(watched(Subject(), disposed).pipe(rxops.start_with(1))):
            raise RuntimeError("mine")

    with pytest.raises(RuntimeError):
        await fails()
    await eventually(lambda: disposed)


async def test_cancelling_the_consumer_disposes() -> None:
    disposed: list[bool] = []
    waiting = asyncio.Event()

    async def consume() -> None:
        async for _ in iterate(watched(Subject(), disposed).pipe(rxops.start_with(1))):
            waiting.set()

    task = asyncio.create_task(consume())
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert disposed == [True]


async def test_items_may_come_from_another_thread() -> None:
    subject: Subject[int] = Subject()

    def push() -> None:
        for item in range(1_000):
            subject.on_next(item)
        subject.on_completed()

    items = iterate(subject.pipe(rxops.start_with(-1)))
    assert await anext(items) == -1
    thread = threading.Thread(target=push)
    thread.start()
    assert [item async for item in items] == list(range(1_000))
    thread.join()


async def test_the_source_is_offered_a_window_while_it_is_subscribed_and_only_then() -> None:
    offers: list[ByteWindow | None] = []

    def subscribe(observer: abc.ObserverBase[int], scheduler: Any = None) -> abc.DisposableBase:
        offers.append(current_window())
        observer.on_completed()
        return Disposable()

    window = ByteWindow()
    source = Observable(subscribe).pipe(rxops.map(str), rxops.filter(bool))
    assert [item async for item in iterate(source, window=window)] == []
    assert [item async for item in iterate(source)] == []
    assert offers[0] is window
    assert offers[1] not in (None, window)
    assert current_window() is None


async def test_a_slow_consumer_stops_the_socket_and_gets_everything(
    session: aiohttp.ClientSession, eventually: Eventually
) -> None:
    text = "0123456789" * 300_000
    sandbox = Sandbox(Script(text=text, piece=1_000))
    window = ByteWindow(64 * 1024)
    async with sandbox as base_url:
        flow = iterate(ask(session, "hi", provider="openai", base_url=base_url), window=window)
        pieces = [await anext(flow)]
        await eventually(lambda: window.stalls)
        assert window.pending <= window.limit
        assert window.read < len(text) / 2
        pieces.extend([delta async for delta in flow])
    assert "".join(delta.text for delta in pieces if isinstance(delta, TextDelta)) == text
    assert window.pending < window.limit


async def test_an_event_larger_than_the_window_passes(session: aiohttp.ClientSession) -> None:
    text = "x" * 300_000
    async with Sandbox(Script(text=text, piece=len(text)), Wire(sizes=(7_000,))) as base_url:
        flow = iterate(ask(session, "hi", provider="openai", base_url=base_url), window=ByteWindow(1_000))
        assert [delta async for delta in flow if isinstance(delta, TextDelta)] == [TextDelta(text)]


async def test_after_a_break_the_server_sees_the_connection_close(session: aiohttp.ClientSession) -> None:
    sandbox = Sandbox(fault=Fault("stall", after=600))
    async with sandbox as base_url:
        async for _ in iterate(ask(session, "hi", provider="openai", base_url=base_url)):
            break
        await sandbox.requests_over()


async def test_two_sources_under_one_window_both_arrive(session: aiohttp.ClientSession) -> None:
    text = "0123456789" * 20_000
    async with Sandbox(Script(text=text, piece=100)) as base_url, asyncio.timeout(20):
        both = rx.merge(*(ask(session, "hi", provider="openai", base_url=base_url) for _ in range(2)))
        deltas = [delta async for delta in iterate(both, window=ByteWindow(16 * 1024))]
    assert sum(len(delta.text) for delta in deltas if isinstance(delta, TextDelta)) == 2 * len(text)


async def test_one_that_leaves_a_shared_stream_does_not_hold_the_other(session: aiohttp.ClientSession) -> None:
    text = "0123456789" * 20_000
    async with Sandbox(Script(text=text, piece=100)) as base_url, asyncio.timeout(20):
        shared = ask(session, "hi", provider="openai", base_url=base_url).pipe(rxops.share())
        leaving = iterate(shared, window=ByteWindow(16 * 1024))
        await anext(leaving)
        staying = iterate(shared, window=ByteWindow(16 * 1024))
        first = await anext(staying)
        await leaving.aclose()
        rest = [delta async for delta in staying]
    assert isinstance(first, TextDelta)
    assert text.endswith("".join(delta.text for delta in [first, *rest] if isinstance(delta, TextDelta)))
