"""`Timeouts`: how long each kind of waiting may last."""

from __future__ import annotations

from dataclasses import fields

from rillet.operators.value import value


@value
class Timeouts:
    """How long each kind of waiting may last, in seconds; None lifts a limit, and so does 0, as in aiohttp.

    They count beside those of the session and of aiohttp's own `timeout=`: the shorter of two wins. Time that the
    source waits for a slow consumer is nobody's silence: it counts for `total` alone.

    Attributes:
        connect: To get a connection, the wait for a free one in the pool included; then `ConnectTimeout`. 30 s.
        liveness: Without a byte, before the first one too; then `IdleTimeout`, up to a quarter later. 5 minutes.
        progress: Without a delta, however many comments, pings and empty events come; then `IdleTimeout`, up to a
            quarter later. It counts where deltas are decoded, before the first one too; elsewhere only until the answer
            begins, which a server may put off for ever with provisional ones (1xx). 15 minutes.
        total: From the request to the end of the answer; then `DeadlineExceeded`. None.
    """

    connect: float | None = 30.0
    liveness: float | None = 300.0
    progress: float | None = 900.0
    total: float | None = None


DEFAULT_TIMEOUTS = Timeouts()


def checked(timeouts: object) -> Timeouts:
    """The timeouts that were given, where they are some: aiohttp takes a number in this place, Rillet does not.

    Raises:
        TypeError: They are something else.
        ValueError: One of them is below 0, or no number.
    """
    if not isinstance(timeouts, Timeouts):
        raise TypeError(f"timeouts= wants Timeouts(…), as Timeouts(liveness=30), and not {timeouts!r}")
    for field in fields(timeouts):
        seconds = getattr(timeouts, field.name)
        if seconds is not None and not seconds >= 0:
            raise ValueError(f"{field.name} must be 0 or more seconds, not {seconds}")
    return timeouts
