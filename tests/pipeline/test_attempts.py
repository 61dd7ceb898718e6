"""`attempts`: the grid in virtual time, and answers of a real server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextvars import Context
from typing import Any

import aiohttp
import pytest
import reactivex
from reactivex import Observable, Subject
from reactivex import operators as ops
from reactivex.scheduler import CurrentThreadScheduler
from reactivex.testing import ReactiveTest, TestScheduler
from reactivex.testing.subscription import Subscription

from rillet.operators import (
    Attempt,
    ByteWindow,
    Done,
    TextDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    assemble_tools,
    require_done,
)
from rillet.operators.errors import HttpStatusError, StreamError, TransportError, TruncatedStream
from rillet.operators.window import current_window, offered
from rillet.pipeline import Answer, Backoff, ask, attempts, bytes_from, iterate
from rillet.pipeline.sandbox import Fault, Sandbox, Script

Eventually = Callable[[Callable[[], object]], Awaitable[None]]

on_next, on_completed = ReactiveTest.on_next, ReactiveTest.on_completed
TENS = Backoff(first=10, longest=20, jitter=0)
FAST = Backoff(first=0.001, longest=0.001, jitter=0)


def cut() -> TruncatedStream:
    return TruncatedStream("cut", retry_safe=True)


class Sources:
    """A cold source whose n-th subscription gets the n-th of some timelines; the last stays."""

    def __init__(self, scheduler: TestScheduler, *timelines: Iterable[Any]) -> None:
        self.made: list[Any] = []
        self._scheduler = scheduler
        self._timelines = timelines

    def source(self) -> Observable[Any]:
        return reactivex.defer(self._next)

    def _next(self, _: object) -> Observable[Any]:
        timeline = self._timelines[min(len(self.made), len(self._timelines) - 1)]
        self.made.append(self._scheduler.create_cold_observable(list(timeline)))
        made: Observable[Any] = self.made[-1]
        return made

    @property
    def subscriptions(self) -> list[Subscription]:
        return [subscription for made in self.made for subscription in made.subscriptions]


def on_error(time: float, error: Exception) -> Any:
    return ReactiveTest.on_error(time, error)


def started(*timelines: Iterable[Any], most: int = 3, disposed: float = 1000, **options: Any) -> tuple[Any, Sources]:
    scheduler = TestScheduler()
    sources = Sources(scheduler, *timelines)
    operator = attempts(most, **{"backoff": TENS, "scheduler": scheduler, **options})
    return scheduler.start(lambda: sources.source().pipe(operator), disposed=disposed).messages, sources


def test_never() -> None:
    messages, sources = started([])
    assert (messages, sources.subscriptions) == ([], [Subscription(200, 1000)])


def test_empty() -> None:
    messages, sources = started([on_completed(5)])
    assert (messages, sources.subscriptions) == ([on_completed(205)], [Subscription(200, 205)])


def test_an_answer_that_arrives_whole_passes_as_it_is() -> None:
    messages, sources = started([on_next(5, "a"), on_next(6, "b"), on_completed(7)])
    assert messages == [on_next(205, "a"), on_next(206, "b"), on_completed(207)]
    assert sources.subscriptions == [Subscription(200, 207)]


def test_while_nothing_was_handed_on_another_attempt_is_hidden() -> None:
    messages, sources = started([on_error(5, cut())], [on_error(5, cut())], [on_next(5, "a"), on_completed(6)])
    assert messages == [on_next(245, "a"), on_completed(246)]
    assert sources.subscriptions == [Subscription(200, 205), Subscription(215, 220), Subscription(240, 246)]


def test_once_something_was_handed_on_each_further_attempt_is_announced_as_it_begins() -> None:
    first, second, third = (
        [on_next(5, "a"), on_error(6, cut())],
        [on_error(5, cut())],
        [on_next(5, "b"), on_completed(6)],
    )
    messages, sources = started(first, second, third)
    assert messages == [
        on_next(205, "a"),
        on_next(216, Attempt(2)),
        on_next(241, Attempt(3)),
        on_next(246, "b"),
        on_completed(247),
    ]
    assert sources.subscriptions == [Subscription(200, 206), Subscription(216, 221), Subscription(241, 247)]


def test_the_number_counts_the_hidden_ones_too() -> None:
    messages, _ = started([on_error(5, cut())], [on_next(5, "a"), on_error(6, cut())], [on_completed(1)])
    assert messages == [on_next(220, "a"), on_next(241, Attempt(3)), on_completed(242)]


def test_after_the_last_attempt_its_own_error_arrives() -> None:
    errors = [cut(), cut(), cut()]
    messages, sources = started(*([on_next(1, "a"), on_error(2, error)] for error in errors))
    assert messages[-1].value.exception is errors[-1]
    assert [error.retry_safe for error in errors] == [False] * 3
    assert len(sources.made) == 3


def test_an_error_before_anything_was_handed_on_stays_safe_to_retry() -> None:
    error = cut()
    started([on_error(5, error)], most=1)
    assert error.retry_safe


@pytest.mark.parametrize("error", [RuntimeError("mine"), HttpStatusError(400, {}, ""), ValueError("x")], ids=repr)
def test_an_error_that_is_not_worth_it_arrives_at_once(error: Exception) -> None:
    messages, sources = started([on_next(5, "a"), on_error(6, error)])
    assert messages[-1].value.exception is error
    assert sources.subscriptions == [Subscription(200, 206)]


def test_what_is_worth_it_is_the_caller_s_to_say() -> None:
    worth = [RuntimeError("mine"), cut()]
    messages, sources = started(*([on_error(5, error)] for error in worth), worth=lambda error: error is worth[0])
    assert (messages[-1].value.exception, len(sources.made)) == (worth[1], 2)


def test_what_the_caller_s_word_raises_arrives() -> None:
    failure = RuntimeError("in the word")

    def worth(_: Exception) -> bool:
        raise failure

    messages, _ = started([on_error(5, cut())], worth=worth)
    assert messages[-1].value.exception is failure


@pytest.mark.parametrize(("retry_after", "again"), [(0.0, 205), (7.0, 212), (300.0, 505)])
def test_retry_after_is_waited_for(retry_after: float, again: float) -> None:
    busy = HttpStatusError(429, {}, "", retry_after=retry_after)
    _, sources = started([on_error(5, busy)], [on_completed(1)])
    # Virtual time has no "at once": what is due now comes a tick later.
    assert sources.subscriptions[1].subscribe in (again, again + 1)


def test_a_retry_after_beyond_the_patience_is_not() -> None:
    busy = HttpStatusError(429, {}, "", retry_after=601.0)
    messages, sources = started([on_error(5, busy)])
    assert (messages[-1].value.exception, messages[-1].time, len(sources.made)) == (busy, 205, 1)


def test_disposed_early() -> None:
    messages, sources = started([on_next(5, "a"), on_next(20, "b")], disposed=210)
    assert (messages, sources.subscriptions) == ([on_next(205, "a")], [Subscription(200, 210)])


def test_disposed_while_it_waits_there_is_no_further_attempt() -> None:
    messages, sources = started([on_next(5, "a"), on_error(6, cut())], disposed=210)
    assert (messages, sources.subscriptions) == ([on_next(205, "a")], [Subscription(200, 206)])


@pytest.mark.parametrize("at", ["a", Attempt(2), "b"])
def test_disposed_inside_on_next_nothing_follows(at: Any) -> None:
    scheduler = TestScheduler()
    sources = Sources(scheduler, [on_next(5, "a"), on_error(6, cut())], [on_next(5, "b"), on_next(6, "c")])
    seen: list[Any] = []

    def take(item: Any) -> None:
        seen.append(item)
        if item == at:
            subscription.dispose()

    observable = sources.source().pipe(attempts(backoff=TENS, scheduler=scheduler))
    subscription = observable.subscribe(take, seen.append, lambda: seen.append("completed"))
    scheduler.start()
    assert seen == ["a", Attempt(2), "b"][: len(seen)]
    assert seen[-1] == at
    assert len(sources.made) == (2 if at == "b" else 1)


@pytest.mark.parametrize("at", ["a", Attempt(2)])
def test_an_exception_of_the_subscriber_ends_it_whatever_it_is(at: Any) -> None:
    scheduler = TestScheduler()
    sources = Sources(scheduler, [on_next(5, "a"), on_next(6, "b"), on_error(7, cut())])
    failure, seen = cut(), list[Any]()

    def take(item: Any) -> None:
        seen.append(item)
        if item == at:
            raise failure

    # An operator that hands an exception of its observer back as an error, as those of this library do.
    source = sources.source().pipe(assemble_tools())
    source.pipe(attempts(backoff=TENS, scheduler=scheduler)).subscribe(take, seen.append)
    scheduler.start()
    assert seen[-1] is failure
    assert len(sources.made) == 1


def test_a_source_that_pushes_and_fails_inside_subscribe() -> None:
    scheduler, seen, turns = TestScheduler(), list[Any](), iter([cut(), cut()])

    def push(observer: Any, _: Any = None) -> None:
        observer.on_next("a")
        if (error := next(turns, None)) is None:
            observer.on_completed()
        else:
            observer.on_error(error)

    source: Observable[str] = Observable(push)  # type: ignore[arg-type]
    source.pipe(attempts(backoff=TENS, scheduler=scheduler)).subscribe(
        seen.append, seen.append, lambda: seen.append("completed")
    )
    scheduler.start()
    assert seen == ["a", Attempt(2), "a", Attempt(3), "a", "completed"]


def test_two_subscriptions_share_nothing_and_a_third_starts_anew() -> None:
    scheduler, seen = TestScheduler(), [list[Any](), list[Any](), list[Any]()]
    sources = Sources(
        scheduler, [on_error(5, cut())], [on_next(5, "a"), on_error(6, cut())], [on_completed(1)], [on_completed(1)]
    )
    observable = sources.source().pipe(attempts(2, backoff=TENS, scheduler=scheduler))
    for one in seen[:2]:
        observable.subscribe(one.append, one.append, lambda one=one: one.append("completed"))
    scheduler.start()
    observable.subscribe(seen[2].append, seen[2].append, lambda: seen[2].append("completed"))
    scheduler.start()
    assert seen == [["completed"], ["a", Attempt(2), "completed"], ["completed"]]


@pytest.mark.parametrize("foreign", ["before", "after", "around"])
def test_with_a_foreign_operator_next_to_it(foreign: str) -> None:
    scheduler, seen = TestScheduler(), list[Any]()
    sources = Sources(scheduler, [on_next(5, "a"), on_error(6, cut())], [on_next(5, "b"), on_completed(6)])
    parts: list[Any] = [attempts(backoff=TENS, scheduler=scheduler)]
    if foreign != "after":
        parts.insert(0, ops.map(lambda item: item))
    if foreign != "before":
        parts.append(ops.map(lambda item: item))
    sources.source().pipe(*parts).subscribe(seen.append, seen.append, lambda: seen.append("completed"))
    scheduler.start()
    assert seen == ["a", Attempt(2), "b", "completed"]


def test_the_subscriber_s_scheduler_is_forwarded_to_each_attempt() -> None:
    schedulers: list[object] = []
    scheduler = TestScheduler()

    def fail(observer: Any, given: Any = None) -> None:
        schedulers.append(given)
        observer.on_error(cut())

    mine = CurrentThreadScheduler()
    source: Observable[str] = Observable(fail)  # type: ignore[arg-type]
    source.pipe(attempts(2, backoff=TENS, scheduler=scheduler)).subscribe(on_error=lambda _: None, scheduler=mine)
    scheduler.start()
    assert schedulers == [mine, mine]


def test_each_attempt_is_subscribed_to_in_the_context_of_the_subscriber() -> None:
    scheduler, window = TestScheduler(), ByteWindow()
    offers: list[ByteWindow | None] = []
    subjects: list[Subject[str]] = []

    def source(_: object) -> Observable[str]:
        offers.append(current_window())
        subjects.append(Subject())
        return subjects[-1]

    with offered(window):
        reactivex.defer(source).pipe(attempts(backoff=TENS, scheduler=scheduler)).subscribe(on_error=lambda _: None)
    for _ in range(2):
        Context().run(subjects[-1].on_error, cut())
        scheduler.start()
    assert offers == [window] * 3


def test_there_is_at_least_one_attempt() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        attempts(0)


# What takes an Attempt


def test_an_answer_starts_afresh() -> None:
    answer = Answer()
    for delta in (TextDelta("old"), TextDelta("other", 1), Attempt(2)):
        answer.add(delta)
    assert (answer.messages, answer.is_empty) == ((), True)
    answer.add(TextDelta("new"))
    assert [message.text for message in answer.messages] == ["new"]


def test_open_calls_of_the_attempt_before_are_forgotten(run: Callable[..., tuple[list[Any], Any]]) -> None:
    opened = [ToolCallStart(0, "c", "f"), ToolCallDelta(0, '{"a":')]
    malformed = [ToolCallStart(1, "d", "f"), ToolCallDelta(1, "["), ToolCallEnd(1)]
    whole = [ToolCallStart(0, "e", "f"), ToolCallDelta(0, "{}"), ToolCallEnd(0), Done()]
    items, error = run(reactivex.compose(assemble_tools(), require_done()), [*opened, *malformed, Attempt(2), *whole])
    assert error is None
    assert [item.id for item in items if type(item).__name__ == "ToolCall"] == ["e"]
    assert Attempt(2) in items


# Over a real server


class Failing(Sandbox):
    """A sandbox whose faults come one after another, an answer each; then it answers well."""

    def __init__(self, *faults: Fault) -> None:
        super().__init__(Script("Hello there"))
        self._faults = list(faults)

    async def _answer(self, *parts: Any) -> Any:
        self._fault = self._faults.pop(0) if self._faults else None
        return await super()._answer(*parts)


def hello(session: aiohttp.ClientSession, base_url: str) -> Observable[Any]:
    return ask(session, "Hello?", provider="openai", base_url=base_url)


def text_of(items: Iterable[Any]) -> str:
    return "".join(item.text for item in items if isinstance(item, TextDelta))


async def test_asking_alone_is_never_repeated(session: aiohttp.ClientSession) -> None:
    sandbox = Failing(Fault("cut", after=500))
    async with sandbox as base_url:
        with pytest.raises(TruncatedStream):
            [delta async for delta in iterate(hello(session, base_url))]
    assert len(sandbox.requests) == 1


@pytest.mark.parametrize("kind", ["cut", "reset", "end", "error"])
async def test_an_answer_that_broke_is_asked_for_anew_and_announced(session: aiohttp.ClientSession, kind: Any) -> None:
    sandbox = Failing(Fault(kind, after=500, status=529))
    async with sandbox as base_url:
        got = [delta async for delta in iterate(hello(session, base_url).pipe(attempts(backoff=FAST)))]
    place = got.index(Attempt(2))
    assert "Hello there".startswith(text_of(got[:place]))
    assert (text_of(got[place:]), got[-1], len(sandbox.requests)) == ("Hello there", Done(), 2)
    answer = Answer()
    for delta in got:
        answer.add(delta)
    assert answer.message().text == "Hello there"


async def test_a_busy_server_is_asked_again_unseen(session: aiohttp.ClientSession) -> None:
    sandbox = Failing(Fault("status", status=503), Fault("status", status=429))
    async with sandbox as base_url:
        got = [delta async for delta in iterate(hello(session, base_url).pipe(attempts(backoff=FAST)))]
    assert (text_of(got), len(sandbox.requests)) == ("Hello there", 3)
    assert not any(isinstance(delta, Attempt) for delta in got)


async def test_a_refused_request_is_not(session: aiohttp.ClientSession) -> None:
    sandbox = Failing(Fault("status", status=401))
    async with sandbox as base_url:
        with pytest.raises(HttpStatusError):
            [delta async for delta in iterate(hello(session, base_url).pipe(attempts(backoff=FAST)))]
    assert len(sandbox.requests) == 1


async def test_the_window_slows_each_attempt(session: aiohttp.ClientSession) -> None:
    window = ByteWindow()
    sandbox = Failing(Fault("cut", after=500), Fault("cut", after=500))
    async with sandbox as base_url:
        source = bytes_from(session, "POST", base_url + "/chat/completions", json={}).pipe(attempts(backoff=FAST))
        read = sum([len(chunk) async for chunk in iterate(source, window=window) if isinstance(chunk, bytes)])
    assert len(sandbox.requests) == 3
    assert window.read == read


async def test_leaving_while_it_waits_leaves_nothing(session: aiohttp.ClientSession) -> None:
    sandbox = Failing(Fault("cut", after=500))
    async with sandbox as base_url:
        flow = iterate(hello(session, base_url).pipe(attempts(backoff=Backoff(first=60))))
        first = await anext(flow)
        assert isinstance(first, TextDelta)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                while True:
                    await anext(flow)
        await flow.aclose()
    assert len(sandbox.requests) == 1


async def test_nobody_there_fails_in_the_end(session: aiohttp.ClientSession) -> None:
    errors: list[Exception] = []
    over = asyncio.Event()

    def fail(error: Exception) -> None:
        errors.append(error)
        over.set()

    hello(session, "http://127.0.0.1:1/v1").pipe(attempts(backoff=FAST)).subscribe(on_error=fail)
    await asyncio.wait_for(over.wait(), 5)
    assert [type(error) for error in errors] == [TransportError]
    assert isinstance(errors[0], StreamError)
    assert errors[0].retry_safe


async def test_a_source_of_another_thread_is_tried_again_on_the_loop(eventually: Eventually) -> None:
    subjects = [Subject[str](), Subject[str]()]
    turns = iter(subjects)
    got: list[Any] = []
    source = reactivex.defer(lambda _: next(turns))
    subscription = source.pipe(attempts(backoff=FAST)).subscribe(got.append)
    await asyncio.to_thread(subjects[0].on_next, "a")
    await asyncio.to_thread(subjects[0].on_error, cut())
    await eventually(lambda: subjects[1].observers)
    subjects[1].on_next("b")
    assert got == ["a", Attempt(2), "b"]
    subscription.dispose()
    assert not subjects[1].observers
