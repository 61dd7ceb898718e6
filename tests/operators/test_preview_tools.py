from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import reactivex
from reactivex import Observable, Subject
from reactivex import operators as ops
from reactivex.scheduler import TimeoutScheduler, VirtualTimeScheduler
from reactivex.testing import ReactiveTest, TestScheduler

from rillet.operators import (
    Attempt,
    Delta,
    Done,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallPreview,
    ToolCallStart,
    assemble_tools,
    preview_tools,
    previews,
)

Run = Callable[..., tuple[list[Any], Any]]
Timed = Sequence[tuple[float, Any]]

START = ToolCallStart(0, "c", "f")
END = ToolCallEnd(0)


class Broken(Exception):
    """What a source, or a subscriber, of these tests raises."""


def args(text: str, index: int = 0, choice: int = 0) -> ToolCallDelta:
    return ToolCallDelta(index, text, choice)


def preview(value: Any, path: tuple[str | int, ...] | None, index: int = 0, choice: int = 0) -> ToolCallPreview:
    return ToolCallPreview(index, f"f{index or ''}", value, path, choice)


def is_preview(item: Any) -> bool:
    return type(item) is ToolCallPreview


def timed(items: Timed, end: Any = None, *, every: float = 10, disposed: float = 1000) -> list[tuple[float, Any]]:
    """What comes out, and when, of a hot source that emits the items at these times after the subscription."""
    scheduler = TestScheduler()
    messages = [ReactiveTest.on_next(200 + at, item) for at, item in items]
    source = scheduler.create_hot_observable(*messages, *((end,) if end else ()))
    observer = scheduler.start(lambda: source.pipe(preview_tools(every=every)), disposed=200 + disposed)
    return [(message.time - 200, getattr(message.value, "value", message.value.kind)) for message in observer.messages]


def test_calls_of_the_attempt_before_are_not_shown() -> None:
    items = [(1, START), (2, args('{"a":1')), (3, Attempt(2)), (4, args("}")), (20, START), (21, args("{"))]
    assert [shown for _, shown in timed(items) if is_preview(shown)] == [ToolCallPreview(0, "f", {}, ())]


def test_the_deltas_come_at_once_and_the_preview_at_the_end_of_the_frame() -> None:
    assert timed([(1, START), (2, args('{"a":"x')), (5, args("yz"))]) == [
        (1, START),
        (2, args('{"a":"x')),
        (5, args("yz")),
        (12, preview({"a": "xyz"}, ("a",))),
    ]


def test_a_call_is_shown_once_a_frame_and_only_where_it_changed() -> None:
    items = [(1, START), (2, args("[")), (3, args("1,")), (13, args("2")), (14, args("3")), (24, args(","))]
    assert [(at, item.value) for at, item in timed(items) if type(item) is ToolCallPreview] == [
        (12, [1]),
        (34, [1, 23]),  # the frame that ended at 23 had a number that might go on
    ]


def test_each_call_of_each_choice_is_shown() -> None:
    items = [
        (1, START),
        (1, ToolCallStart(7, "d", "f7")),
        (1, ToolCallStart(0, "e", "f", 1)),
        (2, args("[", 7)),
        (3, args("{", 0, 1)),
        (4, args('"', 0)),
        (13, args('"', 7)),
    ]
    assert [(at, item) for at, item in timed(items) if type(item) is ToolCallPreview] == [
        (12, preview([], (), 7)),
        (12, preview({}, (), 0, 1)),
        (12, preview("", (), 0)),
        (23, preview([""], (0,), 7)),
    ]


def test_a_call_that_ended_is_not_shown_again() -> None:
    call = ToolCall(0, "c", "f", {}, "{}")
    assert timed([(1, START), (2, args("{")), (3, args("}")), (4, END), (4, call), (5, TextDelta("then"))]) == [
        (1, START),
        (2, args("{")),
        (3, args("}")),
        (4, END),
        (4, call),
        (5, TextDelta("then")),
    ]


def test_a_tool_call_ends_its_call_too() -> None:
    call = ToolCall(0, "c", "f", {}, "{}")
    assert timed([(1, START), (2, args("{}")), (4, call)])[-1] == (4, call)


