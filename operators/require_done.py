"""`require_done`: nothing unfinished looks finished."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from reactivex import Observable

from .deltas import Delta, Done, ToolCallDelta, ToolCallEnd, ToolCallStart, is_attempt, only_passing
from .errors import TruncatedStream, UnclosedToolCall
from .open_calls import OpenCall, OpenCalls
from .stage import BatchStage, lift


class RequireDone(BatchStage[Delta, Delta]):
    """The stage of `require_done`.

    Args:
        open_calls: The open calls, where the stage before this one keeps them; by default they are kept here.
    """

    def __init__(self, open_calls: OpenCalls | None = None) -> None:
        self._open: OpenCalls = {} if open_calls is None else open_calls
        self._keeps_calls = open_calls is None

    def take(self, batch: Sequence[Delta]) -> tuple[Sequence[Delta], Exception | None]:
        if only_passing(batch):
            return batch, None
        for n, delta in enumerate(batch):
            if isinstance(delta, Done):
                if self._open:
                    return batch[:n], self._unclosed()
                self.closed = True
                return batch[: n + 1], None
            if self._keeps_calls:
                self._keep(delta)
        return batch, None

    def finish(self) -> Iterator[Delta]:
        open_calls = f", while {len(self._open)} tool call(s) were open" if self._open else ""
        raise TruncatedStream(f"the stream ended before the provider said it was done{open_calls}")

    def _keep(self, delta: Delta) -> None:
        if isinstance(delta, ToolCallDelta):
            if call := self._open.get((delta.choice, delta.index)):
                call.fragments.append(delta.args)
        elif isinstance(delta, ToolCallStart):
            self._open[delta.choice, delta.index] = OpenCall(delta)
        elif isinstance(delta, ToolCallEnd):
            self._open.pop((delta.choice, delta.index), None)
        elif is_attempt(delta):
            self._open.clear()

    def _unclosed(self) -> UnclosedToolCall:
        call = next(iter(self._open.values()))
        return UnclosedToolCall(call.start.index, call.start.id, call.start.name, "".join(call.fragments))


def require_done() -> Callable[[Observable[Delta]], Observable[Delta]]:
    """Complete only where the provider's own contract says that the answer is whole.

    .. marble::

        ---Text---Text---Done---Text---|        ---Text---Text---|
        [       require_done()         ]        [ require_done() ]
        ---Text---Text---Done|                  ---Text---Text---#

    Returns:
        An operator from deltas to deltas.

        - emits: everything up to and with `Done`; at an `Attempt` it forgets the open calls
        - holds back: nothing; it keeps the fragments of open calls, for `UnclosedToolCall` to tell
        - completes: right after `Done`, disposing the source at once; what the source does then is not seen any more
        - fails: `TruncatedStream` where the source ends without `Done`; `UnclosedToolCall` where `Done` comes while a
          tool call is open
    """
    return lift(RequireDone)
