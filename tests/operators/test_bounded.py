from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import reactivex
from hypothesis import given
from hypothesis import strategies as st
from reactivex import Observable, Subject, abc
from reactivex import operators as ops
from reactivex.disposable import Disposable
from reactivex.scheduler import EventLoopScheduler, ImmediateScheduler
from reactivex.testing import TestScheduler

from rillet.operators import ByteWindow, bounded
from rillet.operators.errors import BufferOverflow
from rillet.operators.window import current_window, offered


class Source:
    """A source that reads bytes through the window it is offered, and hands on one item a read."""

    def __init__(self) -> None:
        self.window: ByteWindow | None = None
        self.disposed = False
        self.pushed = 0

    def observable(self) -> Observable[int]:
        def subscribe(observer: abc.ObserverBase[int], _: abc.SchedulerBase | None = None) -> abc.DisposableBase:
            self.window, self.observer = current_window(), observer
            return Disposable(self._leave)

        return Observable(subscribe)

    def _leave(self) -> None:
        self.disposed = True

    def push(self, size: int = 0) -> None:
        if self.window is not None:
            self.window.add(size)
        self.observer.on_next(self.pushed)
        self.pushed += 1

    def run(self, size: int, limit: int) -> None:
        """Push as long as the window lets it, and again each time that it opens."""
        assert self.window is not None
        while not self.disposed and self.pushed < limit and self.window.when_open(lambda: self.run(size, limit)):
            self.push(size)
        if self.pushed == limit:
            self.pushed += 1
            self.observer.on_completed()


class Seen(abc.ObserverBase[Any]):
    def __init__(self) -> None:
        self.items: list[Any] = []
        self.ends: list[Any] = []

    def on_next(self, value: Any) -> None:
        assert not self.ends
        self.items.append(value)

    def on_error(self, error: Exception) -> None:
        self.ends.append(error)

    def on_completed(self) -> None:
        self.ends.append("completed")


