from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import reactivex
from reactivex import operators as ops

from rillet.operators import Meter, assemble_tools, decode_deltas, decode_utf8, group_events, require_done, split_lines
from rillet.operators.meter import current_meter, metering
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
