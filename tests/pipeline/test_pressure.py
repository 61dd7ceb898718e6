"""`Waiting`: what is counted can be taken, whatever thread asks and whenever."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from rillet.operators import ByteWindow
from rillet.pipeline.pressure import Waiting


def test_what_is_counted_is_there_at_every_moment() -> None:
    waiting = Waiting[int](ByteWindow(), lambda: None, max_items=10)
    counted: list[tuple[int, int]] = []

    class Asked(deque[tuple[Sequence[int], int]]):
        """Another thread asks just before a batch is there, and just after."""

        def append(self, batch: tuple[Sequence[int], int]) -> None:
            for add in (lambda: None, lambda: super(Asked, self).append(batch)):
                add()
                counted.append((len(waiting), sum(len(values) for values, _ in self)))

    waiting.batches = Asked()
    waiting.on_batch((1, 2))
    waiting.on_next(3)
    assert all(said <= there for said, there in counted)
    assert [waiting.take() for _ in range(len(waiting))] == [1, 2, 3]
