"""`attempts`: an answer that failed is asked for anew, and what came of it is declared void."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from reactivex import Observable, abc
from reactivex import operators as ops

from rillet.operators import Attempt
from rillet.operators.errors import HttpStatusError, StreamError

from .backoff import DEFAULT_BACKOFF, Backoff
from .renewing import renewing
from .transient import is_transient

T = TypeVar("T")


def attempts(
    most: int = 3,
    *,
    worth: Callable[[Exception], bool] = is_transient,
    backoff: Backoff = DEFAULT_BACKOFF,
    scheduler: abc.SchedulerBase | None = None,
) -> Callable[[Observable[T]], Observable[T | Attempt]]:
    """Subscribe to the source anew where it fails, and say so where something of it had been handed on.

    .. marble::

        ---Text---#        ---#        ---Text---Text---Done|
        [                  attempts(3)                      ]
        ---Text---------Attempt(2)---Attempt(3)---Text---Text---Done|

    For answers that can't be resumed. Each attempt is another generation: with `ask`, another POST that costs what the
    first did, and that may give another answer. So nothing does this by itself, and an `Attempt` says where the next
    begins. Whoever takes it throws away what it had: text that is shown, tool calls that are not run yet; `Answer`,
    `assemble_tools` and `require_done` do. A tool call that was run already stays run.

    Args:
        most: How many attempts there are, the first counted; 3 by default.
        worth: Whether to try again after an error; `is_transient` by default. What had arrived is in its `partial`:
            one who runs tool calls as they come may say no where it has some.
        backoff: How long to wait before the next. A Retry-After counts.
        scheduler: What times the waits; by default the running event loop, which it must be subscribed to in.

    Returns:
        An operator over a cold source, best the last in its pipe.

        - emits: everything it gets; an `Attempt` as each further attempt begins, once anything was handed on
        - holds back: nothing
        - completes: with the source
        - fails: with the last attempt's error; with the first that is not worth another, or that asks for a longer wait
          than `backoff.patience`

    Raises:
        ValueError: `most` is less than 1.
    """
    if most < 1:
        raise ValueError(f"there is at least 1 attempt, not {most}")

    def operator(source: Observable[T]) -> Observable[T | Attempt]:
        def subscribe(
            observer: abc.ObserverBase[T | Attempt], forwarded: abc.SchedulerBase | None = None
        ) -> abc.DisposableBase:
            tries = _Tries(source, observer, most, worth, backoff)
            return renewing(observer, tries.connect, tries.after, scheduler=forwarded, timers=scheduler)

        return Observable(subscribe)

    return operator


class _Tries(Generic[T]):
    """One subscription: how often it was tried."""

    def __init__(
        self,
        source: Observable[T],
        observer: abc.ObserverBase[T | Attempt],
        most: int,
        worth: Callable[[Exception], bool],
        backoff: Backoff,
    ) -> None:
        self._source: Observable[T | Attempt] = source.pipe(ops.do_action(self._note))
        self._observer = observer
        self._most = most
        self._worth = worth
        self._backoff = backoff
        self._number = 0
        self._handed_on = False

    def connect(self) -> Observable[T | Attempt]:
        self._number += 1
        if self._handed_on:
            self._observer.on_next(Attempt(self._number))
        return self._source

    def after(self, error: Exception | None) -> float | None:
        if error is None:
            return None
        if isinstance(error, StreamError) and self._handed_on:
            error.retry_safe = False
        if self._number == self._most or not self._worth(error):
            raise error
        asked = error.retry_after if isinstance(error, HttpStatusError) else None
        wait = self._backoff.wait(self._number, asked)
        if wait is None:
            raise error
        return wait

    def _note(self, _: T) -> None:
        self._handed_on = True
