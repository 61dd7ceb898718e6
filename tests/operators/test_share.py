from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
import reactivex
from reactivex import Observable, Subject, abc
from reactivex import operators as ops
from reactivex.disposable import Disposable

from rillet.operators import ByteWindow, share
from rillet.operators.errors import BufferOverflow
from rillet.operators.window import current_window, offered


class Feed:
    """A source that counts its subscriptions and keeps the window it was offered."""

    def __init__(self) -> None:
        self.subject: Subject[int] = Subject()
        self.subscriptions = 0
        self.window = ByteWindow()

    def observable(self) -> Observable[int]:
        def subscribe(observer: abc.ObserverBase[int], _: abc.SchedulerBase | None = None) -> abc.DisposableBase:
            self.subscriptions += 1
            window = current_window()
            assert window is not None
            self.window = window
            return self.subject.subscribe(observer)

        return Observable(subscribe)

    @property
    def is_read(self) -> bool:
        return bool(self.subject.observers)

    def push(self, item: int, size: int = 1) -> None:
        self.window.add(size)
        self.subject.on_next(item)


class Seen(abc.ObserverBase[Any]):
    """A subscriber with a window of its own, which takes nothing out of it by itself."""

    def __init__(self, window: ByteWindow | None = None, at_first: Callable[[], object] = lambda: None) -> None:
        self.items: list[Any] = []
        self.ends: list[Any] = []
        self.window = window
        self._at_first = at_first

    def subscribe_to(self, observable: Observable[Any]) -> abc.DisposableBase:
        with offered(self.window):
            return observable.subscribe(self)

    def on_next(self, value: Any) -> None:
        assert not self.ends
        if self.window is not None:
            self.window.mark()
        self.items.append(value)
        if len(self.items) == 1:
            self._at_first()

    def on_error(self, error: Exception) -> None:
        self.ends.append(error)

    def on_completed(self) -> None:
        self.ends.append("completed")


def resumed(times: list[int]) -> Callable[[], None]:
    return lambda: times.append(1)


def test_all_share_one_subscription_and_get_what_comes_while_they_are_there() -> None:
    feed = Feed()
    observable = feed.observable().pipe(share())
    first, second = Seen(), Seen()
    first.subscribe_to(observable)
    feed.push(1)
    leaving = second.subscribe_to(observable)
    feed.push(2)
    leaving.dispose()
    feed.push(3)
    feed.subject.on_completed()
    assert (first.items, first.ends) == ([1, 2, 3], ["completed"])
    assert (second.items, second.ends) == ([2], [])
    assert feed.subscriptions == 1


def test_the_last_to_leave_disposes_the_source_and_the_next_starts_anew() -> None:
    feed = Feed()
    observable = feed.observable().pipe(share())
    subscriptions = [Seen().subscribe_to(observable) for _ in range(2)]
    for subscription, is_read in zip(subscriptions, (True, False), strict=True):
        subscription.dispose()
        subscription.dispose()
        assert feed.is_read is is_read
    late = Seen()
    late.subscribe_to(observable)
    feed.push(7)
    assert (feed.subscriptions, late.items) == (2, [7])


@pytest.mark.parametrize("end", ["completed", OSError("reset")])
def test_the_end_is_told_to_all_and_who_comes_later_starts_anew(end: Any) -> None:
    feed = Feed()
    observable = feed.observable().pipe(share())
    seen = [Seen(), Seen()]
    for one in seen:
        one.subscribe_to(observable)
    subject, feed.subject = feed.subject, Subject()
    if end == "completed":
        subject.on_completed()
    else:
        subject.on_error(end)
    assert [one.ends for one in seen] == [[end], [end]]
    late = Seen()
    late.subscribe_to(observable)
    feed.push(1)
    assert (late.items, feed.subscriptions) == ([1], 2)


def test_the_slowest_makes_the_source_wait() -> None:
    feed = Feed()
    observable = feed.observable().pipe(share())
    fast, slow, times = Seen(ByteWindow(100)), Seen(ByteWindow(10)), list[int]()
    fast.subscribe_to(observable)
    slow.subscribe_to(observable)
    assert (feed.window.room, feed.window.when_open(resumed(times))) == (10, True)
    feed.push(1, size=10)
    assert (feed.window.room, feed.window.when_open(resumed(times))) == (0, False)
    fast.window.release_all()  # type: ignore[union-attr]
    assert not times
    slow.window.release_all()  # type: ignore[union-attr]
    assert (times, feed.window.when_open(resumed(times)), feed.window.stalls) == ([1], True, 1)


def test_one_that_leaves_holds_the_source_no_more() -> None:
    feed = Feed()
    observable = feed.observable().pipe(share())
    staying, leaving, times = Seen(ByteWindow(100)), Seen(ByteWindow(10)), list[int]()
    staying.subscribe_to(observable)
    subscription = leaving.subscribe_to(observable)
    feed.push(1, size=20)
    assert not feed.window.when_open(resumed(times))
    subscription.dispose()
    assert (times, feed.window.when_open(resumed(times)), feed.window.room) == ([1], True, 80)


