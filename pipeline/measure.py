"""`measure`: what one stream took, and how it ended, without a word of what it said."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from time import perf_counter
from typing import Literal, TypeAlias, TypeVar

from reactivex import Observable

from rillet.operators import Done, Finish, FinishReason, Usage
from rillet.operators.errors import TruncatedStream
from rillet.operators.meter import Meter, current_meter, metering
from rillet.operators.value import value

from .watch import Ending, Watch, error_kind, watched

T = TypeVar("T")

Outcome: TypeAlias = Literal["complete", "truncated", "failed", "cancelled"]
"""How a stream ended; see `StreamStats`."""

_NOTED = frozenset((Usage, Finish, Done))


@value
class StreamStats:
    """One stream, measured. Times are in seconds, and count from the subscription but for `started`.

    Attributes:
        outcome: "complete": it completed, or `Done` came; where deltas are decoded, `Done` must have come. "truncated":
            it ended, or broke, before its provider's contract was met. "failed": any other error. "cancelled": the
            subscriber left first. Incomplete are all but the complete, among those not cancelled.
        error_kind: The `kind` of the `StreamError` it failed with, the class's name of any other error;
            "truncated_stream" too where nobody complained of that. None for the complete and the cancelled.
        started: What the clock said at the subscription.
        duration: When it was over.
        first_byte: When the first byte of the answer came; None where none came, or the source does not count.
        first_delta: When the first item came here; None where none came.
        deltas: How many deltas were decoded; where none are, how many items came here.
        heartbeats: How many comments came, and events that gave no delta, or only that of a ping.
        bytes: How many bytes of the answer's body came, decompressed; 0 where the source does not count.
        stalls: How often the source waited for a slow consumer.
        input_tokens: Tokens of the prompt; None where the provider did not say.
        output_tokens: Tokens of the answer; None where the provider did not say.
        finish_reasons: Why the choices ended, in the order of their numbers.
    """

    outcome: Outcome
    error_kind: str | None
    started: float
    duration: float
    first_byte: float | None
    first_delta: float | None
    deltas: int
    heartbeats: int
    bytes: int
    stalls: int
    input_tokens: int | None
    output_tokens: int | None
    finish_reasons: tuple[FinishReason, ...]


def measure(
    callback: Callable[[StreamStats], object], *, clock: Callable[[], float] = perf_counter
) -> Callable[[Observable[T]], Observable[T]]:
    """Measure a stream, and tell what it took once it is over.

    .. marble::

        ---Text---Text---Text---Done|
        [     measure(callback)     ]
        ---Text---Text---Text---Done|    and callback(StreamStats("complete", …))

    It stands after `deltas`, or after `require_done`, whose verdict it tells; anywhere else, before them too, it tells
    what can be known there. Operators that put their subscribing off, as `ops.retry`, `ops.catch`, `ops.concat` and
    `ops.merge` do, belong after it: each attempt is then a stream of its own. Before it, they hide the source's counts.

    Args:
        callback: Gets the stats once for each subscription, before the subscriber hears of the end; on the thread that
            ends it. What it raises goes to the event loop's exception handler, or to `sys.excepthook` where no loop
            runs, and the stream goes on.
        clock: Tells the time, in seconds from any start.

    Returns:
        An operator.

        - emits: what comes
        - holds back: nothing
        - completes, fails: with the source
    """

    def operator(source: Observable[T]) -> Observable[T]:
        return watched(source, lambda: _Measurement(callback, clock))

    return operator


class _Measurement(Watch[T]):
    """One subscription, as it is measured."""

    def __init__(self, callback: Callable[[StreamStats], object], clock: Callable[[], float]) -> None:
        self._callback = callback
        offered = current_meter()
        # Where deltas are decoded downstream, what is measured here is the bytes of that very stream.
        self._meter = offered if offered is not None and offered.feeds_decoder else Meter(offered)
        self._is_before = self._meter is offered
        self._clock = self._meter.clock = self._meter.clock or clock
        self._started = self._clock()
        self._items = 0
        self._first: float | None = None
        self._is_done = False
        self._usage: Usage | None = None
        self._reasons: dict[int, FinishReason] = {}

    def subscribing(self) -> AbstractContextManager[object]:
        return metering(self._meter)

    def item(self, item: T) -> None:
        if not self._items:
            self._first = self._clock()
        self._items += 1
        if item.__class__ in _NOTED:
            self._note(item)

    def _note(self, item: object) -> None:
        if isinstance(item, Usage):
            self._usage = item
        elif isinstance(item, Finish):
            self._reasons[item.choice] = item.reason
        else:
            self._is_done = True

    def end(self, ending: Ending, error: Exception | None) -> None:
        duration = self._since_start(self._clock())
        outcome, kind = self._verdict(ending, error)
        meter, usage = self._meter, self._usage
        self._callback(
            StreamStats(
                outcome=outcome,
                error_kind=kind,
                started=self._started,
                duration=duration,
                first_byte=None if meter.first_byte is None else self._since_start(meter.first_byte),
                first_delta=None if self._first is None else self._since_start(self._first),
                deltas=meter.deltas if meter.reads_deltas else self._items,
                heartbeats=meter.heartbeats,
                bytes=meter.bytes_read,
                stalls=meter.stalls,
                input_tokens=None if usage is None else usage.input_tokens,
                output_tokens=None if usage is None else usage.output_tokens,
                finish_reasons=tuple(reason for _, reason in sorted(self._reasons.items())),
            )
        )

    def _since_start(self, moment: float) -> float:
        return moment - self._started

    def _verdict(self, ending: Ending, error: Exception | None) -> tuple[Outcome, str | None]:
        meter = self._meter
        if self._is_done or (self._is_before and meter.is_done):
            return "complete", None
        if error is not None:
            return "truncated" if isinstance(error, TruncatedStream) else "failed", error_kind(error)
        if ending == "disposed":
            return "cancelled", None
        # Nobody demanded `Done`. A filter may have kept it from here: it is enough that it was decoded.
        if meter.reads_deltas and not meter.is_done and not self._is_before:
            return "truncated", TruncatedStream.kind
        return "complete", None
