from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rillet.operators import ServerSentEvent, StreamPosition, group_events
from rillet.operators.errors import LimitExceeded
from rillet.operators.group_events import GroupEvents

Run = Callable[..., tuple[list[Any], Any]]


def event(data: str, event: str = "message", id: str = "") -> ServerSentEvent:
    return ServerSentEvent(event, data, id)


@pytest.mark.parametrize(
    ("lines", "events"),
    [
        pytest.param(["data: a", "data: b", ""], [event("a\nb")], id="data lines are joined by line feeds"),
        pytest.param(["data:a", "data: b", "data:  c", ""], [event("a\nb\n c")], id="one leading space is dropped"),
        pytest.param(["data:\ta", ""], [event("\ta")], id="a tab is kept"),
        pytest.param(["data: a: b", ""], [event("a: b")], id="the first colon counts"),
        pytest.param(["data", ""], [event("")], id="data without a colon"),
        pytest.param(["data:", "data:", ""], [event("\n")], id="two empty data lines"),
        pytest.param(["", "", "data: a", "", ""], [event("a")], id="blank lines give nothing"),
        pytest.param([": ping", "data: a", ":", "data: b", ""], [event("a\nb")], id="comments give nothing"),
        pytest.param([": ping", ""], [], id="a comment alone"),
        pytest.param(["event: done", "data: a", "", "data: b", ""], [event("a", "done"), event("b")], id="a type"),
        pytest.param(["data: a", "event: x", "event: y", ""], [event("a", "y")], id="the last type counts"),
        pytest.param(["event: x", "event:", "data: a", ""], [event("a")], id="an empty type is none"),
        pytest.param(["event: x", "", "data: a", ""], [event("a")], id="a type without data is forgotten"),
        pytest.param(
            ["id: 1", "data: a", "", "data: b", "", "id", "data: c", ""],
            [event("a", id="1"), event("b", id="1"), event("c")],
            id="an id lasts until the next",
        ),
        pytest.param(["id: 1", "", "data: a", ""], [event("a", id="1")], id="an id without data lasts too"),
        pytest.param(["id: 1\0", "data: a", ""], [event("a")], id="an id with a NUL is ignored"),
        pytest.param(["data: a", "id: 2", ""], [event("a", id="2")], id="an id after the data"),
        pytest.param(["Data: a", " data: b", "dat: c", "datax: d", "retry: 9", ""], [], id="other fields are ignored"),
        pytest.param(["data: a", "", "data: open"], [event("a")], id="the open event is discarded"),
        pytest.param(["error: x", '{"error":1}', "data: a", ""], [event("a")], id="stray lines are ignored"),
    ],
)
def test_events_are_those_of_the_standard(lines: list[str], events: list[ServerSentEvent], run: Run) -> None:
    assert run(group_events(), lines) == (events, None)


@pytest.mark.parametrize("data", ['{"a":1}', "[DONE]", " [DONE] ", '{"a":', "[DONE", "text", "1", "null"])
def test_at_the_end_the_open_event_is_discarded(data: str, run: Run) -> None:
    assert run(group_events(), ["data: x", "", f"data:{data}"]) == ([event("x")], None)


@pytest.mark.parametrize(
    ("lines", "events"),
    [
        pytest.param(['data: {"a":1}'], [event('{"a":1}')], id="whole JSON"),
        pytest.param(
            ["event: x", 'data: {"a":', "data: 1}"], [event('{"a":\n1}', "x")], id="over two lines, with type"
        ),
        pytest.param(["data: [DONE]"], [event("[DONE]")], id="[DONE]"),
        pytest.param(["data:  [DONE] "], [event(" [DONE] ")], id="[DONE] padded"),
        pytest.param(['data: {"a":'], [], id="JSON cut short"),
        pytest.param(["data: [DON"], [], id="[DONE] cut short"),
        pytest.param(["data: incomplete"], [], id="no JSON"),
        pytest.param(["event: x"], [], id="no data"),
    ],
)
def test_with_eof_dispatch_it_counts_where_it_is_whole(
    lines: list[str], events: list[ServerSentEvent], run: Run
) -> None:
    assert run(group_events(eof="dispatch"), lines) == (events, None)


def test_the_position_is_kept_up_to_date(run: Run) -> None:
    position = StreamPosition()
    run(group_events(position=position), ["retry: 1500", "id: 7", "data: a", "", "id: 8", "data: unfinished"])
    assert position == StreamPosition("7", 1500)


def test_a_block_without_data_commits_its_id(run: Run) -> None:
    position = StreamPosition()
    run(group_events(position=position), ["id: 7", ""])
    assert position.last_event_id == "7"


def test_the_position_is_where_the_ids_start(run: Run) -> None:
    position = StreamPosition("41")
    assert run(group_events(position=position), ["data: a", ""]) == ([event("a", id="41")], None)


def test_the_position_counts_the_finished_blocks_that_set_an_id(run: Run) -> None:
    position = StreamPosition("41")
    kept, given = ["data: a", "", "event: x", "data: b", "", "id: \0", "data: c", ""], ["id: 1", "", "id", "id: 2", ""]
    run(group_events(position=position), [*kept])
    assert position.ids == 0
    run(group_events(position=position), [*given, *kept, "id: 3", "data: unfinished"])
    assert (position.ids, position.last_event_id) == (2, "2")


