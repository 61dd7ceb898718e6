from __future__ import annotations

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from rillet.operators import ServerSentEvent
from rillet.pipeline.seen_events import REMEMBERED, SeenEvents


def event(place: int) -> ServerSentEvent:
    return ServerSentEvent("message", f"data {place}", str(place // 3))  # three events have one id


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=8), st.booleans())
def test_whatever_a_server_repeats_each_event_is_new_once(connections: list[tuple[int, int]], numbered: bool) -> None:
    seen, given_out = SeenEvents(), list[int]()
    for start, length in connections:
        seen.reconnect()
        start = min(start, len(given_out))  # a server leaves nothing out
        for place in range(start, start + length):
            if seen.is_new(event(place), place if numbered else event(place).id):
                given_out.append(place)
    assert given_out == list(range(len(given_out)))


def test_within_a_connection_nothing_is_a_repetition() -> None:
    seen = SeenEvents()
    seen.reconnect()
    assert [seen.is_new(event(0), cursor) for cursor in ("a", "a", 3, 3, 2)] == [True] * 5


def test_an_event_without_a_place_is_new_and_ends_nothing() -> None:
    seen = SeenEvents()
    seen.reconnect()
    assert seen.is_new(event(0), "0")
    seen.reconnect()
    assert [seen.is_new(event(0), None), seen.is_new(event(0), "0"), seen.is_new(event(0), "0")] == [True, False, True]


def test_number_zero_is_a_place() -> None:
    seen = SeenEvents()
    seen.reconnect()
    assert seen.is_new(event(0), 0)
    seen.reconnect()
    assert not seen.is_new(event(0), 0)


def test_it_remembers_so_many_and_none_of_their_text() -> None:
    seen = SeenEvents()
    seen.reconnect()
    tracemalloc.start()
    for place in range(REMEMBERED * 3):
        assert seen.is_new(ServerSentEvent("message", "x" * 10_000, f"{place}" * 1_000), f"{place}")
    assert tracemalloc.get_traced_memory()[0] < 1_000_000
    tracemalloc.stop()
    seen.reconnect()
    last = REMEMBERED * 3 - 1
    assert not seen.is_new(ServerSentEvent("message", "x" * 10_000, f"{last}" * 1_000), f"{last}")
    assert seen.is_new(ServerSentEvent("message", "x" * 10_000, "0" * 1_000), "0")
