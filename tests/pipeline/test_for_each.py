"""`for_each`: order, concurrency, failure, every way to leave, and the pressure on the source."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest
import reactivex as rx
from reactivex import Observable, Subject
from reactivex import operators as ops

from rillet.operators import ByteWindow, Delta, TextDelta
from rillet.operators.errors import TruncatedStream
from rillet.pipeline import ask, for_each, iterate
from rillet.pipeline.sandbox import Fault, Sandbox, Script

Eventually = Callable[[Callable[[], object]], Awaitable[None]]


class Gates:
    """A handler whose calls wait until they are let through, one by one."""

    def __init__(self) -> None:
        self.started: list[int] = []
        self.cancelled: list[int] = []
        self._gates: dict[int, asyncio.Event] = {}

    async def handle(self, item: int) -> str:
        self.started.append(item)
        try:
            await self._gate(item).wait()
        except asyncio.CancelledError:
            self.cancelled.append(item)
            raise
        return f"<{item}>"

    def open(self, *items: int) -> None:
        for item in items:
            self._gate(item).set()

    def _gate(self, item: int) -> asyncio.Event:
        return self._gates.setdefault(item, asyncio.Event())


class Seen:
    def __init__(self, observable: Observable[Any]) -> None:
        self.items: list[Any] = []
        self.ends: list[Any] = []
        self.subscription = observable.subscribe(
            self.items.append, self.ends.append, lambda: self.ends.append("completed")
        )


async def double(item: int) -> int:
    await asyncio.sleep(0)
    return 2 * item


@pytest.mark.parametrize("concurrency", [0, -1])
def test_no_handler_at_all_is_refused(concurrency: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        for_each(double, concurrency=concurrency)


@pytest.mark.parametrize("concurrency", [1, 2, 7, 100])
async def test_every_result_in_order(concurrency: int) -> None:
    results = iterate(rx.from_iterable(range(50)).pipe(for_each(double, concurrency=concurrency)))
    assert [result async for result in results] == [2 * item for item in range(50)]


async def test_awaiting_it_waits_for_all_of_them() -> None:
    done: list[int] = []

    async def note(item: int) -> None:
        await asyncio.sleep(0)
        done.append(item)

    await rx.from_iterable(range(10)).pipe(for_each(note))
    assert done == list(range(10))


async def test_an_empty_source_completes() -> None:
    assert [result async for result in iterate(rx.empty().pipe(for_each(double)))] == []


async def test_no_more_run_at_once_than_allowed_and_a_late_one_holds_back_those_after_it(
    eventually: Eventually,
) -> None:
    gates, source = Gates(), Subject[int]()
    seen = Seen(source.pipe(for_each(gates.handle, concurrency=3)))
    for item in range(6):
        source.on_next(item)
    await eventually(lambda: gates.started == [0, 1, 2])
    gates.open(1, 2, 3)
    await asyncio.sleep(0)
    assert (seen.items, gates.started) == ([], [0, 1, 2])
    gates.open(0)
    await eventually(lambda: seen.items == ["<0>", "<1>", "<2>", "<3>"])
    gates.open(4, 5)
    source.on_completed()
    await eventually(lambda: seen.ends)
    assert (seen.items, seen.ends) == ([f"<{item}>" for item in range(6)], ["completed"])


async def test_a_result_is_handed_on_while_the_source_is_silent(eventually: Eventually) -> None:
    gates, source = Gates(), Subject[int]()
    seen = Seen(source.pipe(for_each(gates.handle, concurrency=5)))
    source.on_next(1)
    gates.open(1)
    await eventually(lambda: seen.items == ["<1>"])
    seen.subscription.dispose()


async def test_an_error_of_the_source_comes_after_the_results_before_it(eventually: Eventually) -> None:
    gates, fault = Gates(), OSError("reset")
    seen = Seen(rx.concat(rx.from_iterable([1, 2]), rx.throw(fault)).pipe(for_each(gates.handle, concurrency=4)))
    await eventually(lambda: gates.started == [1, 2])
    assert seen.ends == []
    gates.open(2, 1)
    await eventually(lambda: seen.ends)
    assert (seen.items, seen.ends) == (["<1>", "<2>"], [fault])


async def test_a_handler_that_raises_ends_it_and_cancels_the_others(eventually: Eventually) -> None:
    gates, source, fault = Gates(), Subject[int](), ValueError("mine")

    async def handle(item: int) -> str:
        if item == 2:
            raise fault
        return await gates.handle(item)

    seen = Seen(source.pipe(for_each(handle, concurrency=4)))
    for item in range(1, 5):
        source.on_next(item)
    await eventually(lambda: gates.started == [1, 3, 4])
    gates.open(1)
    await eventually(lambda: seen.ends)
    assert (seen.items, seen.ends, sorted(gates.cancelled)) == (["<1>"], [fault], [3, 4])
    assert not source.observers


async def test_a_handler_that_fails_before_it_awaits_fails_the_same() -> None:
    fault = ValueError("mine")

    def handle(item: int) -> Awaitable[int]:
        raise fault

    with pytest.raises(ValueError, match="mine") as raised:
        await rx.just(1).pipe(for_each(handle))
    assert raised.value is fault


async def test_a_subscriber_that_raises_ends_it_once(eventually: Eventually) -> None:
    source, fault, errors = Subject[int](), ValueError("mine"), list[Exception]()

    def fail(_: int) -> None:
        raise fault

    source.pipe(for_each(double)).subscribe(fail, errors.append)
    source.on_next(1)
    source.on_next(2)
    await eventually(lambda: errors)
    assert (errors, source.observers) == ([fault], [])


@pytest.mark.parametrize("from_another_thread", [False, True])
async def test_dispose_cancels_the_handlers_and_disposes_the_source(
    from_another_thread: bool, eventually: Eventually
) -> None:
    gates, source = Gates(), Subject[int]()
    seen = Seen(source.pipe(for_each(gates.handle, concurrency=2)))
    for item in range(3):
        source.on_next(item)
    await eventually(lambda: gates.started == [0, 1])
    if from_another_thread:
        await asyncio.to_thread(seen.subscription.dispose)
    else:
        seen.subscription.dispose()
    assert not source.observers
    await eventually(lambda: sorted(gates.cancelled) == [0, 1])
    gates.open(0, 1)
    await asyncio.sleep(0)
    assert (seen.items, seen.ends) == ([], [])


async def test_it_subscribes_and_disposes_at_once() -> None:
    source = Subject[int]()
    subscription = source.pipe(for_each(double)).subscribe()
    assert source.observers
    subscription.dispose()
    assert not source.observers


async def test_subscribed_twice_it_handles_each_for_itself() -> None:
    observable = rx.from_iterable(range(5)).pipe(for_each(double, concurrency=2))

    async def results() -> list[int]:
        return [result async for result in iterate(observable)]

    assert await asyncio.gather(results(), results()) == [[0, 2, 4, 6, 8]] * 2


async def test_items_may_come_from_another_thread(eventually: Eventually) -> None:
    source = Subject[int]()
    threads: set[int] = set()

    async def handle(item: int) -> int:
        threads.add(threading.get_ident())
        return item

    seen = Seen(source.pipe(for_each(handle)))

    def push() -> None:
        for item in range(200):
            source.on_next(item)
        source.on_completed()

    await asyncio.to_thread(push)
    await eventually(lambda: seen.ends)
    assert (seen.items, threads) == (list(range(200)), {threading.get_ident()})


async def test_while_the_handlers_are_busy_the_server_waits(
    session: aiohttp.ClientSession, eventually: Eventually
) -> None:
    text, window, go_on = "0123456789" * 300_000, ByteWindow(64 * 1024), asyncio.Event()
    sandbox = Sandbox(Script(text=text, piece=1_000))

    async def handle(delta: Delta) -> str:
        await go_on.wait()
        return delta.text if isinstance(delta, TextDelta) else ""

    async with sandbox as base_url:
        answer = ask(session, "hi", provider="openai", base_url=base_url)
        seen = Seen(answer.pipe(for_each(handle, concurrency=4, window=window)))
        await eventually(lambda: window.stalls)
        assert window.pending <= window.limit
        go_on.set()
        await eventually(lambda: seen.ends)
    assert ("".join(seen.items), seen.ends) == (text, ["completed"])


async def test_a_slow_consumer_of_the_results_slows_it_too(
    session: aiohttp.ClientSession, eventually: Eventually
) -> None:
    text, handled, windows = "0123456789" * 300_000, list[Delta](), (ByteWindow(64 * 1024), ByteWindow(64 * 1024))

    async def handle(delta: Delta) -> Delta:
        handled.append(delta)
        return delta

    async with Sandbox(Script(text=text, piece=1_000)) as base_url:
        answer = ask(session, "hi", provider="openai", base_url=base_url)
        results = iterate(answer.pipe(for_each(handle, window=windows[0]), ops.map(lambda it: it)), window=windows[1])
        pieces = [await anext(results)]
        await eventually(lambda: windows[0].stalls)
        assert len(handled) < 200
        pieces.extend([delta async for delta in results])
    assert "".join(delta.text for delta in pieces if isinstance(delta, TextDelta)) == text


async def test_a_cut_answer_fails_after_what_was_handled(session: aiohttp.ClientSession) -> None:
    handled: list[Delta] = []

    async def handle(delta: Delta) -> None:
        handled.append(delta)

    async with Sandbox(fault=Fault("cut", after=900)) as base_url:
        with pytest.raises(TruncatedStream) as raised:
            await ask(session, "hi", provider="openai", base_url=base_url).pipe(for_each(handle))
    text = "".join(delta.text for delta in handled if isinstance(delta, TextDelta))
    assert text == raised.value.partial[0].text != ""