@pytest.mark.parametrize("digits", [1, 15])
def test_a_retry_of_any_sensible_length_counts(digits: int, run: Run) -> None:
    position = StreamPosition()
    run(group_events(position=position), [f"retry:{'9' * digits}"])
    assert position.retry == int("9" * digits)


@pytest.mark.parametrize("value", ["", "1.5", "-1", "1e3", "soon", "\u0663", "\u00b2", "9" * 5000])
def test_a_retry_that_is_no_number_is_ignored(value: str, run: Run) -> None:
    position = StreamPosition(retry=3)
    assert run(group_events(position=position), [f"retry: {value}", "data: a", ""]) == ([event("a")], None)
    assert position.retry == 3


@pytest.mark.parametrize(
    ("lines", "events"),
    [
        pytest.param(['error: {"code":500}', ""], [event('{"code":500}', "error")], id="a field named error"),
        pytest.param(['error: {"code":500}'], [event('{"code":500}', "error")], id="which ends the stream"),
        pytest.param(['{"error":1}', ""], [event('{"error":1}', "error")], id="JSON without data:"),
        pytest.param(
            ["{", '  "error": 1', "}"], [event('{\n  "error": 1\n}', "error")], id="over several lines, at the end"
        ),
        pytest.param(["{", ": ping", '"error":1}', ""], [event('{\n"error":1}', "error")], id="with a comment inside"),
        pytest.param(["{", '  "error": 1'], [], id="cut short"),
        pytest.param(["event: error", '{"error":1}', ""], [event('{"error":1}', "error")], id="after a type"),
        pytest.param(
            ["data: a", '{"error":1}', ""],
            [event("a"), event('{"error":1}', "error")],
            id="in the block of the last event",
        ),
        pytest.param(['{"choices":[]}', ""], [], id="JSON without an error is ignored"),
        pytest.param(["<html>", "oops", ""], [], id="anything else is ignored"),
    ],
)
def test_with_stray_dispatch_the_errors_of_odd_servers_count(
    lines: list[str], events: list[ServerSentEvent], run: Run
) -> None:
    assert run(group_events(stray="dispatch"), lines) == (events, None)


@pytest.mark.parametrize(
    "block", [["data: 4567"], ["data", "data: "], [":2345", "data:"], ["event: x", "id"], ["x" * 10]]
)
def test_exactly_max_event_passes_in_every_block(block: list[str], run: Run) -> None:
    assert sum(map(len, block)) == 10
    _, error = run(group_events(max_event=10), [*block, "", *block, "", "data: ab", ""])
    assert error is None


@pytest.mark.parametrize(
    "block", [["data: 45678"], ["data:", "data: "], [":23456", "data:"], ["event: x", "id:"], ["x" * 11], [":"] * 11]
)
def test_one_over_fails_after_the_events_before(block: list[str], run: Run) -> None:
    assert sum(map(len, block)) == 11
    events, error = run(group_events(max_event=10), ["data: ab", "", *block, ""])
    assert type(error) is LimitExceeded
    assert (events, error.which, error.limit) == ([event("ab")], "max_event", 10)


def test_none_lifts_the_limit(run: Run) -> None:
    assert run(group_events(max_event=None), ["data: " + "x" * 5_000_000, ""]) == ([event("x" * 5_000_000)], None)


def test_by_default_there_is_a_limit(run: Run) -> None:
    assert type(run(group_events(), ["data: " + "x" * 5_000_000, ""])[1]) is LimitExceeded


@pytest.mark.parametrize("line", ["data: x", ": ping!", "error:x", "unknown", '{"a":1}'])
def test_an_endless_event_is_stopped(line: str) -> None:
    pulled = itertools.count()
    endless = (line for _ in pulled)
    with pytest.raises(LimitExceeded):
        list(GroupEvents(ServerSentEvent, max_event=70, stray="dispatch").feed(endless))
    assert next(pulled) == 11


NAMES = st.sampled_from(["data", "event", "id", "retry", "error", "", "{", "[DONE]", "x", "\ufeffdata"])
FIELDS = st.builds("{}{}{}".format, NAMES, st.sampled_from(["", ":", ": "]), st.text())


@given(
    st.lists(st.just("") | FIELDS), st.sampled_from(["discard", "dispatch"]), st.sampled_from(["ignore", "dispatch"])
)
def test_any_lines_give_events_and_no_exception(lines: list[str], eof: Any, stray: Any) -> None:
    stage = GroupEvents(ServerSentEvent, eof=eof, stray=stray)
    events = [*stage.feed(lines), *stage.finish()]
    assert all(type(event) is ServerSentEvent and event.event for event in events)


@given(st.lists(st.just("") | FIELDS))
def test_any_lines_without_stray_ones_give_the_same_with_stray_dispatch(lines: list[str]) -> None:
    fields = [line for line in lines if line.partition(":")[0] in ("", "data", "event", "id", "retry")]
    assert list(GroupEvents(ServerSentEvent, stray="dispatch").feed(fields)) == list(
        GroupEvents(ServerSentEvent).feed(lines)
    )
