"""`coalesce`: at most one batch a frame, the first item at once, nothing lost, the order kept."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import reactivex as rx
from hypothesis import given
from hypothesis import strategies as st
from reactivex import Observable, Subject, abc
from reactivex import operators as ops
from reactivex.disposable import Disposable
from reactivex.scheduler import (
    CurrentThreadScheduler,
    EventLoopScheduler,
    NewThreadScheduler,
    ThreadPoolScheduler,
    TimeoutScheduler,
)
from reactivex.testing import ReactiveTest, TestScheduler

from rillet.operators import (
    ByteWindow,
    Done,
    Finish,
    JsonPreview,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallPreview,
    ToolCallStart,
    coalesce,
    share,
)
from rillet.operators.window import current_window, offered

on_next, on_error, on_completed = ReactiveTest.on_next, ReactiveTest.on_error, ReactiveTest.on_completed

FRAME = 30


def run(*messages: Any, frame: float = FRAME, disposed: float = 1000) -> Any:
    """What comes out, and when, of a hot source with these messages."""
    scheduler = TestScheduler()
    source = scheduler.create_hot_observable(*messages)
    return scheduler.start(lambda: source.pipe(coalesce(frame)), disposed=disposed).messages


def text(*pieces: str, choice: int = 0) -> TextDelta:
    return TextDelta("".join(pieces), choice)


class Broken(Exception):
    """What a source, or a subscriber, of these tests raises."""


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
def test_a_frame_has_a_length(seconds: float) -> None:
    with pytest.raises(ValueError, match="above 0"):
        coalesce(seconds)


def test_never() -> None:
    assert run() == []


def test_empty() -> None:
    assert run(on_completed(250)) == [on_completed(250)]


def test_an_error_comes_after_what_waited_and_as_it_is() -> None:
    fault = Broken()
    messages = run(on_next(210, text("a")), on_next(215, text("b")), on_error(220, fault))
    assert messages == [on_next(210, text("a")), on_next(220, text("b")), on_error(220, fault)]
    assert messages[-1].value.exception is fault


def test_the_first_item_goes_on_at_once_and_the_rest_once_a_frame() -> None:
    times = range(210, 310, 5)
    messages = run(*(on_next(time, text(str(time))) for time in times), on_completed(350))
    assert [message.time for message in messages] == [210, 240, 270, 300, 330, 350]
    assert "".join(message.value.value.text for message in messages[:-1]) == "".join(map(str, times))


def test_after_a_frame_in_which_nothing_came_the_next_item_goes_on_at_once() -> None:
    assert run(on_next(210, "a"), on_next(241, "b"), on_next(250, "c"), on_completed(600)) == [
        on_next(210, "a"),
        on_next(241, "b"),
        on_next(271, "c"),
        on_completed(600),
    ]


def test_completion_flushes_what_waited() -> None:
    assert run(on_next(210, text("a")), on_next(211, text("b")), on_next(212, text("c")), on_completed(213)) == [
        on_next(210, text("a")),
        on_next(213, text("b", "c")),
        on_completed(213),
    ]


def test_disposed_early_nothing_more_comes() -> None:
    assert run(on_next(210, "a"), on_next(215, "b"), disposed=220) == [on_next(210, "a")]


def test_neighbours_of_one_kind_choice_and_call_are_joined_and_no_others() -> None:
    items = [
        text("a"),
        text("b"),
        text("c", choice=1),
        ReasoningDelta("d"),
        ReasoningDelta("e"),
        RefusalDelta("f"),
        RefusalDelta("g"),
        ToolCallStart(0, "", "x"),
        ToolCallDelta(0, "{"),
        ToolCallDelta(0, '"h":'),
        ToolCallDelta(1, "{"),
        ToolCallDelta(0, "1}"),
        ToolCallEnd(0),
        ToolCallEnd(1),
    ]
    messages = run(on_next(210, "first"), *(on_next(220, item) for item in items), on_completed(300))
    assert [message.value.value for message in messages[1:-1]] == [
        text("a", "b"),
        text("c", choice=1),
        ReasoningDelta("de"),
        RefusalDelta("fg"),
        ToolCallStart(0, "", "x"),
        ToolCallDelta(0, '{"h":'),
        ToolCallDelta(1, "{"),
        ToolCallDelta(0, "1}"),
        ToolCallEnd(0),
        ToolCallEnd(1),
    ]
    assert {message.time for message in messages[1:-1]} == {240}


def test_of_previews_the_latest_stays_and_what_they_stood_between_is_joined() -> None:
    items = [
        ToolCallDelta(0, "{"),
        ToolCallPreview(0, "f", {}, ()),
        ToolCallDelta(0, '"a":'),
        ToolCallPreview(1, "f", {}, ()),
        JsonPreview({}, (), choice=1),
        ToolCallDelta(0, "1"),
        ToolCallPreview(0, "f", {"a": 1}, ()),
        JsonPreview([], ()),
        JsonPreview([1], ()),
        ToolCallDelta(0, "}"),
        text("a"),
        JsonPreview({"b": 1}, (), choice=1),
        text("b"),
    ]
    messages = run(on_next(210, "first"), *(on_next(220, item) for item in items), on_completed(300))
    assert [message.value.value for message in messages[1:-1]] == [
        ToolCallDelta(0, '{"a":'),
        ToolCallPreview(1, "f", {}, ()),
        ToolCallDelta(0, "1"),
        ToolCallPreview(0, "f", {"a": 1}, ()),
        JsonPreview([1], ()),
        ToolCallDelta(0, "}"),
        text("a"),
        JsonPreview({"b": 1}, (), choice=1),
        text("b"),
    ]


def test_equal_items_of_another_kind_are_not_taken_for_one() -> None:
    items = [Done(), Done(), None, None, 0, 0]
    messages = run(on_next(210, "first"), *(on_next(220, item) for item in items), on_completed(300))
    assert [message.value.value for message in messages[1:-1]] == items


def test_nothing_is_scheduled_while_nothing_flows() -> None:
    scheduler = TestScheduler()
    source: Subject[str] = Subject()
    source.pipe(coalesce(FRAME, scheduler=scheduler)).subscribe()
    assert not scheduler._queue  # type: ignore[attr-defined]
    for _ in range(2):
        source.on_next("a")
        source.on_next("b")
        scheduler.start()  # comes back only where the queue runs empty
    source.on_next("a")
    source.on_completed()
    scheduler.start()


delta_kinds = st.one_of(
    st.builds(TextDelta, st.text("ab", min_size=1, max_size=2), st.integers(0, 1)),
    st.builds(ReasoningDelta, st.text("ab", min_size=1, max_size=2), st.integers(0, 1)),
    st.builds(RefusalDelta, st.text("ab", min_size=1, max_size=2)),
    st.builds(ToolCallDelta, st.integers(0, 1), st.text("ab", max_size=2)),
    st.builds(ToolCallStart, st.integers(0, 1), st.just(""), st.just("f")),
    st.builds(ToolCallEnd, st.integers(0, 1)),
    st.just(ToolCall(0, "", "f", {}, "{}")),
    st.just(Finish("stop", "stop")),
    st.builds(ToolCallPreview, st.integers(0, 1), st.just("f"), st.integers(), st.just(())),
    st.builds(JsonPreview, st.integers(), st.just(())),
)


def letters(items: list[Any]) -> list[Any]:
    """The same for two streams exactly where they have the same text and the same structure, in the same order."""
    told: list[Any] = []
    for item in items:
        if isinstance(item, TextDelta | ReasoningDelta | RefusalDelta):
            told += [(type(item), item.choice, letter) for letter in item.text]
        elif isinstance(item, ToolCallPreview | JsonPreview):
            pass  # for display alone: see the next test
        elif isinstance(item, ToolCallDelta):
            told += [(ToolCallDelta, item.index, letter) for letter in item.args]
        else:
            told.append(item)
    return told


@given(st.lists(st.tuples(st.integers(0, 40), delta_kinds), max_size=40), st.integers(1, 60), st.booleans())
def test_whatever_comes_whenever_nothing_is_lost_and_the_order_is_kept(
    flow: list[tuple[int, Any]], frame: int, fails: bool
) -> None:
    time, messages = 210, []
    for gap, item in flow:
        time += gap
        messages.append(on_next(time, item))
    end = on_error(time, Broken()) if fails else on_completed(time)
    seen = run(*messages, end, frame=frame, disposed=100_000)
    items = [message.value.value for message in seen[:-1]]
    assert letters(items) == letters([item for _, item in flow])
    assert seen[-1] == end
    batches = sorted({message.time for message in seen[:-1]})
    if batches and batches[-1] == time:  # what is flushed before the end need not wait for its frame
        batches.pop()
    assert all(later - earlier >= frame for earlier, later in pairwise(batches))


@given(st.lists(st.tuples(st.integers(0, 40), delta_kinds), max_size=40), st.integers(1, 60))
def test_the_last_preview_of_each_thing_is_the_last_that_came(flow: list[tuple[int, Any]], frame: int) -> None:
    def last_previews(items: list[Any]) -> dict[Any, Any]:
        previews = [item for item in items if isinstance(item, ToolCallPreview | JsonPreview)]
        return {(type(item), getattr(item, "index", None)): item for item in previews}

    time, messages = 210, []
    for gap, item in flow:
        time += gap
        messages.append(on_next(time, item))
    seen = run(*messages, on_completed(time), frame=frame, disposed=100_000)
    assert last_previews([message.value.value for message in seen[:-1]]) == last_previews([item for _, item in flow])


@given(st.lists(st.integers(0, 40), min_size=1, max_size=30), st.integers(1, 60))
def test_no_item_waits_longer_than_a_frame(gaps: list[int], frame: int) -> None:
    times = [210 + sum(gaps[: n + 1]) for n in range(len(gaps))]
    seen = run(*(on_next(time, (n, time)) for n, time in enumerate(times)), frame=frame, disposed=100_000)
    assert [message.value.value for message in seen] == list(enumerate(times))
    assert all(message.time - message.value.value[1] <= frame for message in seen)


def test_what_the_observer_makes_the_source_push_comes_in_order_in_the_next_frame() -> None:
    scheduler = TestScheduler()
    source: Subject[str] = Subject()
    seen: list[tuple[float, str]] = []

    def echo(item: str) -> None:
        seen.append((scheduler.clock, item))
        if len(item) < 3:
            source.on_next(item + "!")

    source.pipe(coalesce(FRAME, scheduler=scheduler)).subscribe(echo)
    source.on_next("a")
    scheduler.start()
    assert seen == [(0, "a"), (30, "a!"), (60, "a!!")]


def test_a_source_completed_from_inside_a_batch_loses_nothing_of_it() -> None:
    scheduler = TestScheduler()
    source: Subject[str] = Subject()
    seen: list[str] = []

    def finish(item: str) -> None:
        seen.append(item)
        if item == "b":
            source.on_completed()

    source.pipe(coalesce(FRAME, scheduler=scheduler)).subscribe(finish, on_completed=lambda: seen.append("end"))
    for item in "abcd":
        source.on_next(item)
    scheduler.start()
    assert seen == [*"abcd", "end"]


def test_disposed_inside_a_batch_nothing_follows() -> None:
    scheduler = TestScheduler()
    source: Subject[str] = Subject()
    seen: list[str] = []

    def leave(item: str) -> None:
        seen.append(item)
        if item == "b":
            subscription.dispose()

    subscription = source.pipe(coalesce(FRAME, scheduler=scheduler)).subscribe(leave)
    for item in "abc":
        source.on_next(item)
    scheduler.start()
    assert (seen, source.observers) == (["a", "b"], [])


@pytest.mark.parametrize("bad", ["a", "b", "c"])
def test_an_exception_of_the_subscriber_ends_the_stream_whoever_delivers(bad: str) -> None:
    scheduler = TestScheduler()
    source: Subject[str] = Subject()
    seen: list[Any] = []
    fault = Broken()

    def fail(item: str) -> None:
        seen.append(item)
        if item == bad:
            raise fault

    source.pipe(coalesce(FRAME, scheduler=scheduler)).subscribe(fail, seen.append, lambda: seen.append("end"))
    for item in "abc":
        source.on_next(item)
    if bad == "c":
        source.on_completed()
    scheduler.start()
    assert seen == [*"abc"[: "abc".index(bad) + 1], fault]
    assert seen[-1] is fault
    assert not source.observers


def test_an_exception_of_the_subscriber_ends_a_source_that_pushes_at_once() -> None:
    fault = Broken()
    seen: list[Any] = []

    def fail(item: str) -> None:
        seen.append(item)
        raise fault

    def push(observer: abc.ObserverBase[str], scheduler: Any = None) -> abc.DisposableBase:
        for item in "abc":
            observer.on_next(item)
        observer.on_completed()
        return Disposable()

    Observable(push).pipe(coalesce(FRAME, scheduler=TestScheduler())).subscribe(
        fail, seen.append, lambda: seen.append("end")
    )
    assert seen == ["a", fault]


def test_retry_starts_anew() -> None:
    turns = iter([rx.concat(rx.of("a", "b"), rx.throw(Broken())), rx.of("c", "d")])
    seen: list[Any] = []
    rx.defer(lambda _: next(turns)).pipe(coalesce(FRAME, scheduler=TestScheduler()), ops.retry(2)).subscribe(
        seen.append, seen.append, lambda: seen.append("end")
    )
    assert seen == ["a", "b", "c", "d", "end"]


def test_two_subscriptions_share_nothing_and_one_after_an_error_starts_anew() -> None:
    scheduler = TestScheduler()
    sources = [Subject[str](), Subject[str](), Subject[str]()]
    turns = iter(sources)
    observable = rx.defer(lambda _: next(turns)).pipe(coalesce(FRAME, scheduler=scheduler))
    seen: list[list[Any]] = [[], [], []]
    for n in (0, 1):
        observable.subscribe(seen[n].append, seen[n].append)
    for item in "abc":
        sources[0].on_next(item)
        sources[1].on_next(item.upper())
    fault = Broken()
    sources[0].on_error(fault)
    observable.subscribe(seen[2].append)
    sources[2].on_next("z")
    scheduler.start()
    assert seen == [["a", "b", "c", fault], ["A", "B", "C"], ["z"]]


def test_the_scheduler_is_forwarded_and_times_the_frames_where_no_other_is_given() -> None:
    mine, theirs = TestScheduler(), TestScheduler()
    source: Subject[str] = Subject()
    forwarded: list[object] = []

    def subscribe(observer: abc.ObserverBase[str], scheduler: Any = None) -> abc.DisposableBase:
        forwarded.append(scheduler)
        return source.subscribe(observer)

    seen: list[str] = []
    Observable(subscribe).pipe(coalesce(FRAME)).subscribe(seen.append, scheduler=theirs)
    Observable(subscribe).pipe(coalesce(FRAME, scheduler=mine)).subscribe(scheduler=theirs)
    source.on_next("a")
    source.on_next("b")
    assert (seen, forwarded) == (["a"], [theirs, theirs])
    theirs.start()
    assert seen == ["a", "b"]


SCHEDULERS: dict[str, Callable[[], abc.SchedulerBase | None]] = {
    "none given": lambda: None,
    "timeout": TimeoutScheduler.singleton,
    "current thread": CurrentThreadScheduler,
    "new thread": NewThreadScheduler,
    "event loop": EventLoopScheduler,
    "thread pool": lambda: ThreadPoolScheduler(1),
}


@pytest.mark.parametrize("make", SCHEDULERS.values(), ids=list(SCHEDULERS))
def test_on_any_scheduler_deliveries_never_overlap_and_nothing_is_lost(make: Any) -> None:
    scheduler = make()
    source: Subject[TextDelta] = Subject()
    ended = threading.Event()
    busy = threading.Lock()
    seen: list[str] = []

    def show(delta: TextDelta) -> None:
        assert busy.acquire(blocking=False), "two deliveries at a time"
        seen.append(delta.text)
        busy.release()

    source.pipe(coalesce(0.001, scheduler=scheduler)).subscribe(show, pytest.fail, ended.set)
    for n in range(300):
        source.on_next(TextDelta(f"{n} "))
        if n % 100 == 99:
            threading.Event().wait(0.003)  # so that a timer fires in between
    source.on_completed()
    assert ended.wait(5)
    assert "".join(seen) == "".join(f"{n} " for n in range(300))
    if isinstance(scheduler, EventLoopScheduler):
        scheduler.dispose()
    if isinstance(scheduler, ThreadPoolScheduler):
        scheduler.executor.shutdown()


def test_with_foreign_operators_on_either_side() -> None:
    scheduler = TestScheduler()
    source = scheduler.create_hot_observable(*(on_next(time, text("x")) for time in range(210, 270, 5)))
    seen = scheduler.start(
        lambda: source.pipe(ops.map(lambda item: item), coalesce(FRAME), ops.filter(bool), ops.take(2))
    ).messages
    assert seen == [on_next(210, text("x")), on_next(240, text("xxxxxx")), on_completed(240)]
    assert source.subscriptions[0].unsubscribe == 240


class Wire:
    """A source that knows a window: each item is so many bytes."""

    def __init__(self) -> None:
        self.subject: Subject[str] = Subject()
        self.windows: list[ByteWindow | None] = []

    def observable(self) -> Observable[str]:
        def subscribe(observer: abc.ObserverBase[str], scheduler: Any = None) -> abc.DisposableBase:
            self.windows.append(current_window())
            return self.subject.subscribe(observer, scheduler=scheduler) or Disposable()

        return Observable(subscribe)

    def push(self, size: int) -> None:
        """Read so many bytes, which give one item."""
        window = self.windows[-1]
        assert window is not None
        window.add(size)
        self.subject.on_next("x" * size)


def test_with_no_boundary_behind_it_the_frame_is_bounded_by_a_window_of_its_own() -> None:
    scheduler = TestScheduler()
    wire = Wire()
    wire.observable().pipe(coalesce(FRAME, scheduler=scheduler)).subscribe()
    (window,) = wire.windows
    assert window is not None
    window.add(2 * window.limit)  # comments before the first item
    assert window.room == window.limit
    wire.push(window.limit)
    assert window.pending == 0
    wire.push(1)
    resumed: list[bool] = []
    wire.push(window.limit)
    assert not window.when_open(lambda: resumed.append(True))
    scheduler.start()
    assert (resumed, window.pending) == ([True], 0)


def test_one_that_leaves_a_shared_stream_does_not_hold_it() -> None:
    wire = Wire()
    leaving = wire.observable().pipe(coalesce(FRAME, scheduler=TestScheduler())).subscribe()
    (window,) = wire.windows
    assert window is not None
    wire.push(1)
    wire.push(1)
    wire.push(window.limit)
    assert not window.when_open(lambda: None)
    leaving.dispose()
    assert window.when_open(lambda: None)


def test_with_a_boundary_behind_it_the_frame_counts_in_that_window_and_frees_nothing() -> None:
    scheduler = TestScheduler()
    wire, window = Wire(), ByteWindow(100)
    with offered(window):
        wire.observable().pipe(coalesce(FRAME, scheduler=scheduler)).subscribe(lambda _: window.mark())
    assert wire.windows == [window]
    window.release_all()  # the consumer starves
    wire.push(10)
    window.release_all()
    wire.push(60)
    assert window.pending == 60
    assert window.when_open(lambda: None)
    wire.push(60)
    assert not window.when_open(lambda: None)
    window.release_all()  # what the frame holds is not there yet
    assert window.pending == 120
    scheduler.start()
    assert window.pending >= 100  # it is the boundary that frees


def test_a_frame_of_which_nothing_comes_to_the_boundary_lets_the_source_read_on() -> None:
    scheduler = TestScheduler()
    wire, window, resumed = Wire(), ByteWindow(100), list[bool]()
    with offered(window):
        wire.observable().pipe(coalesce(FRAME, scheduler=scheduler), ops.filter(lambda _: False)).subscribe()
    window.release_all()  # the consumer starves, and gets nothing
    wire.push(1)
    wire.push(1)
    wire.push(100)
    assert not window.when_open(lambda: resumed.append(True))
    scheduler.start()
    assert (resumed, window.room) == ([True], 100)


def test_a_frame_that_is_shared_is_bounded_too() -> None:
    scheduler = TestScheduler()
    wire, window = Wire(), ByteWindow(100)
    with offered(window):
        wire.observable().pipe(coalesce(FRAME, scheduler=scheduler), share()).subscribe(lambda _: window.release_all())
    window.release_all()  # a consumer that keeps up
    wire.push(1)
    wire.push(1)
    (shared,) = wire.windows
    assert shared is not None
    wire.push(shared.limit)
    assert not shared.when_open(lambda: None)
    scheduler.start()
    assert shared.when_open(lambda: None)