@pytest.mark.parametrize("limits", [{"max_bytes": 0}, {"max_items": 0}])
def test_a_boundary_without_room_is_refused(limits: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        bounded(**limits)  # type: ignore[arg-type]


def test_items_come_on_the_scheduler_in_order_then_the_end() -> None:
    scheduler, source, seen = TestScheduler(), Subject[int](), Seen()
    source.pipe(bounded(scheduler=scheduler)).subscribe(seen)
    for item in range(100):
        source.on_next(item)
    source.on_completed()
    assert (seen.items, seen.ends) == ([], [])
    scheduler.start()
    assert (seen.items, seen.ends) == (list(range(100)), ["completed"])


def test_an_error_comes_after_the_items_before_it() -> None:
    scheduler, source, seen, fault = TestScheduler(), Subject[int](), Seen(), OSError("reset")
    source.pipe(bounded(scheduler=scheduler)).subscribe(seen)
    source.on_next(1)
    source.on_error(fault)
    scheduler.start()
    assert (seen.items, seen.ends) == ([1], [fault])


def test_a_turn_of_the_scheduler_hands_on_a_few_items_only() -> None:
    scheduler, source, seen = TestScheduler(), Subject[int](), Seen()
    source.pipe(bounded(scheduler=scheduler)).subscribe(seen)
    turns: list[int] = []

    def other(_: abc.SchedulerBase, __: Any = None) -> None:
        turns.append(len(seen.items))
        if len(seen.items) < 100:
            scheduler.schedule(other)

    for item in range(100):
        source.on_next(item)
    scheduler.schedule(other)
    scheduler.start()
    assert max(b - a for a, b in pairwise(turns)) <= 16
    assert seen.items == list(range(100))


@pytest.mark.parametrize("size", [1, 7, 64, 1_000])
def test_the_source_waits_and_everything_arrives(size: int) -> None:
    scheduler, source, seen = TestScheduler(), Source(), Seen()
    source.observable().pipe(bounded(100, scheduler=scheduler)).subscribe(seen)
    source.run(size, 500)
    waiting = source.pushed
    assert waiting == max(-(-100 // size), 1)
    scheduler.start()
    assert (seen.items, seen.ends) == (list(range(500)), ["completed"])


@given(st.lists(st.integers(0, 30), max_size=60), st.integers(1, 50))
def test_no_more_waits_than_allowed_whatever_the_sizes(sizes: list[int], limit: int) -> None:
    scheduler, source, seen = TestScheduler(), Source(), Seen()
    source.observable().pipe(bounded(limit, scheduler=scheduler)).subscribe(seen)
    assert source.window is not None
    for size in sizes:
        if not source.window.when_open(lambda: None):
            scheduler.start()
            assert source.window.pending <= limit // 2
        source.push(size)
        assert source.window.pending <= limit + max(sizes)
    scheduler.start()
    assert seen.items == list(range(len(sizes)))
    assert source.window.pending == 0


def test_what_comes_before_the_first_item_may_be_larger_than_the_window() -> None:
    scheduler, source, seen = TestScheduler(), Source(), Seen()
    source.observable().pipe(bounded(10, scheduler=scheduler)).subscribe(seen)
    assert source.window is not None
    source.window.add(10)  # comments, or the start of a long event
    assert source.window.room == 10
    source.push(10)
    assert not source.window.when_open(lambda: None)


def test_a_source_that_cannot_wait_fails_loudly_after_what_waited() -> None:
    scheduler, source, seen = TestScheduler(), Subject[int](), Seen()
    source.pipe(bounded(max_items=10, scheduler=scheduler)).subscribe(seen)
    for item in range(20):
        source.on_next(item)
    assert not source.observers
    scheduler.start()
    [error] = seen.ends
    assert type(error) is BufferOverflow
    assert (error.limit, error.unit, seen.items) == (10, "item", list(range(10)))


def test_with_overflow_error_the_source_is_never_made_to_wait() -> None:
    scheduler, source, seen = TestScheduler(), Source(), Seen()
    source.observable().pipe(bounded(100, overflow="error", scheduler=scheduler)).subscribe(seen)
    source.run(30, 10)
    assert source.disposed
    scheduler.start()
    [error] = seen.ends
    assert type(error) is BufferOverflow
    assert (error.limit, error.unit) == (100, "byte")
    assert seen.items == list(range(len(seen.items)))
    assert len(seen.items) == 3


def test_with_overflow_error_a_consumer_that_keeps_up_gets_everything() -> None:
    scheduler, source, seen = TestScheduler(), Source(), Seen()
    source.observable().pipe(bounded(100, overflow="error", scheduler=scheduler)).subscribe(seen)
    for _ in range(50):
        source.push(90)
        scheduler.start()
    assert (len(seen.items), seen.ends) == (50, [])


def test_a_subscriber_that_raises_ends_it_once_and_disposes_the_source() -> None:
    scheduler, source, fault = TestScheduler(), Subject[int](), ValueError("mine")
    items: list[int] = []
    errors: list[Exception] = []

    def fail(item: int) -> None:
        items.append(item)
        raise fault

    source.pipe(bounded(scheduler=scheduler)).subscribe(fail, errors.append)
    for item in range(3):
        source.on_next(item)
    scheduler.start()
    assert (items, errors, source.observers) == ([0], [fault], [])


def test_nothing_is_delivered_after_dispose_and_nothing_is_held() -> None:
    scheduler, source, seen = TestScheduler(), Source(), Seen()
    subscription = source.observable().pipe(bounded(10, scheduler=scheduler)).subscribe(seen)
    source.push(10)
    subscription.dispose()
    scheduler.start()
    assert (seen.items, source.disposed) == ([], True)
    assert source.window is not None
    assert source.window.when_open(lambda: None)


def test_disposed_inside_on_next_nothing_follows() -> None:
    scheduler, source = TestScheduler(), Subject[int]()
    items: list[int] = []

    def leave(item: int) -> None:
        items.append(item)
        subscription.dispose()

    subscription = source.pipe(bounded(scheduler=scheduler)).subscribe(leave)
    for item in range(3):
        source.on_next(item)
    scheduler.start()
    assert (items, source.observers) == ([0], [])


def test_before_another_boundary_it_waits_for_that_one_s_window() -> None:
    fast, slow, source, seen = TestScheduler(), TestScheduler(), Source(), Seen()
    source.observable().pipe(
        bounded(100, scheduler=fast), ops.map(lambda item: item), bounded(50, scheduler=slow)
    ).subscribe(seen)
    source.run(10, 200)
    fast.start()
    held = source.pushed
    assert 15 <= held <= 17  # 100 bytes here, 50 there, one item in each hand
    while not seen.ends:
        slow.start()
        fast.start()
    assert (seen.items, seen.ends) == (list(range(200)), ["completed"])


def test_it_brings_items_to_the_thread_of_its_scheduler_with_the_source_waiting() -> None:
    source, over = Source(), threading.Event()
    threads: set[int] = set()
    items: list[int] = []

    def take(item: int) -> None:
        threads.add(threading.get_ident())
        items.append(item)

    elsewhere = EventLoopScheduler()
    source.observable().pipe(bounded(64, scheduler=elsewhere)).subscribe(take, on_completed=over.set)
    source.run(16, 1_000)
    assert over.wait(10)
    elsewhere.dispose()
    assert items == list(range(1_000))
    assert threading.get_ident() not in threads
    assert len(threads) == 1


def test_two_subscriptions_share_nothing() -> None:
    scheduler = TestScheduler()
    observable = reactivex.from_iterable(range(40)).pipe(bounded(scheduler=scheduler))
    seen = [Seen(), Seen()]
    for one in seen:
        observable.subscribe(one)
    scheduler.start()
    assert [(one.items, one.ends) for one in seen] == [(list(range(40)), ["completed"])] * 2


def test_without_a_scheduler_it_runs_on_a_thread_of_reactivex_s() -> None:
    over = threading.Event()
    items: list[int] = []
    note: Callable[[int], None] = items.append
    reactivex.from_iterable(range(100)).pipe(bounded()).subscribe(note, on_completed=over.set)
    assert over.wait(10)
    assert items == list(range(100))


def test_a_turn_that_is_over_before_the_asking_thread_knows_of_it_takes_no_other_with_it() -> None:
    below, seen, subject = ByteWindow(1), Seen(), Subject[int]()

    class Fast(TestScheduler):
        """Its first turn is over, and the window below opens again, while the source still asks for that turn."""

        turns = 0

        def schedule(self, action: Any, state: Any = None) -> abc.DisposableBase:
            self.turns += 1
            if self.turns > 1:
                return super().schedule(action, state)
            action(self, state)
            below.release_all()
            return Disposable()

    scheduler = Fast()
    below.add(1)
    with offered(below):
        subject.pipe(bounded(scheduler=scheduler)).subscribe(seen)
    subject.on_next(1)
    subject.on_completed()
    scheduler.start()
    assert (seen.items, seen.ends) == ([1], ["completed"])


def test_at_the_end_another_thread_may_dispose() -> None:
    subject, disposed = Subject[int](), threading.Event()
    subscription: abc.DisposableBase = Disposable()

    def dispose() -> None:
        subscription.dispose()
        disposed.set()

    def completed() -> None:
        threading.Thread(target=dispose).start()
        assert disposed.wait(5)

    subscription = subject.pipe(bounded(scheduler=ImmediateScheduler())).subscribe(on_completed=completed)
    subject.on_completed()
    assert disposed.is_set()


def test_a_policy_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match=r'overflow must be "pause" or "error", not .drop.'):
        bounded(overflow="drop")  # type: ignore[arg-type]
