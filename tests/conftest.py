"""Helpers for every test file. They come as fixtures, since each file is imported on its own."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterable, Iterator
from typing import Any, AnyStr

import pytest
import reactivex
from hypothesis import HealthCheck, settings
from reactivex import Observable

EXAMPLES = int(os.environ.get("RILLET_EXAMPLES") or 150)
settings.register_profile("bounded", max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("bounded")

SEED = int(os.environ.get("RILLET_SEED") or random.randrange(2**32))
EVERY_TWO_PIECES_UP_TO = 400


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts so what it runs in the background, and the programs that are tested would not hear of their Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_report_header() -> str:
    return f"random cuts: RILLET_SEED={SEED}"


def _cuts(whole: AnyStr) -> Iterator[list[AnyStr]]:
    empty = whole[:0]
    yield [whole]
    for size in range(1, 8):
        yield [whole[n : n + size] for n in range(0, len(whole), size)]
    if len(whole) <= EVERY_TWO_PIECES_UP_TO:
        for n in range(1, len(whole)):
            yield [whole[:n], whole[n:]]
            yield [whole[:n], empty, whole[n:], empty]
    dice = random.Random(SEED)
    for _ in range(5):
        places: list[int] = sorted(dice.randrange(len(whole) + 1) for _ in range(dice.randrange(1, 12)))
        yield [whole[a:b] for a, b in zip([0, *places], [*places, len(whole)], strict=True)]


def _run(operator: Callable[[Observable[Any]], Observable[Any]], source: Iterable[Any]) -> tuple[list[Any], Any]:
    items: list[Any] = []
    ends: list[Exception | None] = []
    reactivex.from_iterable(source).pipe(operator).subscribe(items.append, ends.append, lambda: ends.append(None))
    (end,) = ends
    return items, end


@pytest.fixture(scope="session")
def cuts() -> Callable[[AnyStr], Iterator[list[AnyStr]]]:
    """The same bytes, or text, cut in every way: whole, in pieces of 1 to 7, in every two pieces, and at random."""
    return _cuts


@pytest.fixture(scope="session")
def run() -> Callable[..., tuple[list[Any], Any]]:
    """What an operator makes of some items: what it emits, and the error it ends with, None where it completes."""
    return _run
