"""`measure`: what it tells of a stream, and that it tells it once, over real sockets and without words."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing, suppress
from time import perf_counter
from typing import Any

import aiohttp
import pytest
import reactivex
from reactivex import Observable, Subject
from reactivex import operators as ops

from rillet.operators import (
    ByteWindow,
    Done,
    Finish,
    TextDelta,
    Usage,
    decode_deltas,
    decode_utf8,
    group_events,
    require_done,
    split_lines,
)
from rillet.operators.errors import StreamError, TruncatedStream
from rillet.pipeline import StreamStats, Timeouts, ask, bytes_from, deltas, iterate, measure
from rillet.pipeline.protocols import OPENAI_CHAT
from rillet.pipeline.sandbox import Fault, Sandbox, Script, ScriptedCall, Wire

Eventually = Callable[[Callable[[], object]], Awaitable[None]]
Operator = Callable[[Observable[Any]], Observable[Any]]
SCRIPT = Script("Some words of an answer.", calls=(ScriptedCall("look", {"a": 1}),), usage=(5, 7))
ANSWER = [TextDelta("a"), Finish("length", "length", 1), Finish("stop", "stop"), Usage(3, None, None, {}), Done()]


FRAMING: list[Operator] = [decode_utf8(), split_lines(), group_events()]


def ticking() -> Callable[[], float]:
    """A clock that is a second later each time it is asked, from 100 on."""
    times: Iterator[int] = iter(range(100, 1000))
    return lambda: float(next(times))


def stats_of(source: Observable[Any], *operators: Operator, clock: Callable[[], float] = perf_counter) -> StreamStats:
    told: list[StreamStats] = []
    source.pipe(*operators, measure(told.append, clock=clock)).subscribe(on_error=lambda _: None)
    (stats,) = told
    return stats


def test_a_stream_of_deltas_is_told_of_without_its_words() -> None:
    assert stats_of(reactivex.from_iterable(ANSWER), clock=ticking()) == StreamStats(
        outcome="complete",
        error_kind=None,
        started=100.0,
        duration=2.0,
        first_byte=None,
        first_delta=1.0,
        deltas=5,
        heartbeats=0,
        bytes=0,
        stalls=0,
        input_tokens=3,
        output_tokens=None,
        finish_reasons=("stop", "length"),
    )


@pytest.mark.parametrize(
    ("source", "outcome", "kind"),
    [
        (reactivex.empty(), "complete", None),
        (reactivex.throw(TruncatedStream("cut")), "truncated", "truncated_stream"),
        (reactivex.throw(StreamError("bad")), "failed", "stream_error"),
        (reactivex.throw(KeyError("secret")), "failed", "KeyError"),
        (reactivex.concat(reactivex.just(Done()), reactivex.throw(KeyError("late"))), "complete", None),
    ],
)
def test_the_outcomes(source: Observable[Any], outcome: str, kind: str | None) -> None:
    stats = stats_of(source)
    assert (stats.outcome, stats.error_kind) == (outcome, kind)


def sse(*payloads: str) -> Observable[bytes]:
    return reactivex.from_iterable([f"data: {payload}\n\n".encode() for payload in payloads])


WORD = '{"choices":[{"index":0,"delta":{"content":"Hi"}}]}'


def test_a_stream_that_ends_without_done_is_truncated_even_where_nobody_demands_it() -> None:
    stats = stats_of(sse(WORD), *FRAMING, decode_deltas(OPENAI_CHAT))
    assert (stats.outcome, stats.error_kind, stats.deltas) == ("truncated", "truncated_stream", 1)


def test_a_done_that_a_filter_keeps_from_it_counts() -> None:
    only_text: Operator = ops.filter(lambda delta: isinstance(delta, TextDelta))
    stats = stats_of(sse(WORD, "[DONE]"), *FRAMING, decode_deltas(OPENAI_CHAT), only_text)
    assert (stats.outcome, stats.deltas) == ("complete", 2)


def test_before_the_decoder_it_tells_of_the_same_stream() -> None:
    told: list[StreamStats] = []
    for payloads in ((WORD, "[DONE]", WORD), (WORD,)):
        source = sse(*payloads).pipe(measure(told.append))
        deltas(source, "openai-chat").subscribe(on_error=lambda _: None)
    assert [(stats.outcome, stats.deltas) for stats in told] == [("complete", 2), ("complete", 1)]


def test_done_and_then_leaving_is_complete_and_leaving_before_is_cancelled() -> None:
    told: list[StreamStats] = []
    source: Subject[Any] = Subject()
    source.pipe(measure(told.append), require_done()).subscribe()
    source.on_next(TextDelta("a"))
    source.on_next(Done())
    source.pipe(measure(told.append), ops.take(1)).subscribe()
    source.on_next(TextDelta("a"))
    assert [stats.outcome for stats in told] == ["complete", "cancelled"]
    assert not source.observers


def test_leaving_from_another_thread_is_told_of_there_once() -> None:
    told: list[tuple[StreamStats, int]] = []
    source: Subject[Any] = Subject()
    subscription = source.pipe(measure(lambda stats: told.append((stats, threading.get_ident())))).subscribe()
    thread = threading.Thread(target=subscription.dispose)
    thread.start()
    thread.join()
    subscription.dispose()
    source.on_completed()
    ((stats, ident),) = told
    assert (stats.outcome, ident) == ("cancelled", thread.ident)


def test_an_exception_of_the_subscriber_is_named_by_its_class() -> None:
    told: list[StreamStats] = []

    def fail(_: object) -> None:
        raise KeyError("secret")

    sse(WORD, "[DONE]").pipe(lambda source: deltas(source, "openai-chat"), measure(told.append)).subscribe(
        fail, lambda _: None
    )
    assert [(stats.outcome, stats.error_kind) for stats in told] == [("failed", "KeyError")]


async def consume(observable: Observable[Any], upto: int | None = None) -> None:
    """Take all of it, or so many items, whatever it fails with."""
    with suppress(StreamError):
        async with aclosing(iterate(observable)) as flow:
            seen = 0
            async for _ in flow:
                seen += 1
                if seen == upto:
                    return


def asked(session: aiohttp.ClientSession, base_url: str) -> Observable[Any]:
    return ask(session, "hi", provider="openai", base_url=base_url)


async def test_over_a_socket_everything_is_known(session: aiohttp.ClientSession) -> None:
    told: list[StreamStats] = []
    sandbox = Sandbox(SCRIPT, Wire(comments=1))
    async with sandbox as base_url:
        await consume(asked(session, base_url).pipe(measure(told.append)))
    (stats,) = told
    assert (stats.outcome, stats.input_tokens, stats.output_tokens) == ("complete", 5, 7)
    assert stats.finish_reasons == ("tool_calls",)
    assert (stats.bytes, stats.stalls) == (sandbox.requests[0].sent, 0)
    assert stats.heartbeats >= stats.deltas > 5
    assert stats.first_byte is not None
    assert stats.first_delta is not None
    assert 0 < stats.first_byte <= stats.first_delta <= stats.duration


@pytest.mark.parametrize(
    ("fault", "outcome", "kind"),
    [
        ("cut", "truncated", "truncated_stream"),
        ("end", "truncated", "truncated_stream"),
        ("reset", "truncated", "truncated_stream"),
        ("error", "failed", "provider_error"),
        ("stall", "failed", "idle_timeout"),
        ("status", "failed", "http_status_error"),
        ("html", "failed", "not_an_event_stream"),
    ],
)
async def test_every_fault_has_its_outcome(session: aiohttp.ClientSession, fault: Any, outcome: str, kind: str) -> None:
    told: list[StreamStats] = []
    async with Sandbox(SCRIPT, fault=Fault(fault, after=900)) as base_url:
        answer = ask(session, "hi", provider="openai", base_url=base_url, timeouts=Timeouts(liveness=0.05))
        await consume(answer.pipe(measure(told.append)))
    (stats,) = told
    assert (stats.outcome, stats.error_kind) == (outcome, kind)
    has_body = fault not in ("status", "html")
    assert (stats.bytes > 0, stats.first_byte is not None) == (has_body, has_body)


async def test_a_slow_consumer_shows_in_the_stalls(session: aiohttp.ClientSession, eventually: Eventually) -> None:
    told: list[StreamStats] = []
    window = ByteWindow(4_096)
    async with Sandbox(Script("word " * 2_000)) as base_url:
        answer = asked(session, base_url).pipe(measure(told.append))
        async with aclosing(iterate(answer, window=window)) as flow:
            async for _ in flow:
                await eventually(lambda: window.stalls)
    assert told[0].stalls == window.stalls > 0


async def test_each_attempt_of_a_retry_after_it_is_a_stream_of_its_own(session: aiohttp.ClientSession) -> None:
    told: list[StreamStats] = []
    async with Sandbox(SCRIPT, fault=Fault("end", after=900)) as base_url:
        await consume(asked(session, base_url).pipe(measure(told.append), ops.retry(3)))
    assert [(stats.outcome, stats.bytes) for stats in told] == [("truncated", 900)] * 3


async def test_a_retry_before_it_is_one_stream(session: aiohttp.ClientSession) -> None:
    told: list[StreamStats] = []
    async with Sandbox(SCRIPT, fault=Fault("end", after=900)) as base_url:
        await consume(asked(session, base_url).pipe(ops.retry(3), measure(told.append)))
    (stats,) = told
    assert (stats.outcome, stats.deltas % 3) == ("truncated", 0)


async def test_streams_that_are_joined_are_told_apart_and_their_sum_is_right(session: aiohttp.ClientSession) -> None:
    told: list[StreamStats] = []
    total: list[StreamStats] = []
    sandbox = Sandbox(SCRIPT, Wire(delay=0.001))
    async with sandbox as base_url:
        one, other = asked(session, base_url), asked(session, base_url)
        joined = reactivex.combine_latest(other, one.pipe(measure(told.append)), one.pipe(measure(told.append)))
        await consume(joined.pipe(measure(total.append)))
    each = sandbox.requests[0].sent
    assert [(stats.outcome, stats.bytes) for stats in told] == [("complete", each)] * 2
    assert (total[0].bytes, total[0].deltas) == (3 * each, 3 * told[0].deltas)


async def test_a_stream_asked_for_from_inside_another_is_its_own(session: aiohttp.ClientSession) -> None:
    outer: list[StreamStats] = []
    inner: list[StreamStats] = []
    sandbox = Sandbox(SCRIPT)
    async with sandbox as base_url:
        again: Operator = ops.flat_map(
            lambda delta: (
                asked(session, base_url).pipe(measure(inner.append))
                if isinstance(delta, Done)
                else reactivex.just(delta)
            )
        )
        await consume(asked(session, base_url).pipe(measure(outer.append), again))
    first, second = (request.sent for request in sandbox.requests)
    assert ([stats.bytes for stats in outer], [stats.bytes for stats in inner]) == ([first], [second])


async def test_the_consumer_that_breaks_off_has_cancelled(session: aiohttp.ClientSession) -> None:
    told: list[StreamStats] = []
    async with Sandbox(SCRIPT, fault=Fault("stall", after=900)) as base_url:
        await consume(asked(session, base_url).pipe(measure(told.append)), upto=1)
    assert [stats.outcome for stats in told] == ["cancelled"]


async def test_no_word_of_the_answer_is_in_what_is_told(session: aiohttp.ClientSession) -> None:
    told: list[StreamStats] = []
    async with Sandbox(Script("SECRET", calls=(ScriptedCall("SECRET", {"SECRET": "SECRET"}),))) as base_url:
        source = bytes_from(session, "POST", base_url + "/chat/completions", json={"stream": True})
        await consume(deltas(source, "openai-chat").pipe(measure(told.append)))
    assert "SECRET" not in repr(told)
