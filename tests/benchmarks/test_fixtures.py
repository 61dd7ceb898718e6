"""What the benchmarks are fed is what it says it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import fixtures
import pytest
from peers.rillet import CONTESTANTS
from worker import Heard

from rillet.operators.errors import TruncatedStream

STREAMS = {**fixtures.STREAMS, "calls open at once": lambda count: fixtures.interleaved_calls(count // 10)}
SIZES = (0, 1, 64, 1_400, 65_536)


def heard(contestant: str, stream: fixtures.Stream, size: int) -> Mapping[str, str]:
    entry, answer = CONTESTANTS[contestant], Heard()
    entry.run(stream, stream.cut(size), answer.by(entry.hear))
    return answer


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", STREAMS)
def test_the_chain_hears_what_a_stream_says_however_it_is_cut(name: str, size: int) -> None:
    stream = STREAMS[name](40)
    assert heard("the chain", stream, size) == stream.answer


@pytest.mark.parametrize("contestant", CONTESTANTS)
@pytest.mark.parametrize("name", fixtures.STREAMS)
def test_every_contestant_of_ours_hears_what_a_stream_says(name: str, contestant: str) -> None:
    stream = fixtures.STREAMS[name](40)
    assert heard(contestant, stream, 1_400) == stream.answer


@pytest.mark.parametrize("name", fixtures.STREAMS)
def test_a_stream_has_as_many_events_as_it_says(name: str) -> None:
    stream = fixtures.STREAMS[name](40)
    chunks = stream.cut(0)
    assert len(chunks) == stream.events
    assert b"".join(chunks) == stream.body


def test_a_chain_is_not_satisfied_with_a_stream_that_was_cut() -> None:
    stream = fixtures.text(40)
    chunks = stream.cut(0)[:-3]  # without the finish reason, the usage and [DONE]
    given: list[Any] = []
    with pytest.raises(TruncatedStream):
        CONTESTANTS["the chain"].run(stream, chunks, given.append)
    CONTESTANTS["the floor"].run(stream, chunks, given.append)  # and the floor does not notice