def test_an_index_used_again_begins_anew() -> None:
    items = [(1, START), (2, args("[1,")), (3, END), (4, START), (5, args("[2,"))]
    assert [(at, item) for at, item in timed(items) if type(item) is ToolCallPreview] == [(12, preview([2], ()))]
    twice = [(1, START), (2, args("[1,")), (4, START), (5, args("[2,"))]
    assert [(at, item) for at, item in timed(twice) if type(item) is ToolCallPreview] == [(12, preview([2], ()))]


@pytest.mark.parametrize("end", [ReactiveTest.on_completed(205), ReactiveTest.on_error(205, Broken())])
def test_what_is_unseen_of_open_calls_comes_before_the_end(end: Any) -> None:
    assert timed([(1, START), (2, args("["))], end) == [
        (1, START),
        (2, args("[")),
        (5, preview([], ())),
        (5, end.value.kind),
    ]


def test_nothing_is_scheduled_while_nothing_comes() -> None:
    scheduler = VirtualTimeScheduler()
    source: Subject[Delta] = Subject()
    seen: list[Any] = []
    source.pipe(preview_tools(every=10)).subscribe(seen.append, scheduler=scheduler)
    for delta in (TextDelta("a"), START, args("[")):
        source.on_next(delta)
    scheduler.start()  # ends where nothing is left to do
    assert scheduler.clock == 10
    assert seen == [TextDelta("a"), START, args("["), preview([], ())]
    for delta in (args(" "), END, TextDelta("b")):
        source.on_next(delta)
    scheduler.start()
    assert scheduler.clock == 20
    assert seen[4:] == [args(" "), END, TextDelta("b")]


def test_a_disposed_subscription_has_no_timers_left() -> None:
    assert timed([(1, START), (2, args("["))], disposed=5) == [(1, START), (2, args("["))]


def test_a_scheduler_of_its_own_comes_first() -> None:
    mine, other = TestScheduler(), TestScheduler()
    source: Subject[Delta] = Subject()
    seen: list[Any] = []
    source.pipe(preview_tools(every=10, scheduler=mine)).subscribe(seen.append, scheduler=other)
    source.on_next(START)
    source.on_next(args("["))
    other.start()
    assert seen == [START, args("[")]
    mine.start()
    assert seen == [START, args("["), preview([], ())]


def test_nothing_is_read_before_the_frame_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    fed: list[str] = []

    class Watched(previews.PartialJson):
        def feed(self, fragment: str) -> None:
            fed.append(fragment)
            super().feed(fragment)

    monkeypatch.setattr(previews, "PartialJson", Watched)
    timed([(1, START), (2, args("[1")), (3, args(",2")), (4, args(",3")), (20, args("]")), (21, END)])
    assert fed == ["[1,2,3"]


@pytest.mark.parametrize("text", ["[1,x", "[1,]", "[1,NaN", "[1,{}}", "[1," + "[" * 300])
def test_arguments_that_cannot_be_read_stay_as_they_were(text: str, run: Run) -> None:
    deltas = [START, args("[1,"), *(args(text[3:] + more) for more in ("", "2,", "3]")), TextDelta("on"), END, Done()]
    items, error = run(preview_tools(every=0), deltas)
    assert error is None
    assert [item for item in items if type(item) is not ToolCallPreview] == deltas
    shown = [item.value for item in items if type(item) is ToolCallPreview]
    assert len(shown) <= 2
    assert all(value[0] == 1 for value in shown)


