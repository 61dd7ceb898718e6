"""`Backoff`: how long to wait before trying again."""

from __future__ import annotations

import random
from collections.abc import Callable

from rillet.operators.value import value

MOST_DOUBLINGS = 30


@value
class Backoff:
    """How long to wait before trying again, in seconds.

    Attributes:
        first: The first wait, where the server asks for none; each further failure in a row doubles it. 1 s.
        longest: Where the doubling stops. 30 s.
        jitter: By which share a wait may grow at random, so that clients do not all come back at once. A half.
        patience: The longest wait that a server may ask for: one that asks for more is not waited for. 10 minutes.
        dice: Gives the random numbers, each from 0 to 1.
    """

    first: float = 1.0
    longest: float = 30.0
    jitter: float = 0.5
    patience: float = 600.0
    dice: Callable[[], float] = random.random

    def wait(self, failures: int, asked: float | None = None) -> float | None:
        """How long to wait after so many failures in a row.

        Args:
            failures: How many there were, 1 or more.
            asked: How long the server asked to wait. It is the first wait, even where it is 0, and later ones are no
                shorter.

        Returns:
            The seconds; None where the server asks for more than `patience`.
        """
        doubled = self.first * (1 << min(failures - 1, MOST_DOUBLINGS))
        own = max(self.first, min(doubled, self.longest))
        if asked is None:
            seconds = own
        elif asked > self.patience:
            return None
        else:
            seconds = asked if failures == 1 else max(own, asked)
        return seconds * (1 + self.jitter * self.dice())


DEFAULT_BACKOFF = Backoff()
