"""Stages that are joined, where there is a shorter way through them, give what they give one by one."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import reactivex
from reactivex import operators as ops

from rillet.operators import (
    Chain,
    Delta,
    Done,
    ServerSentEvent,
    Stage,
    StreamPosition,
    TextDelta,
    assemble_tools,
    decode_deltas,
    decode_utf8,
    group_events,
    require_done,
    split_lines,
)
from rillet.operators.decode_deltas import DecodeDeltas
from rillet.operators.decode_utf8 import DecodeUtf8
from rillet.operators.errors import InvalidUtf8, LimitExceeded, TruncatedStream
from rillet.operators.frame_sse import FrameSse
from rillet.operators.group_events import GroupEvents
from rillet.operators.shorten import shortened
from rillet.operators.skim_sse import SkimSse
from rillet.operators.split_lines import SplitLines
from rillet.operators.stage import collected
from rillet.pipeline.protocols import PROTOCOLS

Cuts = Callable[[bytes], Iterator[list[bytes]]]
Run = Callable[..., tuple[list[Any], Any]]

CHAT = PROTOCOLS["openai-chat"]
EVENT = 'data: {"choices":[{"index":0,"delta":{"content":"%s"},"finish_reason":%s}]}\n\n'
WHOLE = "".join(
    (*(EVENT % (text, "null") for text in ("", "a", "b", "é", "\\n", "c")), EVENT % ("", '"stop"'), "data: [DONE]\n\n")
).encode()
SAID = "abé\nc"


def framing(position: StreamPosition | None = None) -> list[Stage[Any, Any]]:
    return [DecodeUtf8(), SplitLines(), GroupEvents(ServerSentEvent, position=position)]


def kinds(stages: list[Stage[Any, Any]]) -> list[type]:
    return [type(stage) for stage in shortened(stages)]


def test_what_stands_in_a_row_is_joined() -> None:
    assert kinds(framing()) == [FrameSse]
    assert kinds([*framing(), DecodeDeltas(CHAT)]) == [SkimSse]
    assert kinds([DecodeUtf8(), *framing()]) == [DecodeUtf8, FrameSse]


@pytest.mark.parametrize(
    "stages",
    [
        [],
        [DecodeUtf8(), SplitLines()],
        [SplitLines(), GroupEvents(ServerSentEvent)],
        [GroupEvents(ServerSentEvent), DecodeDeltas(CHAT)],
        framing(StreamPosition()),
    ],
)
def test_anything_else_is_left_as_it_is(stages: list[Stage[Any, Any]]) -> None:
    assert shortened(stages) == stages


def test_a_dialect_without_a_template_is_not_skimmed() -> None:
    decode = DecodeDeltas(PROTOCOLS["bedrock-converse"])
    assert kinds([*framing(), decode]) == [FrameSse, DecodeDeltas]


def test_the_six_operators_give_what_the_stages_give_one_by_one(cuts: Cuts, run: Run) -> None:
    six = (decode_utf8(), split_lines(), group_events(), decode_deltas(CHAT), assemble_tools(), require_done())
    for pieces in cuts(WHOLE):
        one_by_one, fault = collected(lambda: flow(pieces))  # noqa: B023 - it is over before the next
        assert fault is None
        items, end = run(reactivex.compose(*six), pieces)
        assert (items, end) == (one_by_one, None)
        assert "".join(delta.text for delta in items if isinstance(delta, TextDelta)) == SAID
        assert items[-1] == Done()


def flow(pieces: list[bytes]) -> Iterator[Delta]:
    chain = Chain[bytes, Delta](*framing(), DecodeDeltas(CHAT))
    yield from chain.feed(pieces)
    yield from chain.finish()


@pytest.mark.parametrize(
    ("wire", "limits", "fault"),
    [
        (WHOLE[:-20], {}, TruncatedStream),
        (WHOLE.replace(b"c", b"\xff"), {}, InvalidUtf8),
        (WHOLE, {"max_event": 60}, LimitExceeded),
        (WHOLE.replace(b'"b"', b'"' + b"b" * 200 + b'"'), {"max_event": 200}, LimitExceeded),
    ],
)
def test_the_faults_are_the_same_too(
    wire: bytes, limits: dict[str, Any], fault: type[Exception], cuts: Cuts, run: Run
) -> None:
    six = (decode_utf8(), split_lines(), group_events(**limits), decode_deltas(CHAT), assemble_tools(), require_done())
    apart = [operator for one in six for operator in (one, ops.map(lambda item: item))]  # nothing stands in a row
    for pieces in cuts(wire):
        items, end = run(reactivex.compose(*six), pieces)
        plain_items, plain_end = run(reactivex.compose(*apart), pieces)
        assert (items, str(end)) == (plain_items, str(plain_end))
        assert type(end) is fault


def test_each_subscription_has_its_own() -> None:
    source = reactivex.from_iterable([WHOLE[n : n + 50] for n in range(0, len(WHOLE), 50)])
    deltas = source.pipe(decode_utf8(), split_lines(), group_events(), decode_deltas(CHAT))
    for _ in range(2):
        items: list[Delta] = []
        deltas.subscribe(items.append)
        assert "".join(delta.text for delta in items if isinstance(delta, TextDelta)) == SAID


@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_subscriber_that_leaves_hears_no_more(count: int) -> None:
    items: list[Delta] = []
    deltas = reactivex.of(WHOLE, WHOLE).pipe(decode_utf8(), split_lines(), group_events(), decode_deltas(CHAT))
    deltas.pipe(ops.take(count)).subscribe(items.append)
    assert len(items) == count


def test_streams_that_take_turns_do_not_mix() -> None:
    dice = random.Random(7)
    texts = [["a" * n for n in range(1, 20)], ["b" * n for n in range(1, 20)]]
    wires = [[(EVENT % (text, "null")).encode() for text in said] for said in texts]
    heard: list[list[str]] = [[], []]
    subjects = [reactivex.Subject[bytes]() for _ in wires]
    for subject, into in zip(subjects, heard, strict=True):
        deltas = subject.pipe(decode_utf8(), split_lines(), group_events(), decode_deltas(CHAT))
        deltas.subscribe(lambda delta, into=into: into.append(delta.text))
    while any(wires):
        n = dice.randrange(2)
        if wires[n]:
            subjects[n].on_next(wires[n].pop(0))
    assert heard == texts
