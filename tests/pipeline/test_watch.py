"""What every watching operator owes its subscribers: the stream as it was, and one end told."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import reactivex
from reactivex import Observable, Subject
from reactivex import operators as ops
from reactivex.scheduler import CurrentThreadScheduler
from reactivex.testing import ReactiveTest, TestScheduler
from reactivex.testing.subscription import Subscription

from rillet.pipeline import measure, recorder
from rillet.pipeline.otel import otel_measured
from rillet.pipeline.watch import Watch, watched

Operator = Callable[[Observable[Any]], Observable[Any]]
ITEMS = [b"a", b"b", b"c"]


class Ends(Watch[Any]):
    """A watch that notes what it is told; `then` happens at the end."""

    def __init__(self, told: list[object], then: Callable[[], object] = lambda: None) -> None:
        self._told = told
        self._then = then

    def item(self, item: Any) -> None:
        self._told.append(item)

    def end(self, ending: str, error: Exception | None) -> None:
        self._told.append((ending, error))
        self._then()


class Broken(Exception):
    """What a source, or a subscriber, of these tests raises."""


@pytest.fixture(params=["measure", "recorder", "otel_measured", "watched"])
def operator(request: pytest.FixtureRequest, tmp_path: Path) -> Operator:
    operators: dict[str, Operator] = {
        "measure": measure(lambda stats: None),
        "recorder": recorder(tmp_path / "recording"),
        "otel_measured": otel_measured(provider="openai"),
        "watched": lambda source: watched(source, lambda: Ends([])),
    }
    return operators[request.param]


class Seen:
    """A subscriber that notes what it is told; `at_first` happens inside the first on_next."""

    def __init__(self, at_first: Callable[[], object] = lambda: None) -> None:
        self.items: list[Any] = []
        self.ends: list[Any] = []
        self._at_first = at_first

    def on_next(self, item: Any) -> None:
        self.items.append(item)
        if len(self.items) == 1:
            self._at_first()

    def on_error(self, error: Exception) -> None:
        self.ends.append(error)

    def on_completed(self) -> None:
        self.ends.append("completed")


def timed(scheduler: TestScheduler, *last: Any) -> Any:
    return scheduler.create_hot_observable(
        *(ReactiveTest.on_next(210 + 10 * n, item) for n, item in enumerate(ITEMS)), *last
    )


def test_never(operator: Operator) -> None:
    scheduler = TestScheduler()
    source: Any = scheduler.create_hot_observable()
    assert scheduler.start(lambda: source.pipe(operator)).messages == []
    assert source.subscriptions == [Subscription(200, 1000)]


def test_empty(operator: Operator) -> None:
    seen = Seen()
    reactivex.empty().pipe(operator).subscribe(seen)
    assert (seen.items, seen.ends) == ([], ["completed"])


def test_each_item_passes_at_once_and_so_does_the_end(operator: Operator) -> None:
    scheduler = TestScheduler()
    source = timed(scheduler, ReactiveTest.on_completed(300))
    messages = scheduler.start(lambda: source.pipe(operator)).messages
    assert messages == source.messages
    assert source.subscriptions == [Subscription(200, 300)]


def test_an_error_arrives_as_it_is(operator: Operator) -> None:
    source: Subject[bytes] = Subject()
    seen, fault = Seen(), Broken()
    source.pipe(operator).subscribe(seen)
    source.on_next(b"a")
    source.on_error(fault)
    assert seen.items == [b"a"]
    assert seen.ends == [fault]
    assert seen.ends[0] is fault


def test_disposed_early(operator: Operator) -> None:
    scheduler = TestScheduler()
    source = timed(scheduler, ReactiveTest.on_completed(300))
    messages = scheduler.start(lambda: source.pipe(operator), disposed=215).messages
    assert messages == source.messages[:1]
    assert source.subscriptions == [Subscription(200, 215)]


def test_disposed_inside_on_next_nothing_follows(operator: Operator) -> None:
    source: Subject[bytes] = Subject()
    seen = Seen(at_first=lambda: subscription.dispose())
    subscription = source.pipe(operator).subscribe(seen)
    for item in ITEMS:
        source.on_next(item)
    assert not source.observers
    assert (seen.items, seen.ends) == (ITEMS[:1], [])


@pytest.mark.parametrize("at_once", [False, True])
def test_an_exception_of_the_subscriber_ends_the_stream(operator: Operator, at_once: bool) -> None:
    fault = Broken()

    def fail() -> None:
        raise fault

    def push(observer: Any, scheduler: Any = None) -> None:
        for item in ITEMS:
            observer.on_next(item)
        observer.on_completed()

    seen, subject = Seen(at_first=fail), Subject[bytes]()
    source: Observable[bytes] = Observable(push) if at_once else subject  # type: ignore[arg-type]
    source.pipe(operator).subscribe(seen)
    if not at_once:
        push(subject)
    assert (seen.items, seen.ends) == (ITEMS[:1], [fault])
    assert not subject.observers


def test_subscriptions_share_nothing(operator: Operator) -> None:
    sources = [Subject[bytes](), Subject[bytes](), reactivex.throw(Broken()), reactivex.from_iterable(ITEMS)]
    turns = iter(sources)
    observable = reactivex.defer(lambda _: next(turns)).pipe(operator)
    seen = [Seen() for _ in sources]
    for one in seen:
        observable.subscribe(one)
    for item in ITEMS:
        for source in sources[:2]:
            source.on_next(item)  # type: ignore[attr-defined]
    for source in sources[:2]:
        source.on_completed()  # type: ignore[attr-defined]
    assert [one.items for one in seen] == [ITEMS, ITEMS, [], ITEMS]
    assert [one.ends for one in (seen[0], seen[1], seen[3])] == [["completed"]] * 3
    assert [type(end) for end in seen[2].ends] == [Broken]


@pytest.mark.parametrize("foreign", ["before", "after", "around"])
def test_with_a_foreign_operator_next_to_it(operator: Operator, foreign: str) -> None:
    same: Operator = ops.map(lambda item: item)
    parts = {"before": [same, operator], "after": [operator, same], "around": [same, operator, same]}[foreign]
    seen = Seen()
    reactivex.from_iterable(ITEMS).pipe(*parts).subscribe(seen)
    assert (seen.items, seen.ends) == (ITEMS, ["completed"])


def test_the_scheduler_is_forwarded(operator: Operator) -> None:
    schedulers: list[object] = []

    def subscribe(observer: Any, scheduler: Any = None) -> None:
        schedulers.append(scheduler)

    mine = CurrentThreadScheduler()
    source: Observable[Any] = Observable(subscribe)  # type: ignore[arg-type]
    source.pipe(operator).subscribe(scheduler=mine).dispose()
    assert schedulers == [mine]


def test_the_end_is_told_before_the_subscriber_hears_of_it() -> None:
    told: list[object] = []
    source = watched(reactivex.from_iterable(ITEMS), lambda: Ends(told))
    source.subscribe(on_completed=lambda: told.append("heard"))
    assert told == [*ITEMS, ("completed", None), "heard"]


def test_a_subscriber_that_leaves_at_the_end_is_told_of_once() -> None:
    told: list[object] = []
    source: Subject[bytes] = Subject()
    subscription = watched(source, lambda: Ends(told)).subscribe(on_completed=lambda: subscription.dispose())
    source.on_completed()
    subscription.dispose()
    assert told == [("completed", None)]


def test_leaving_on_many_threads_while_it_ends_is_one_end() -> None:
    for _ in range(50):
        told: list[object] = []
        source: Subject[bytes] = Subject()
        subscription = watched(source, lambda told=told: Ends(told)).subscribe()  # type: ignore[misc]
        start = threading.Barrier(3)

        def leave(start: threading.Barrier = start, leaving: Any = subscription) -> None:
            start.wait()
            leaving.dispose()

        threads = [threading.Thread(target=leave) for _ in range(2)]
        for thread in threads:
            thread.start()
        start.wait()
        source.on_completed()
        for thread in threads:
            thread.join()
        assert len(told) == 1


def test_what_the_end_raises_harms_nobody_and_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[BaseException] = []
    monkeypatch.setattr(sys, "excepthook", lambda kind, error, traceback: reported.append(error))
    fault = Broken()

    def fail() -> None:
        raise fault

    seen = Seen()
    watched(reactivex.from_iterable(ITEMS), lambda: Ends([], fail)).subscribe(seen)
    assert (seen.items, seen.ends, reported) == (ITEMS, ["completed"], [fault])


async def test_where_a_loop_runs_it_is_reported_there() -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context))
    fault = Broken()

    def fail() -> None:
        raise fault

    watched(reactivex.empty(), lambda: Ends([], fail)).subscribe()
    assert [context["exception"] for context in reported] == [fault]


def test_a_watch_that_cannot_begin_fails_the_stream_and_leaves_the_source_alone() -> None:
    fault, seen, source = Broken(), Seen(), Subject[bytes]()

    def begin() -> Ends:
        raise fault

    watched(source, begin).subscribe(seen)
    assert (seen.ends, source.observers) == ([fault], [])
