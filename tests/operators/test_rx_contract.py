"""What every operator owes its subscribers, whatever it does: one grid over all of them."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import pytest
import reactivex
from reactivex import Observable, Subject, abc
from reactivex import operators as ops
from reactivex.scheduler import CurrentThreadScheduler, ImmediateScheduler
from reactivex.testing import ReactiveTest, TestScheduler
from reactivex.testing.subscription import Subscription

from rillet.operators import (
    Delta,
    Done,
    EventFrame,
    JsonLine,
    JsonPreview,
    ServerSentEvent,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallPreview,
    ToolCallStart,
    WireEvent,
    WireProtocol,
    assemble_tools,
    bounded,
    decode_deltas,
    decode_utf8,
    decompress,
    group_events,
    preview_json,
    preview_tools,
    progress_timeout,
    require_done,
    split_frames,
    split_json_lines,
    split_lines,
)
from rillet.operators.errors import TruncatedStream
from rillet.operators.stage import BatchObserver, subscribe_in_batches

Run = Callable[..., tuple[list[Any], Any]]
Operator = Callable[[Observable[Any]], Observable[Any]]


class Words:
    """A dialect for these tests: an event is a word, `{` opens a tool call and `}` closes it, `.` is the last."""

    def __init__(self, extras: bool) -> None:
        del extras

    def decode(self, event: WireEvent, /) -> Iterator[Delta]:
        match event.data:
            case ".":
                yield Done()
            case "{":
                yield ToolCallStart(0, "c", "f")
                yield ToolCallDelta(0, "{")
            case "}":
                yield ToolCallDelta(0, "}")
                yield ToolCallEnd(0)
            case word:
                yield TextDelta(word)

    def finish(self) -> Iterator[Delta]:
        return iter(())


WORDS = WireProtocol("words", Words)
CALL: list[Delta] = [ToolCallStart(0, "c", "f"), ToolCallDelta(0, "{"), ToolCallDelta(0, "}"), ToolCallEnd(0)]
ANSWER: list[Delta] = [TextDelta("é"), *CALL, ToolCall(0, "c", "f", {}, "{}"), Done()]
WIRE = [b"\xef\xbb\xbf: hello\r\n\r\ndata: \xc3\xa9\r\n\r", b"\ndata: {\r\rdata", b": }\n\ndata: .\n\n"]
FIVE: list[Operator] = [decode_utf8(), split_lines(), group_events(), decode_deltas(WORDS), assemble_tools()]


PASSED: list[tuple[Any, list[Any]]] = [(item, [item]) for item in (TextDelta("a"), 2, None)]
GZIPPED = gzip.compress(b"ab")
FRAME = bytes.fromhex("000000100000000005c248eb7d98c8ff")  # no headers, no payload


class Case(NamedTuple):
    """An operator, and what it makes of each item."""

    operator: Operator
    steps: list[tuple[Any, list[Any]]]
    needs_done: bool = False

    @property
    def items(self) -> list[Any]:
        return [item for item, _ in self.steps]

    @property
    def results(self) -> list[Any]:
        return [result for _, results in self.steps for result in results]


def identity(item: Any) -> Any:
    return item


def all_of(*operators: Operator) -> Operator:
    return lambda source: source.pipe(*operators)


def apart(*operators: Operator) -> Operator:
    foreign = ops.map(identity)
    return all_of(foreign, *(part for operator in operators for part in (operator, foreign)))


CASES = {
    "decode_utf8": Case(decode_utf8(), [(b"Caf\xc3", ["Caf"]), (b"\xa9", ["é"]), (b"\xe2\x98", []), (b"\x95", ["☕"])]),
    "split_lines": Case(split_lines(), [("a\r", ["a"]), ("\nb", []), ("c\n\nd\n", ["bc", "", "d"]), ("e\n", ["e"])]),
    "split_json_lines": Case(
        split_json_lines(), [('{"a":1}\n', [JsonLine('{"a":1}')]), ("{", []), ("}\n\n{}\n", [JsonLine("{}")] * 2)]
    ),
    "split_frames": Case(
        split_frames(),
        [(FRAME, [EventFrame({}, b"")]), (FRAME[:9], []), (FRAME[9:] + FRAME, [EventFrame({}, b"")] * 2)],
    ),
    "decompress": Case(
        decompress("gzip"), [(GZIPPED, [b"ab"]), (GZIPPED[:9], []), (GZIPPED[9:] + GZIPPED, [b"ab", b"ab"])]
    ),
    "group_events": Case(
        group_events(),
        [
            ("data: a", []),
            ("", [ServerSentEvent("message", "a")]),
            ("data: b", []),
            ("", [ServerSentEvent("message", "b")]),
        ],
    ),
    "decode_deltas": Case(
        decode_deltas(WORDS),
        [
            (ServerSentEvent("message", "é"), [TextDelta("é")]),
            (ServerSentEvent("message", "{"), CALL[:2]),
            (ServerSentEvent("message", "}"), CALL[2:]),
        ],
    ),
    "assemble_tools": Case(
        assemble_tools(),
        [
            (TextDelta("a"), [TextDelta("a")]),
            *((delta, [delta]) for delta in CALL[:3]),
            (CALL[3], [CALL[3], ToolCall(0, "c", "f", {}, "{}")]),
        ],
    ),
    "preview_tools": Case(
        preview_tools(every=0),
        [
            (TextDelta("a"), [TextDelta("a")]),
            (CALL[0], [CALL[0]]),
            (CALL[1], [CALL[1], ToolCallPreview(0, "f", {}, ())]),
            (CALL[2], [CALL[2], ToolCallPreview(0, "f", {}, None)]),
            (CALL[3], [CALL[3]]),
        ],
    ),
    "preview_json": Case(
        preview_json(every=0),
        [
            (TextDelta("["), [TextDelta("["), JsonPreview([], ())]),
            (TextDelta("1"), [TextDelta("1")]),
            (TextDelta("]"), [TextDelta("]"), JsonPreview([1], None)]),
            (Done(), [Done()]),
        ],
    ),
    "require_done": Case(
        require_done(), [(delta, [delta]) for delta in (TextDelta("a"), TextDelta("b"), *CALL, Done())], needs_done=True
    ),
    "all joined": Case(
        all_of(*FIVE, require_done()),
        [(WIRE[0], ANSWER[:1]), (WIRE[1], ANSWER[1:3]), (WIRE[2], ANSWER[3:])],
        needs_done=True,
    ),
    "all apart": Case(
        apart(*FIVE, require_done()),
        [(WIRE[0], ANSWER[:1]), (WIRE[1], ANSWER[1:3]), (WIRE[2], ANSWER[3:])],
        needs_done=True,
    ),
    "bounded": Case(bounded(scheduler=ImmediateScheduler()), PASSED),
    "progress_timeout": Case(progress_timeout(60, scheduler=TestScheduler()), PASSED),
    "the five joined": Case(all_of(*FIVE), [(WIRE[0], ANSWER[:1]), (WIRE[1] + WIRE[2], ANSWER[1:])]),
}
on_every_operator = pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))


class Seen(abc.ObserverBase[Any]):
    """A subscriber that writes down what it is told; `at_first` happens inside the first on_next."""

    def __init__(self, at_first: Callable[[], object] = lambda: None) -> None:
        self.items: list[Any] = []
        self.ends: list[Any] = []
        self._at_first = at_first

    def on_next(self, item: Any) -> None:
        assert not self.ends, "an item after the end"
        self.items.append(item)
        if len(self.items) == 1:
            self._at_first()

    def on_error(self, error: Exception) -> None:
        self.ends.append(error)

    def on_completed(self) -> None:
        self.ends.append("completed")


class Broken(Exception):
    """What a source, or a subscriber, of these tests raises."""


@on_every_operator
def test_never(case: Case) -> None:
    scheduler = TestScheduler()
    source: Any = scheduler.create_hot_observable()
    assert scheduler.start(lambda: source.pipe(case.operator)).messages == []
    assert source.subscriptions == [Subscription(200, 1000)]


@on_every_operator
def test_empty(case: Case, run: Run) -> None:
    items, error = run(case.operator, [])
    assert (items, type(error)) == ([], TruncatedStream if case.needs_done else type(None))


@on_every_operator
def test_an_error_arrives_as_it_is_after_what_came_before(case: Case) -> None:
    source: Subject[Any] = Subject()
    seen = Seen()
    source.pipe(case.operator).subscribe(seen)
    first, results = case.steps[0]
    source.on_next(first)
    fault = Broken()
    source.on_error(fault)
    assert (seen.items, len(seen.ends)) == (results, 1)
    assert seen.ends[0] is fault


@on_every_operator
def test_each_item_gives_its_results_at_once(case: Case) -> None:
    scheduler = TestScheduler()
    last = 200 + 10 * len(case.steps)
    source = scheduler.create_hot_observable(
        *(ReactiveTest.on_next(210 + 10 * n, item) for n, item in enumerate(case.items)),
        ReactiveTest.on_completed(last if case.needs_done else last + 10),
    )
    messages = scheduler.start(lambda: source.pipe(case.operator)).messages
    end = last if case.needs_done else last + 10
    assert messages == [
        *(
            ReactiveTest.on_next(210 + 10 * n, result)
            for n, (_, results) in enumerate(case.steps)
            for result in results
        ),
        ReactiveTest.on_completed(end),
    ]
    assert source.subscriptions == [Subscription(200, end)]


@on_every_operator
def test_disposed_early(case: Case) -> None:
    scheduler = TestScheduler()
    source = scheduler.create_hot_observable(
        *(ReactiveTest.on_next(210 + 10 * n, item) for n, item in enumerate(case.items)),
        ReactiveTest.on_completed(500),
    )
    messages = scheduler.start(lambda: source.pipe(case.operator), disposed=215).messages
    assert messages == [ReactiveTest.on_next(210, result) for result in case.steps[0][1]]
    assert source.subscriptions == [Subscription(200, 215)]


@on_every_operator
def test_disposed_inside_on_next_nothing_follows(case: Case) -> None:
    source: Subject[Any] = Subject()
    seen = Seen(at_first=lambda: subscription.dispose())
    subscription = source.pipe(case.operator).subscribe(seen)
    for item in case.items:
        source.on_next(item)
    assert not source.observers
    source.on_completed()
    assert (seen.items, seen.ends) == (case.results[:1], [])


@on_every_operator
def test_an_exception_of_the_subscriber_ends_the_stream(case: Case) -> None:
    source: Subject[Any] = Subject()
    fault = Broken()

    def fail() -> None:
        raise fault

    seen = Seen(at_first=fail)
    source.pipe(case.operator).subscribe(seen)
    for item in case.items:
        source.on_next(item)
    source.on_completed()
    assert (seen.items, len(seen.ends)) == (case.results[:1], 1)
    assert seen.ends[0] is fault
    assert not source.observers


@on_every_operator
def test_an_exception_of_the_subscriber_ends_a_source_that_pushes_at_once(case: Case) -> None:
    fault = Broken()

    def fail() -> None:
        raise fault

    def push(observer: Any, scheduler: Any = None) -> None:
        for item in case.items:
            observer.on_next(item)
        observer.on_completed()

    seen = Seen(at_first=fail)
    pushes: Observable[Any] = Observable(push)  # type: ignore[arg-type]
    pushes.pipe(case.operator).subscribe(seen)
    assert (seen.items, len(seen.ends)) == (case.results[:1], 1)
    assert seen.ends[0] is fault


@on_every_operator
def test_a_second_subscription_sees_the_same(case: Case) -> None:
    observable = reactivex.from_iterable(case.items).pipe(case.operator)
    for seen in (Seen(), Seen()):
        observable.subscribe(seen)
        assert (seen.items, seen.ends) == (case.results, ["completed"])


@on_every_operator
def test_two_subscriptions_at_a_time_share_nothing(case: Case) -> None:
    sources = [Subject[Any](), Subject[Any]()]
    turns = iter(sources)
    observable = reactivex.defer(lambda _: next(turns)).pipe(case.operator)
    seen = [Seen(), Seen()]
    for one in seen:
        observable.subscribe(one)
    for item in case.items:
        for source in sources:
            source.on_next(item)
    for source in sources:
        source.on_completed()
    assert [(one.items, one.ends) for one in seen] == [(case.results, ["completed"])] * 2


@on_every_operator
def test_a_subscription_after_an_error_starts_anew(case: Case) -> None:
    broken = reactivex.concat(reactivex.from_iterable(case.items[:-1]), reactivex.throw(Broken()))
    turns = iter([broken, reactivex.from_iterable(case.items)])
    observable = reactivex.defer(lambda _: next(turns)).pipe(case.operator)
    first, second = Seen(), Seen()
    observable.subscribe(first)
    observable.subscribe(second)
    assert first.items == [result for _, results in case.steps[:-1] for result in results]
    assert [type(end) for end in first.ends] == [Broken]
    assert (second.items, second.ends) == (case.results, ["completed"])


@on_every_operator
def test_retry_starts_anew_too(case: Case) -> None:
    broken = reactivex.concat(reactivex.from_iterable(case.items[:1]), reactivex.throw(Broken()))
    turns = iter([broken, reactivex.from_iterable(case.items)])
    seen = Seen()
    reactivex.defer(lambda _: next(turns)).pipe(case.operator, ops.retry(2)).subscribe(seen)
    assert (seen.items, seen.ends) == (case.steps[0][1] + case.results, ["completed"])


@on_every_operator
@pytest.mark.parametrize("foreign", ["before", "after", "around"])
def test_with_a_foreign_operator_next_to_it(case: Case, foreign: str, run: Run) -> None:
    parts = [case.operator]
    if foreign != "after":
        parts.insert(0, ops.map(identity))
    if foreign != "before":
        parts.append(ops.map(identity))
    assert run(all_of(*parts), case.items) == (case.results, None)


@on_every_operator
def test_the_scheduler_is_forwarded(case: Case) -> None:
    schedulers: list[object] = []

    def subscribe(observer: Any, scheduler: Any = None) -> None:
        schedulers.append(scheduler)

    mine = CurrentThreadScheduler()
    source: Observable[Any] = Observable(subscribe)  # type: ignore[arg-type]
    source.pipe(case.operator).subscribe(scheduler=mine)
    assert schedulers == [mine]


@on_every_operator
def test_take_leaves_nothing_behind(case: Case) -> None:
    source: Subject[Any] = Subject()
    seen = Seen()
    source.pipe(case.operator, ops.take(1)).subscribe(seen)
    for item in case.items:
        source.on_next(item)
    assert (seen.items, seen.ends, source.observers) == (case.results[:1], ["completed"], [])


class Batches(BatchObserver[Any]):
    """A boundary that writes down what it is told, batch by batch."""

    def __init__(self) -> None:
        self.batches: list[Sequence[Any]] = []
        self.ends: list[Any] = []

    def on_next(self, value: Any) -> None:
        self.on_batch((value,))

    def on_batch(self, values: Sequence[Any]) -> None:
        self.batches.append(values)

    def on_error(self, error: Exception) -> None:
        self.ends.append(error)

    def on_completed(self) -> None:
        self.ends.append("completed")

    @property
    def items(self) -> list[Any]:
        return [item for batch in self.batches for item in batch]


@on_every_operator
def test_in_batches_the_same_arrives(case: Case) -> None:
    seen = Batches()
    subscribe_in_batches(reactivex.from_iterable(case.items).pipe(case.operator), seen)
    assert (seen.items, seen.ends) == (case.results, ["completed"])


@on_every_operator
def test_in_batches_an_error_comes_after_what_came_before_and_dispose_ends_it(case: Case) -> None:
    source: Subject[Any] = Subject()
    failing, leaving = Batches(), Batches()
    fault = Broken()
    subscribe_in_batches(source.pipe(case.operator), failing)
    subscription = subscribe_in_batches(source.pipe(case.operator), leaving)
    source.on_next(case.items[0])
    subscription.dispose()
    source.on_error(fault)
    assert (failing.items, len(failing.ends), failing.ends[0] is fault) == (case.steps[0][1], 1, True)
    assert (leaving.items, leaving.ends, source.observers) == (case.steps[0][1], [], [])


def test_what_a_chunk_gives_is_one_batch() -> None:
    seen = Batches()
    subscribe_in_batches(reactivex.from_iterable([b"".join(WIRE)]).pipe(*FIVE, require_done()), seen)
    assert (seen.batches[0], seen.ends) == (tuple(ANSWER), ["completed"])


@pytest.mark.parametrize("gaps", range(32))
def test_any_neighbours_may_be_taken_apart(gaps: int, run: Run) -> None:
    """Between two of the six operators stands a foreign one or none: every way of it gives the same."""
    parts: list[Operator] = []
    for n, operator in enumerate([*FIVE, require_done()]):
        parts += [operator, ops.map(identity)] if gaps >> n & 1 else [operator]
    assert run(all_of(*parts), WIRE) == (ANSWER, None)
