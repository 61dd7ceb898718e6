from __future__ import annotations

from reactivex.scheduler import TimeoutScheduler
from reactivex.testing import TestScheduler

from rillet.operators.timers import timer_scheduler, timers_on


def test_the_most_particular_scheduler_counts() -> None:
    mine, given, offered = TestScheduler(), TestScheduler(), TestScheduler()
    with timers_on(offered):
        assert timer_scheduler(mine, given) is mine
        assert timer_scheduler(None, given) is given
        assert timer_scheduler(None, None) is offered
        with timers_on(mine):
            assert timer_scheduler() is mine
        assert timer_scheduler() is offered
    assert timer_scheduler(None) is TimeoutScheduler.singleton()
