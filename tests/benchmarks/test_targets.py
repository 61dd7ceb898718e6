"""A target is met by what was measured, and by nothing else."""

from __future__ import annotations

import targets
from growth import Grown
from plot import Chart, drawn
from report import as_json, wins
from server import rendered

TEXT = targets.TEXT


def test_a_ratio_is_of_rounds_in_which_both_were_measured() -> None:
    assert targets.times([2.0, 40.0, 3.0], [1.0, 10.0, 1.0]) == 3.0


def test_whoever_gives_nothing_is_beaten_by_any_number_of_times() -> None:
    assert targets.times([1.0, 1.0], [0.0, 0.0]) == float("inf")


def test_a_peer_that_is_missing_leaves_a_target_unknown() -> None:
    target = targets.at_least("part", {"one event": {}, "1.4 KB": {}}, "absent", "the chain", 2)
    assert (target.met, target.measured) == (None, "not measured")


def test_a_target_must_be_met_in_chunks_of_every_size() -> None:
    floor = {targets.FLOOR: [5.0]}
    table = {"one event": {"peer": [30.0], "ours": [10.0]} | floor, "1.4 KB": {"peer": [10.0], "ours": [10.0]} | floor}
    assert targets.at_least("part", table, "peer", "ours", 2).met is False
    assert targets.at_least("part", table, "peer", "ours", 1).met is True


def test_a_target_beyond_the_floor_is_called_so() -> None:
    table = {label: {"peer": [30.0], "ours": [10.0], targets.FLOOR: [10.0]} for label in ("one event", "1.4 KB")}
    assert targets.at_least("part", table, "peer", "ours", 4).measured.endswith("; the floor itself is 3.00 × as fast")
    assert targets.at_least("part", table, "peer", "ours", 3).measured == "3.00 × (one event), 3.00 × (1.4 KB)"


def test_less_memory_means_less_than_the_least_of_the_peers() -> None:
    peers = {"heavy": 900.0, "light": 40.0, "the floor": 1.0, "subscribe": 2.0}
    assert targets.less_memory({**peers, "iterate": 39.0}).met is True
    assert targets.less_memory({**peers, "iterate": 41.0}).met is False


def test_growth_is_judged_by_its_worst_step() -> None:
    assert Grown("B", [1, 2, 4], [0.1, 0.2, 0.4], [2.0, 2.59]).linear
    assert not Grown("B", [1, 2, 4], [0.1, 0.2, 0.6], [2.0, 2.6]).linear


def test_it_says_who_was_faster_lighter_and_sooner() -> None:
    fast, slow = (
        {"deltas_per_cpu_second": [9.0], "first_p50_ms": [9.0]},
        {
            "deltas_per_cpu_second": [3.0],
            "first_p50_ms": [3.0],
        },
    )
    results = {
        "gives": {"sse": "payloads", "sdk": "objects"},
        "peers": {TEXT: {"1.4 KB": {"sse": [1.0], "sdk": [8.0], targets.FRAMING: [2.0], targets.CHAIN: [4.0]}}},
        "memory": {TEXT: {"sdk": {"peak_kb": 5}, targets.CHAIN: {"peak_kb": 10}}},
        "http": {"at_once": {"50": {"iterate": fast, "sse": slow}}},
    }
    assert wins(results).splitlines() == [
        "- sse takes 0.50 × the time of the framing operators, orjson: openai-chat, text, in chunks of 1.4 KB.",
        "- sdk peaks at 5 KB, the chain at 10: openai-chat, text.",
        "- sse has the first delta after 0.33 × the time (median), 50 at once.",
    ]


def test_the_rounds_of_a_figure_stand_on_one_line() -> None:
    assert '"a": [1.5, 2e-05, 3]' in as_json({"a": [1.5, 2e-05, 3], "b": {"c": ["d", "e"]}})


def test_a_plot_has_a_bar_for_each_figure_on_a_scale_of_powers() -> None:
    svg = drawn(Chart("a < b", {"one": 1.0, "hundred": 100.0}, ("one",)))
    assert svg.count("<rect") == 2
    assert "a &lt; b" in svg
    assert 'class="ours"' in svg


def test_the_server_sends_each_event_as_a_chunk_of_its_own() -> None:
    head, _, body = b"".join(rendered(b"data: 1\n\ndata: 22\n\n")).partition(b"\r\n\r\n")
    assert b"Transfer-Encoding: chunked" in head
    assert body == b"9\r\ndata: 1\n\n\r\na\r\ndata: 22\n\n\r\n0\r\n\r\n"