def test_arguments_past_the_limit_stay_as_they_were(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    monkeypatch.setattr(previews, "MAX_SIZE", 4)
    deltas = [START, *map(args, ('["ab', "c", "d", '"]')), END]
    items, error = run(preview_tools(every=0), deltas)
    assert error is None
    assert [item.value for item in items if type(item) is ToolCallPreview] == [["ab"]]


def test_an_empty_fragment_is_nothing_to_show(run: Run) -> None:
    items, error = run(preview_tools(every=0), [START, args(""), args('"x'), args(""), END])
    assert error is None
    assert [item for item in items if type(item) is ToolCallPreview] == [preview("x", ())]


def test_fragments_of_a_call_that_is_not_open_are_not_shown(run: Run) -> None:
    deltas = [args("["), END, START, END, args("[")]
    assert run(preview_tools(every=0), deltas) == (deltas, None)


@pytest.mark.parametrize("every", [-1, float("nan")])
def test_a_frame_is_no_less_than_nothing(every: float) -> None:
    with pytest.raises(ValueError, match="every must be 0 seconds or more"):
        preview_tools(every=every)


def test_no_preview_follows_an_end_that_a_preview_led_to() -> None:
    """A subscriber that pushes on, inside on_next, to where another call of the same frame ends."""
    scheduler = TestScheduler()
    source: Subject[Delta] = Subject()
    seen: list[Any] = []

    def on_next(item: Any) -> None:
        seen.append(item)
        if item == preview([], ()):
            source.on_next(ToolCallEnd(1))

    source.pipe(preview_tools(every=10)).subscribe(on_next, scheduler=scheduler)
    for delta in (START, ToolCallStart(1, "d", "f1"), args("["), args("[", 1)):
        source.on_next(delta)
    scheduler.start()
    assert seen[4:] == [preview([], ()), ToolCallEnd(1)]


def test_an_exception_of_the_subscriber_at_the_end_of_a_frame_ends_the_stream() -> None:
    scheduler = TestScheduler()
    source: Subject[Delta] = Subject()
    errors: list[Exception] = []
    fault = Broken()

    def on_next(item: Any) -> None:
        if type(item) is ToolCallPreview:
            raise fault

    source.pipe(preview_tools(every=10)).subscribe(on_next, errors.append, scheduler=scheduler)
    for delta in (START, args("[")):
        source.on_next(delta)
    scheduler.start()
    assert errors == [fault]
    assert not source.observers


def test_a_subscriber_that_takes_one_preview_leaves_nothing_behind() -> None:
    scheduler = TestScheduler()
    source: Subject[Delta] = Subject()
    seen: list[Any] = []
    chain: Observable[Any] = source.pipe(
        preview_tools(every=10), ops.filter(lambda item: type(item) is ToolCallPreview)
    )
    chain.pipe(ops.take(1)).subscribe(seen.append, scheduler=scheduler)
    for delta in (START, ToolCallStart(1, "d", "f1"), args("["), args("[", 1)):
        source.on_next(delta)
    scheduler.start()
    assert seen == [preview([], ())]
    assert not source.observers


def test_calls_assembled_before_or_after_are_the_same(run: Run) -> None:
    deltas = [START, args('{"a"'), args(":1"), args("}"), END, Done()]
    shown = [preview({}, ()), preview({"a": 1}, None)]
    for parts in ((preview_tools(every=0), assemble_tools()), (assemble_tools(), preview_tools(every=0))):
        items, error = run(lambda source, parts=parts: source.pipe(*parts), deltas)
        assert error is None
        assert [item for item in items if type(item) is ToolCallPreview] == shown
        assert ToolCall(0, "c", "f", {"a": 1}, '{"a":1}') in items


def test_deliveries_never_overlap_whatever_thread_the_timers_run_on() -> None:
    """A source on this thread, frames on the threads of the default scheduler, a subscriber that takes its time."""
    inside, overlaps, shown = threading.Lock(), 0, 0
    enough, threads = threading.Event(), set[int]()

    def on_next(item: Any) -> None:
        nonlocal overlaps, shown
        if not inside.acquire(blocking=False):
            overlaps += 1
            return
        try:
            time.sleep(0.0002)  # long enough to be caught in
            threads.add(threading.get_ident())
            shown += type(item) is ToolCallPreview
        finally:
            inside.release()
        if shown >= 5:
            enough.set()

    source: Subject[Delta] = Subject()
    subscription = source.pipe(preview_tools(every=0.001)).subscribe(on_next)
    source.on_next(START)
    source.on_next(args("["))
    for n in range(20_000):
        source.on_next(args(f"{n},"))
        if enough.is_set():
            break
    subscription.dispose()
    assert (enough.is_set(), overlaps) == (True, 0)
    assert len(threads) > 1


def test_the_default_timers_are_those_of_the_timeout_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = VirtualTimeScheduler()
    monkeypatch.setattr(TimeoutScheduler, "singleton", lambda: scheduler)
    seen: list[Any] = []
    reactivex.concat(reactivex.of(START, args("[")), reactivex.never()).pipe(preview_tools()).subscribe(seen.append)
    scheduler.start()
    assert seen == [START, args("["), preview([], ())]
    assert scheduler.clock == pytest.approx(1 / 30, abs=1e-6)
