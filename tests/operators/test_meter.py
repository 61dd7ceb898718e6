"""Meters: each stream has its own counts, and whoever is downstream has the sum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import reactivex
from reactivex import Observable, Subject
from reactivex import operators as ops

from rillet.operators import (
    Done,
    TextDelta,
    WireProtocol,
    assemble_tools,
    decode_deltas,
    decode_utf8,
    group_events,
    require_done,
    split_lines,
)
from rillet.operators.meter import Meter, current_meter, metering
from rillet.pipeline import deltas
from rillet.pipeline.protocols import OPENAI_CHAT

STREAM = (
    b": ping\n\n"
    b'data: {"choices":[{"index":0,"delta":{"role":"assistant"}}]}\n\n'
    b'data: {"choices":[{"index":0,"delta":{"content":"Hi"}}]}\n\n'
    b": ping\n: ping\n\n"
    b'data: {"choices":[{"index":0,"delta":{"content":"!"},"finish_reason":"stop"}]}\n\n'
    b"data: [DONE]\n\n"
)


def joined(source: Any) -> Any:
    return source.pipe(
        decode_utf8(), split_lines(), group_events(), decode_deltas(OPENAI_CHAT), assemble_tools(), require_done()
    )


def apart(source: Any) -> Any:
    foreign: Any = ops.map(lambda item: item)
    return source.pipe(
        decode_utf8(), foreign, split_lines(), foreign, group_events(), foreign, decode_deltas(OPENAI_CHAT), foreign
    )


@pytest.mark.parametrize("chain", [lambda source: deltas(source, "openai-chat"), joined, apart])
def test_deltas_and_heartbeats_are_counted_however_the_bytes_are_cut(
    chain: Callable[[Any], Any], cuts: Callable[[bytes], Any]
) -> None:
    for chunks in cuts(STREAM):
        meter = Meter()
        with metering(meter):
            chain(reactivex.from_iterable(chunks)).subscribe()
        assert (meter.deltas, meter.heartbeats, meter.reads_deltas) == (4, 4, True)


def test_each_subscription_has_a_meter_of_its_own_and_shares_it_upstream() -> None:
    meters: list[Meter | None] = []

    def note(_: Any) -> Any:
        meters.append(current_meter())
        return reactivex.from_iterable([STREAM])

    observable = joined(reactivex.defer(note))
    observable.subscribe()
    observable.subscribe()
    first, second = meters
    assert first is not None
    assert second is not None
    assert (first is second, first.deltas, second.deltas) == (False, 4, 4)
    assert current_meter() is None


def test_without_a_stage_that_decodes_nobody_expects_deltas() -> None:
    meter = Meter()
    with metering(meter):
        reactivex.from_iterable([STREAM]).pipe(decode_utf8(), split_lines(), group_events()).subscribe()
    assert (meter.reads_deltas, meter.deltas, meter.heartbeats) == (False, 0, 3)


@pytest.mark.parametrize("extras", [False, True])
def test_an_event_that_only_says_that_the_stream_is_alive_is_a_heartbeat_though_it_is_shown(extras: bool) -> None:
    meter = Meter()
    payloads = ('{"type":"ping"}', '{"type":"text","delta":"a"}', '{"type":"ping"}', "[DONE]")
    chunk = "".join(f"data: {payload}\n\n" for payload in payloads).encode()
    with metering(meter):
        deltas(reactivex.just(chunk), "plain", extras=extras).subscribe()
    assert (meter.deltas, meter.heartbeats, meter.is_done) == (2, 2, True)


class Words:
    """A dialect of words; "-" says nothing, "." is the last, and the clean end is one too."""

    def __init__(self, extras: bool) -> None:
        del extras

    def decode(self, event: Any) -> Any:
        if event.data == ".":
            yield Done()
        elif event.data != "-":
            yield TextDelta(event.data)

    def finish(self) -> Any:
        yield Done()


WORDS = WireProtocol("words", Words)


class Source(Subject[str]):
    """Lines, from a source that takes the meter it is offered."""

    meter: Meter | None = None

    def _subscribe_core(self, observer: Any, scheduler: Any = None) -> Any:
        self.meter = current_meter()
        return super()._subscribe_core(observer, scheduler)


def decoded(source: Observable[str]) -> Observable[Any]:
    return source.pipe(group_events(), decode_deltas(WORDS))


def subscribed(observable: Observable[Any]) -> Meter:
    meter = Meter()
    with metering(meter):
        observable.subscribe(on_error=lambda _: None)
    return meter


def test_deltas_heartbeats_and_done_are_counted_as_they_come() -> None:
    source = Source()
    meter = subscribed(decoded(source))
    assert (meter.reads_deltas, meter.feeds_decoder) == (True, False)
    for line in ("data: a", "", ": ping", "data: -", "", "data: b", ""):
        source.on_next(line)
    assert (meter.deltas, meter.heartbeats, meter.is_done) == (2, 2, False)
    for line in ("data: .", ""):
        source.on_next(line)
    assert (meter.deltas, meter.is_done) == (3, True)


def test_a_done_that_the_clean_end_gives_is_counted_too() -> None:
    source = Source()
    meter = subscribed(decoded(source))
    source.on_completed()
    assert (meter.deltas, meter.is_done) == (1, True)


def test_the_source_counts_for_its_stream_and_for_whoever_is_downstream() -> None:
    source = Source()
    meter = subscribed(decoded(source))
    assert source.meter is not None
    assert source.meter is not meter
    assert source.meter.feeds_decoder
    source.meter.add_bytes(7)
    source.meter.add_stalls(1)
    assert (source.meter.bytes_read, source.meter.stalls) == (meter.bytes_read, meter.stalls) == (7, 1)


def test_streams_that_are_joined_share_no_meter_whatever_stands_downstream() -> None:
    first, second = Source(), Source()
    meter = subscribed(reactivex.combine_latest(decoded(first), decoded(second)).pipe(assemble_tools()))
    assert first.meter is not None
    assert second.meter is not None
    for line in ("data: a", ""):
        first.on_next(line)
    assert (first.meter.deltas, second.meter.deltas, meter.deltas) == (1, 0, 1)


def test_a_chain_that_decodes_nothing_offers_nothing_of_its_own() -> None:
    source = Source()
    source.pipe(group_events()).subscribe()
    assert source.meter is None
    meter = subscribed(source.pipe(group_events()))
    assert source.meter is meter


def test_stages_apart_count_on_the_meter_of_the_decoder() -> None:
    source = Source()
    source.pipe(group_events(), ops.map(lambda event: event), decode_deltas(WORDS)).subscribe()
    assert source.meter is not None
    assert source.meter.feeds_decoder
    source.on_next(": ping")
    assert source.meter.heartbeats == 1


def test_the_first_byte_is_timed_once_and_only_where_there_is_a_clock() -> None:
    times = iter([1.0, 2.0])
    meter = Meter()
    meter.add_bytes(1)
    assert meter.first_byte is None
    timed = Meter(meter)
    timed.clock = lambda: next(times)
    timed.add_bytes(1)
    timed.add_bytes(1)
    assert (timed.first_byte, timed.bytes_read, meter.bytes_read) == (1.0, 2, 3)
