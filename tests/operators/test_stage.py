from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
import reactivex
from reactivex import Observable, Subject
from reactivex import operators as ops

from rillet.operators import (
    BatchStage,
    Chain,
    Stage,
    StreamPosition,
    decode_utf8,
    decompress,
    group_events,
    lift,
    split_frames,
    split_json_lines,
    split_lines,
)

Run = Callable[..., tuple[list[Any], Any]]


class Fault(Exception):
    """What a stage of these tests raises."""


class Split(Stage[str, str]):
    """One text in, its words out; `!` is a fault, and `.` ends it."""

    def __init__(self, log: list[str] | None = None) -> None:
        self.log = [] if log is None else log

    def feed(self, batch: Iterable[str]) -> Iterator[str]:
        for text in batch:
            for word in text.split():
                if word == "!":
                    raise Fault
                if word == ".":
                    self.closed = True
                    return
                self.log.append(f"split {word}")
                yield word

    def finish(self) -> Iterator[str]:
        yield "end"


class Shout(Stage[str, str]):
    """Each word in capitals, doubled."""

    def __init__(self, log: list[str] | None = None) -> None:
        self.log = [] if log is None else log
        self.batches = 0

    def feed(self, batch: Iterable[str]) -> Iterator[str]:
        self.batches += 1
        for word in batch:
            self.log.append(f"shout {word}")
            yield word.upper()
            yield word.upper()

    def finish(self) -> Iterator[str]:
        yield "FINISHED"


class Rescue(Stage[str, str]):
    """Makes an item of a fault."""

    def feed(self, batch: Iterable[str]) -> Iterator[str]:
        yield from batch

    def fail(self, error: Exception) -> Iterator[str]:
        yield f"rescued {type(error).__name__}"


class First(Stage[str, str]):
    """Wants one item."""

    def feed(self, batch: Iterable[str]) -> Iterator[str]:
        for item in batch:
            self.closed = True
            yield item
            return

    def finish(self) -> Iterator[str]:
        raise Fault


def drained(items: Iterator[str]) -> tuple[list[str], type[Exception] | None]:
    taken: list[str] = []
    try:
        taken.extend(items)
    except Fault as fault:
        return taken, type(fault)
    return taken, None


# Chain


def test_a_chain_hands_each_item_through_before_the_next() -> None:
    log: list[str] = []
    assert list(Chain[str, str](Split(log), Shout(log)).feed(["a", "b"])) == ["A", "A", "B", "B"]
    assert log == ["split a", "shout a", "split b", "shout b"]


def test_a_chain_pulls_no_more_than_is_taken() -> None:
    log: list[str] = []
    assert next(Chain[str, str](Split(log), Shout(log)).feed(["a", "b"])) == "A"
    assert log == ["split a", "shout a"]


def test_what_came_before_a_fault_comes_first() -> None:
    assert drained(Chain[str, str](Split(), Shout()).feed(["a", "b ! c"])) == (["A", "A", "B", "B"], Fault)


def test_what_a_finish_gives_goes_through_the_stages_after_it() -> None:
    assert list(Chain[str, str](Split(), Shout()).finish()) == ["END", "END", "FINISHED"]


def test_a_failure_goes_through_every_stage_and_out() -> None:
    assert drained(Chain[str, str](Split(), Shout()).fail(Fault())) == ([], Fault)


def test_a_stage_may_make_something_of_a_failure_before_it() -> None:
    chain = Chain[str, str](Split(), Rescue(), Shout())
    assert list(chain.feed(["a ! b"])) == ["A", "A", "RESCUED FAULT", "RESCUED FAULT"]
    assert list(chain.fail(OSError())) == ["RESCUED OSERROR", "RESCUED OSERROR", "FINISHED"]


def test_a_stage_makes_nothing_of_a_failure_after_it() -> None:
    assert drained(Chain[str, str](Rescue(), Split()).feed(["a !"])) == (["a"], Fault)


def test_a_chain_is_closed_with_any_of_its_stages() -> None:
    chain = Chain[str, str](Split(), First(), Shout())
    assert not chain.closed
    assert list(chain.feed(["a b", "c"])) == ["A", "A"]
    assert chain.closed


def test_only_the_stages_after_a_closed_one_are_finished() -> None:
    chain = Chain[str, str](Split(), First(), Shout())
    list(chain.feed(["a"]))
    assert list(chain.finish()) == ["FINISHED"]


def test_chains_nest() -> None:
    chain = Chain[str, str](Split(), Chain(First(), Shout()))
    assert list(chain.feed(["a b"])) == ["A", "A"]
    assert chain.closed
    assert list(chain.finish()) == ["FINISHED"]


def test_an_empty_chain_changes_nothing() -> None:
    chain = Chain[str, str]()
    assert list(chain.feed(["a"])) == ["a"]
    assert list(chain.finish()) == []
    assert not chain.closed


# lift


def test_stages_are_made_on_subscription_and_never_on_assembly() -> None:
    made: list[Split] = []

    def make() -> Split:
        made.append(Split())
        return made[-1]

    observable = reactivex.of("a").pipe(lift(make))
    assert made == []
    observable.subscribe()
    observable.subscribe()
    assert len(made) == 2


def test_neighbours_run_as_one_chain_in_one_subscription() -> None:
    second = Shout()
    reactivex.of("a b c", "d").pipe(lift(Split), lift(lambda: second)).subscribe()
    assert second.batches == 3  # two batches and the end, though there were four words


