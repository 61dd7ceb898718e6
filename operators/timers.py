"""Where the timers of an operator run: `timers_on` offers a scheduler, `timer_scheduler` chooses one."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

from reactivex import abc
from reactivex.scheduler import TimeoutScheduler

_offered: ContextVar[abc.SchedulerBase | None] = ContextVar("rillet_timers", default=None)


def timer_scheduler(*wanted: abc.SchedulerBase | None) -> abc.SchedulerBase:
    """The scheduler for the timers of an operator that is being subscribed to.

    Args:
        wanted: The schedulers that the operator was given, the most particular first; None where it was not.

    Returns:
        The first that there is; else the one of the boundary that subscribes; else reactivex's `TimeoutScheduler`,
        which runs each action on a thread of its own.
    """
    given = next((scheduler for scheduler in wanted if scheduler is not None), None)
    return given or _offered.get() or TimeoutScheduler.singleton()


@contextmanager
def timers_on(scheduler: abc.SchedulerBase) -> Generator[None]:
    """Offer a scheduler to the operators that are subscribed to inside the block: for boundaries.

    It is not given to `subscribe`, where reactivex's own operators would take it, and push later than they do without.
    """
    token = _offered.set(scheduler)
    try:
        yield
    finally:
        _offered.reset(token)
