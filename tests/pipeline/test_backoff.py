from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rillet.pipeline import Backoff

PLAIN = Backoff(first=1, longest=10, jitter=0)


def test_it_doubles_up_to_the_longest() -> None:
    assert [PLAIN.wait(failures) for failures in range(1, 7)] == [1, 2, 4, 8, 10, 10]
    assert PLAIN.wait(10**9) == 10


def test_a_first_wait_beyond_the_longest_stays() -> None:
    assert [Backoff(first=60, longest=30, jitter=0).wait(failures) for failures in (1, 2, 9)] == [60, 60, 60]


@pytest.mark.parametrize(("asked", "waits"), [(0, [0, 2, 4]), (0.5, [0.5, 2, 4]), (3, [3, 3, 4]), (20, [20, 20, 20])])
def test_what_the_server_asks_for_is_the_first_wait_and_the_least_after(asked: float, waits: list[float]) -> None:
    assert [PLAIN.wait(failures, asked) for failures in (1, 2, 3)] == waits


def test_a_server_that_asks_for_more_than_the_patience_is_not_waited_for() -> None:
    assert (Backoff(patience=5, jitter=0).wait(1, 5), Backoff(patience=5).wait(1, 5.1)) == (5, None)


@given(st.integers(1, 100), st.none() | st.floats(0, 600), st.floats(0, 2))
def test_the_jitter_only_adds_and_no_more_than_its_share(failures: int, asked: float | None, jitter: float) -> None:
    least = Backoff(jitter=0).wait(failures, asked)
    most = Backoff(jitter=jitter, dice=lambda: 1.0).wait(failures, asked)
    some = Backoff(jitter=jitter, dice=random.Random(7).random).wait(failures, asked)
    assert least is not None
    assert some is not None
    assert most == least * (1 + jitter)
    assert least <= some <= most


def test_seeded_dice_give_the_same_waits() -> None:
    one, other = (Backoff(dice=random.Random(7).random) for _ in range(2))
    assert [one.wait(n) for n in range(1, 9)] == [other.wait(n) for n in range(1, 9)]