def test_a_foreign_operator_between_them_changes_nothing(run: Run) -> None:
    joined = reactivex.compose(lift(Split), lift(Shout))
    apart = reactivex.compose(lift(Split), ops.map(lambda item: item), lift(Shout))
    assert run(joined, ["a b", "c"]) == run(apart, ["a b", "c"])


def test_one_observable_may_go_two_ways(run: Run) -> None:
    words = reactivex.of("a b").pipe(lift(Split))
    assert run(lambda _: words.pipe(lift(First), lift(Shout)), []) == (["A", "A", "FINISHED"], None)
    assert run(lambda _: words, []) == (["a", "b", "end"], None)


def test_a_fault_ends_in_on_error_after_what_came_before(run: Run) -> None:
    items, error = run(reactivex.compose(lift(Split), lift(Shout)), ["a", "b ! c", "d"])
    assert (items, type(error)) == (["A", "A", "B", "B"], Fault)


def test_a_failure_of_the_source_may_be_rescued(run: Run) -> None:
    broken = reactivex.concat(reactivex.of("a"), reactivex.throw(Fault()))
    assert run(lambda _: broken.pipe(lift(Rescue)), []) == (["a", "rescued Fault"], None)


def test_a_fault_at_the_end_ends_in_on_error(run: Run) -> None:
    items, error = run(lift(First), [])
    assert (items, type(error)) == ([], Fault)


@pytest.mark.parametrize(
    "closing",
    [
        pytest.param(lift(First), id="alone"),
        pytest.param(reactivex.compose(lift(Rescue), lift(First)), id="last in a chain"),
        pytest.param(reactivex.compose(lift(First), lift(Rescue)), id="first in a chain"),
    ],
)
def test_a_stage_that_closes_disposes_the_source_then_completes(closing: Any) -> None:
    source: Subject[str] = Subject()
    seen: list[object] = []
    source.pipe(closing).subscribe(
        seen.append, seen.append, lambda: seen.append(f"completed, {len(source.observers)} observers left")
    )
    source.on_next("a")
    source.on_next("b")
    assert seen == ["a", "completed, 0 observers left"]


def test_a_source_that_pushes_on_is_not_heard_once_a_stage_closed() -> None:
    def subscribe(observer: Any, scheduler: Any = None) -> None:
        for text in ("a", "b", "!"):
            observer.on_next(text)
        observer.on_error(Fault())

    seen: list[str] = []
    pushes: Observable[str] = Observable(subscribe)  # type: ignore[arg-type]
    pushes.pipe(lift(First)).subscribe(seen.append, lambda error: seen.append("error"), lambda: seen.append("done"))
    assert seen == ["a", "done"]


def test_an_exception_that_is_no_error_flies_through_to_the_producer() -> None:
    source: Subject[str] = Subject()
    seen: list[object] = []

    def interrupted(item: str) -> None:
        raise KeyboardInterrupt

    source.pipe(lift(Split)).subscribe(interrupted, seen.append, lambda: seen.append("completed"))
    with pytest.raises(KeyboardInterrupt):
        source.on_next("a")
    assert seen == []


def test_a_stage_that_does_not_feed_cannot_be_made() -> None:
    with pytest.raises(TypeError):
        Stage()  # type: ignore[abstract]


def test_a_position_never_runs_ahead_of_what_was_handed_on() -> None:
    position, bytes_of, subject = StreamPosition(), b"id: 1\ndata: a\n\nid: 2\ndata: b\n\n", Subject[bytes]()
    events: list[str] = []
    subject.pipe(decode_utf8(), split_lines(), group_events(position=position), ops.take(1)).subscribe(
        lambda event: events.append(event.data)
    )
    subject.on_next(bytes_of)
    assert (events, position.last_event_id) == (["a"], "1")


class Careless(BatchStage[int, int]):
    """Raises out of `take`, where it should have given the fault."""

    def take(self, batch: Any) -> Any:
        raise ZeroDivisionError


@pytest.mark.parametrize("others", [(), (Shout,)])
def test_a_stage_that_raises_out_of_take_fails_the_stream_too(others: Any) -> None:
    subject, failed = Subject[int](), []
    subject.pipe(lift(Careless), *(lift(other) for other in others)).subscribe(on_error=failed.append)
    subject.on_next(1)
    assert [type(error) for error in failed] == [ZeroDivisionError]
    assert not subject.observers


@pytest.mark.parametrize(
    ("operators", "item", "says"),
    [
        ([split_lines()], b"x", "got bytes where str is wanted: put decode_utf8() before it"),
        ([group_events()], b"data: x", "got bytes where str is wanted: put decode_utf8() before it"),
        ([split_json_lines()], bytearray(b"{}"), "got bytearray where str is wanted: put decode_utf8() before it"),
        ([decode_utf8()], "x", "got str where bytes are wanted: what is text already needs no decode_utf8()"),
        ([decode_utf8(), split_lines(), group_events()], "x", "got str where bytes are wanted: what is text"),
        ([split_frames()], "x", "got str where bytes are wanted: what is text"),
        ([decompress("gzip")], "x", "got str where bytes are wanted: what is text"),
    ],
)
def test_text_for_bytes_and_bytes_for_text_are_told(operators: list[Any], item: object, says: str) -> None:
    heard: list[Any] = []
    reactivex.of(item).pipe(*operators).subscribe(heard.append, heard.append)
    (error,) = heard
    assert type(error) is TypeError
    assert str(error).startswith(says)
