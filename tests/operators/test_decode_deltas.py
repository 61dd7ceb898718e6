from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import reactivex

from rillet.operators import (
    Delta,
    Done,
    ProviderEvent,
    ServerSentEvent,
    TextDelta,
    WireEvent,
    WireProtocol,
    decode_deltas,
)
from rillet.operators.errors import MalformedPayload, ProviderError
from rillet.pipeline import StreamAssembler

Run = Callable[..., tuple[list[Any], Any]]


class Words:
    """A dialect for these tests: an event is some words, `end` is the last, and a clean end after `bye` counts too."""

    def __init__(self, extras: bool) -> None:
        self._extras = extras
        self._last = ""

    def decode(self, event: WireEvent, /) -> Iterator[Delta]:
        for word in event.data.split():
            self._last = word
            if word == "end":
                yield Done()
            elif word in FAULTS:
                FAULTS[word]()
            elif self._extras:
                yield ProviderEvent("word", word)
            else:
                yield TextDelta(word)

    def finish(self) -> Iterator[Delta]:
        if self._last == "bye":
            yield Done()


def refuse() -> None:
    raise MalformedPayload("is refused")


def report() -> None:
    raise ProviderError("overloaded", code=503)


FAULTS: dict[str, Callable[[], object]] = {
    "KeyError": lambda: {"a": 1}["secret"],
    "IndexError": lambda: [1][5],
    "TypeError": lambda: len(5),  # type: ignore[arg-type]
    "AttributeError": lambda: "".secret,  # type: ignore[attr-defined]
    "refused": refuse,
    "overloaded": report,
}
WORDS = WireProtocol("words", Words)


def events(*data: str) -> list[ServerSentEvent]:
    return [ServerSentEvent("message", text) for text in data]


def texts(*words: str) -> list[TextDelta]:
    return [TextDelta(word) for word in words]


def test_an_event_may_give_many_deltas_or_none(run: Run) -> None:
    assert run(decode_deltas(WORDS), events("a b", "", "c")) == (texts("a", "b", "c"), None)


def test_after_done_nothing_is_decoded(run: Run) -> None:
    assert run(decode_deltas(WORDS), events("a end", "b", "KeyError", "end")) == ([*texts("a"), Done()], None)


def test_a_clean_end_is_done_where_the_dialect_says_so(run: Run) -> None:
    assert run(decode_deltas(WORDS), events("a bye")) == ([*texts("a", "bye"), Done()], None)
    assert run(decode_deltas(WORDS), events("bye a")) == (texts("bye", "a"), None)


def test_after_done_the_end_adds_nothing(run: Run) -> None:
    assert run(decode_deltas(WORDS), events("end", "bye")) == ([Done()], None)


def test_extras_reach_the_decoder(run: Run) -> None:
    assert run(decode_deltas(WORDS, extras=True), events("a")) == ([ProviderEvent("word", "a")], None)


@pytest.mark.parametrize("fault", ["KeyError", "IndexError", "TypeError", "AttributeError", "refused"])
def test_a_payload_of_another_shape_is_malformed(fault: str, run: Run) -> None:
    deltas, error = run(decode_deltas(WORDS), events("a", f"b {fault} never", "c"))
    assert type(error) is MalformedPayload
    assert (deltas, error.raw) == (texts("a", "b"), f"b {fault} never")
    assert "event 2" in str(error)
    assert "never" not in str(error)


def test_what_the_provider_reports_is_passed_on(run: Run) -> None:
    deltas, error = run(decode_deltas(WORDS), events("a overloaded"))
    assert type(error) is ProviderError
    assert (deltas, error.message, error.code) == (texts("a"), "overloaded", 503)


def test_each_subscription_has_its_own_decoder() -> None:
    made: list[object] = []

    def make(extras: bool) -> Words:
        made.append(extras)
        return Words(extras)

    observable = reactivex.from_iterable(events("a")).pipe(decode_deltas(WireProtocol("counted", make)))
    assert made == []
    observable.subscribe()
    observable.subscribe()
    assert made == [False, False]


class Odd:
    """A dialect whose decoder converts what it reads."""

    def __init__(self, extras: bool) -> None:
        del extras

    def decode(self, event: WireEvent) -> list[Delta]:
        return [TextDelta("x" * int(event.data))]

    def finish(self) -> list[Delta]:
        return [TextDelta("x" * int("no number"))]


def test_any_error_of_reading_a_payload_is_malformed() -> None:
    assembler = StreamAssembler(WireProtocol("odd", Odd))
    with pytest.raises(MalformedPayload, match=r"event 1 .* is not shaped as odd says"):
        assembler.feed(b"data: two\n\n")
    with pytest.raises(MalformedPayload):
        assembler.feed(b"data: 2\n\n")
    with pytest.raises(MalformedPayload, match="does not end as odd says"):
        StreamAssembler(WireProtocol("odd", Odd)).result()
