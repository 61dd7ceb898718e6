"""What it costs to be watched: `measure`, `otel_measured` and `recorder`, in CPU microseconds.

    python benchmarks/watching.py

A stream of deltas is pushed through one bare operator (`ops.map` of nothing), and through each watch in its place; the
recorder gets the bytes of such a stream in pieces instead, and writes them to a file in the temporary folder. The best
of five rounds counts.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from time import process_time
from typing import Any

import fixtures
from reactivex import Observable, abc
from reactivex import operators as ops
from reactivex.disposable import Disposable

from rillet.operators import Delta, Done, TextDelta
from rillet.pipeline import measure, recorder

COUNT = 200_000
ROUNDS = 5
PIECE = 1_400

Operator = Callable[[Observable[Any]], Observable[Any]]


def main() -> None:
    """Print the table."""
    deltas: list[Delta] = [*map(TextDelta, fixtures.texts(COUNT)), Done()]
    pieces = fixtures.cut(fixtures.text_stream(COUNT // 4), PIECE)
    with tempfile.TemporaryDirectory() as folder:
        rows: dict[str, tuple[Sequence[object], Operator]] = {
            "a bare operator": (deltas, ops.map(lambda delta: delta)),
            "measure": (deltas, measure(lambda stats: None)),
            **otel(deltas),
            "a bare operator, pieces": (pieces, ops.map(lambda piece: piece)),
            f"recorder, pieces of {PIECE:,} bytes": (pieces, recorder(Path(folder) / "recording")),
        }
        for name, (items, operator) in rows.items():
            print(f"{name:32}{best(items, operator):8.2f} µs an item")


def otel(deltas: Sequence[object]) -> dict[str, tuple[Sequence[object], Operator]]:
    """`otel_measured`, where OpenTelemetry is installed."""
    try:
        from rillet.pipeline.otel import otel_measured
    except ImportError:
        return {}
    return {"otel_measured": (deltas, otel_measured(provider="openai"))}


def best(items: Sequence[object], operator: Operator) -> float:
    """CPU microseconds an item, in the best of the rounds."""

    def push(observer: abc.ObserverBase[Any], scheduler: abc.SchedulerBase | None = None) -> abc.DisposableBase:
        for item in items:
            observer.on_next(item)
        observer.on_completed()
        return Disposable()

    times: list[float] = []
    for _ in range(ROUNDS):
        begin = process_time()
        Observable(push).pipe(operator).subscribe(lambda _: None)
        times.append(process_time() - begin)
    return min(times) / len(items) * 1e6


if __name__ == "__main__":
    main()