def test_without_windows_nothing_holds_the_source() -> None:
    feed = Feed()
    Seen().subscribe_to(feed.observable().pipe(share()))
    feed.push(1, size=10_000_000)
    assert feed.window.when_open(lambda: None)
    assert feed.window.room > 0


def test_one_window_behind_two_subscriptions_counts_once() -> None:
    feed = Feed()
    observable = feed.observable().pipe(share())
    seen = Seen(ByteWindow(100))
    seen.subscribe_to(reactivex.merge(observable, observable))
    feed.push(1, size=30)
    assert seen.window is not None
    assert (seen.window.read, seen.items) == (30, [1, 1])


def test_dropping_the_slow_subscriber_ends_that_one_alone() -> None:
    feed = Feed()
    observable = feed.observable().pipe(share(on_slow="drop_subscriber"))
    fast, slow = Seen(ByteWindow(100)), Seen(ByteWindow(10))
    fast.subscribe_to(observable)
    slow.subscribe_to(observable)
    for item in range(3):
        assert feed.window.when_open(lambda: None)
        feed.push(item, size=8)
        fast.window.release_all()  # type: ignore[union-attr]
    feed.subject.on_completed()
    assert (fast.items, fast.ends) == ([0, 1, 2], ["completed"])
    [error] = slow.ends
    assert type(error) is BufferOverflow
    assert (error.limit, error.unit, slow.items) == (10, "byte", [0])
    assert str(error) == "more than 10 bytes waited for a consumer that fell behind"


def test_one_that_keeps_up_is_not_dropped_for_having_a_small_window() -> None:
    feed = Feed()
    small = Seen(ByteWindow(10))
    small.subscribe_to(feed.observable().pipe(share(on_slow="drop_subscriber")))
    assert small.window is not None
    small.window.release_all()
    assert feed.window.room == 10  # no more at once than fits
    feed.push(0, size=10)
    assert (small.items, small.ends) == ([0], [])


def test_dropping_the_last_subscriber_disposes_the_source() -> None:
    feed = Feed()
    slow = Seen(ByteWindow(10))
    slow.subscribe_to(feed.observable().pipe(share(on_slow="drop_subscriber")))
    feed.push(0, size=11)
    assert not feed.is_read
    assert [type(end) for end in slow.ends] == [BufferOverflow]


def test_a_subscriber_that_raises_ends_alone() -> None:
    feed, fault = Feed(), ValueError("mine")

    def fail() -> None:
        raise fault

    observable = feed.observable().pipe(share())
    before, failing, after = Seen(), Seen(at_first=fail), Seen()
    for one in (before, failing, after):
        one.subscribe_to(observable)
    feed.push(1)
    feed.push(2)
    assert [one.items for one in (before, failing, after)] == [[1, 2], [1], [1, 2]]
    assert [one.ends for one in (before, failing, after)] == [[], [fault], []]


def test_all_are_told_of_the_end_even_where_one_raises() -> None:
    feed, last = Feed(), Seen()
    observable = feed.observable().pipe(share())

    def fail() -> None:
        raise ValueError("mine")

    observable.subscribe(on_completed=fail)
    last.subscribe_to(observable)
    with pytest.raises(ValueError, match="mine"):
        feed.subject.on_completed()
    assert last.ends == ["completed"]


def test_leaving_inside_on_next_leaves_the_others_alone() -> None:
    feed = Feed()
    observable = feed.observable().pipe(share())
    leaving, staying = Seen(at_first=lambda: subscription.dispose()), Seen()
    subscription = leaving.subscribe_to(observable)
    staying.subscribe_to(observable)
    feed.push(1)
    feed.push(2)
    assert (leaving.items, staying.items) == ([1], [1, 2])


def test_a_source_that_pushes_at_once_and_an_empty_one_and_one_that_never_says_anything() -> None:
    for source, items, ends in (
        (reactivex.from_iterable([1, 2]), [1, 2], ["completed"]),
        (reactivex.empty(), [], ["completed"]),
        (reactivex.never(), [], []),
    ):
        seen = Seen()
        seen.subscribe_to(source.pipe(ops.map(lambda item: item), share(), ops.map(lambda item: item)))
        assert (seen.items, seen.ends) == (items, ends)


def test_subscribers_may_come_and_go_on_many_threads() -> None:
    live: list[int] = []

    def subscribe(observer: abc.ObserverBase[int], _: abc.SchedulerBase | None = None) -> abc.DisposableBase:
        live.append(1)
        return Disposable(live.pop)

    observable = Observable(subscribe).pipe(share())

    def come_and_go() -> None:
        for _ in range(300):
            observable.subscribe().dispose()

    threads = [threading.Thread(target=come_and_go) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert live == []


def test_nobody_joins_what_its_last_subscriber_is_just_leaving() -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(3_000):
            subject, got = Subject[int](), list[int]()
            shared = subject.pipe(share())
            leaving = threading.Thread(target=shared.subscribe().dispose)
            leaving.start()
            shared.subscribe(got.append)
            leaving.join()
            subject.on_next(1)
            assert got == [1]
    finally:
        sys.setswitchinterval(before)


def test_a_policy_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match=r'on_slow must be "pause" or "drop_subscriber", not .drop.'):
        share(on_slow="drop")  # type: ignore[arg-type]
