from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import reactivex
from reactivex import Observable, Subject
from reactivex.testing import ReactiveTest, TestScheduler
from reactivex.testing.subscription import Subscription

from rillet.operators import ByteWindow, ProviderEvent, ServerSentEvent, TextDelta, progress_timeout
from rillet.operators.errors import IdleTimeout
from rillet.operators.window import offered

on_next, on_completed = ReactiveTest.on_next, ReactiveTest.on_completed


class Failed:
    """The times and errors that a subscriber of a TestScheduler was told of."""

    def __init__(self, scheduler: TestScheduler, source: Observable[Any]) -> None:
        self.items: list[Any] = []
        self.errors: list[tuple[float, Exception]] = []
        source.subscribe(self.items.append, lambda error: self.errors.append((scheduler.clock, error)))


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
def test_no_time_at_all_is_refused(seconds: float) -> None:
    with pytest.raises(ValueError, match="positive"):
        progress_timeout(seconds)


@pytest.mark.parametrize(
    ("times", "fails_at"),
    [([], 40), ([0.5], 50), ([9.5], 50), ([10.5], 60), ([30, 60, 90], 130), ([39.5], 80), ([1, 2, 3, 4, 5], 50)],
)
def test_it_fails_after_the_time_and_at_most_a_quarter_later(times: list[float], fails_at: float) -> None:
    scheduler = TestScheduler()
    source = scheduler.create_cold_observable(*(on_next(at, TextDelta("a")) for at in times))
    failed = Failed(scheduler, source.pipe(progress_timeout(40, scheduler=scheduler)))
    scheduler.start()
    [(when, error)] = failed.errors
    assert type(error) is IdleTimeout
    assert (error.which, error.seconds) == ("progress", 40)
    assert when == fails_at
    assert 40 <= fails_at - max(times, default=0) <= 50
    assert len(failed.items) == len(times)
    assert source.subscriptions == [Subscription(0, fails_at)]


@pytest.mark.parametrize(
    "heartbeat",
    [
        ServerSentEvent("ping", '{"type":"ping"}'),
        ServerSentEvent("keepalive", "x"),
        ServerSentEvent("message", " \n"),
        ProviderEvent("ping", None),
    ],
)
def test_heartbeats_pass_and_are_not_progress(heartbeat: object) -> None:
    scheduler = TestScheduler()
    source: Observable[Any] = scheduler.create_cold_observable(*(on_next(at, heartbeat) for at in range(5, 100, 5)))
    failed = Failed(scheduler, source.pipe(progress_timeout(40, scheduler=scheduler)))
    scheduler.start()
    assert [when for when, _ in failed.errors] == [40]
    assert set(map(type, failed.items)) == {type(heartbeat)}


@pytest.mark.parametrize("item", [ServerSentEvent("message", "0"), ProviderEvent("web_search", {}), "text", None])
def test_anything_else_is_progress(item: object) -> None:
    scheduler = TestScheduler()
    source: Observable[Any] = scheduler.create_cold_observable(
        *(on_next(at, item) for at in range(5, 500, 30)), on_completed(500)
    )
    failed = Failed(scheduler, source.pipe(progress_timeout(40, scheduler=scheduler)))
    scheduler.start()
    assert failed.errors == []


class Remembering(TestScheduler):
    """A scheduler that knows what it was asked to do."""

    def __init__(self) -> None:
        super().__init__()
        self.scheduled: list[Any] = []

    def schedule_absolute(self, *args: Any, **kwargs: Any) -> Any:
        self.scheduled.append(super().schedule_absolute(*args, **kwargs))
        return self.scheduled[-1]


def test_nothing_stays_scheduled_after_the_end() -> None:
    scheduler = Remembering()
    for source in (reactivex.empty(), reactivex.throw(OSError("reset")), reactivex.just(1)):
        source.pipe(progress_timeout(40, scheduler=scheduler)).subscribe(on_error=lambda _: None)
    reactivex.never().pipe(progress_timeout(40, scheduler=scheduler)).subscribe().dispose()
    assert [action.is_disposed for action in scheduler.scheduled] == [True] * 4


def test_time_with_a_full_window_does_not_count() -> None:
    scheduler = TestScheduler()
    window = ByteWindow(10)
    window.add(10)
    source: Observable[Any] = scheduler.create_cold_observable()
    with offered(window):
        failed = Failed(scheduler, source.pipe(progress_timeout(40, scheduler=scheduler)))
    scheduler.schedule_absolute(200, lambda *_: window.release_all())
    scheduler.start()
    assert [when for when, _ in failed.errors] == [240]


def test_the_scheduler_given_at_subscription_counts_where_it_was_given_no_other() -> None:
    scheduler = TestScheduler()
    errors: list[Exception] = []
    reactivex.never().pipe(progress_timeout(40)).subscribe(on_error=errors.append, scheduler=scheduler)
    scheduler.start()
    assert [type(error) for error in errors] == [IdleTimeout]


def test_without_a_scheduler_it_fails_on_a_thread_that_never_meets_the_source_s() -> None:
    source: Subject[int] = Subject()
    inside, over = threading.Event(), threading.Event()
    told: list[str] = []

    def slow(_: int) -> None:
        told.append("in")
        inside.set()
        over.wait(0.1)  # longer than the timeout: an error that did not wait would be told meanwhile
        told.append("out")

    def fail(_: Exception) -> None:
        told.append("error")
        over.set()

    source.pipe(progress_timeout(0.02)).subscribe(slow, fail)
    threading.Thread(target=source.on_next, args=(1,)).start()
    assert inside.wait(5)
    assert over.wait(5)
    assert told == ["in", "out", "error"]


def test_an_error_of_the_source_after_the_timeout_is_not_told() -> None:
    scheduler = TestScheduler()
    told: list[Callable[[], None]] = []

    def subscribe(observer: Any, _: Any = None) -> Any:
        told.append(lambda: observer.on_error(OSError("late")))
        return reactivex.disposable.Disposable()

    failed = Failed(scheduler, Observable(subscribe).pipe(progress_timeout(40, scheduler=scheduler)))
    scheduler.start()
    told[0]()
    assert [type(error) for _, error in failed.errors] == [IdleTimeout]
