"""The conductor and its processes, with real ones."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import fixtures
import pytest
from inprocess import difference
from over_http import serving
from peers.rillet import CHAIN, CLIENTS
from workers import Missing, Worker, cores, python_worker, written

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the benchmarks need Linux")


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    worker = python_worker("rillet", cores().work)
    yield worker
    worker.close()


def test_a_worker_reads_the_stream_that_it_is_shown(worker: Worker, tmp_path: Path) -> None:
    stream = fixtures.anthropic(40)
    path = written(stream, tmp_path, "stream")
    assert worker.ask("check", contestant=CHAIN, stream=path, size=7)["heard"] == stream.answer
    assert worker.ask("time", contestant=CHAIN, stream=path, size=0, least=0)["seconds"] > 0
    assert worker.ask("memory", contestant=CHAIN, stream=path, size=0)["blocks"] > 0


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_reads_what_the_server_sends(worker: Worker, tmp_path: Path, client: str) -> None:
    stream = fixtures.text(40)
    with serving(written(stream, tmp_path, "stream"), cores().rest) as server:
        assert not difference(worker.ask("check_client", client=client, url=server.url)["heard"], stream)
        loaded = worker.ask("load", client=client, url=server.url, streams=6, at_once=3, seconds=30)
        drained = worker.ask("drain", url=server.url, streams=3)
    assert loaded["deltas"] >= 6 * 40
    assert loaded["unanswered"] == loaded["unfinished"] == 0
    assert len(loaded["firsts"]) == 6
    assert drained["bytes"] > 3 * len(stream.body)


def test_a_fault_of_a_package_is_told_and_the_worker_goes_on(worker: Worker, tmp_path: Path) -> None:
    cut = fixtures.text(40)._replace(body=fixtures.text_events(3))
    path = written(cut, tmp_path, "cut")
    with pytest.raises(Missing, match="TruncatedStream"):
        worker.ask("check", contestant=CHAIN, stream=path, size=0)
    assert worker.ask("names")["version"] == worker.version


def test_a_package_that_is_not_there_is_missing_and_it_says_why() -> None:
    with pytest.raises(Missing, match="No module named"):
        python_worker("no_such_peer", cores().work)
