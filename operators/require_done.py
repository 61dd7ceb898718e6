"""`require_done`: nothing unfinished looks finished."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from reactivex import Observable

from .deltas import Delta, Done, ReasoningDelta, TextDelta, ToolCallDelta, ToolCallEnd, ToolCallStart
from .errors import TruncatedStream, UnclosedToolCall
from .stage import Stage, lift


class RequireDone(Stage[Delta, Delta]):
    """The stage of `require_done`."""

    def __init__(self) -> None:
        self._open: dict[tuple[int, int], tuple[ToolCallStart, list[str]]] = {}

    def feed(self, batch: Iterable[Delta]) -> Iterator[Delta]:
        for delta in batch:
            kind = delta.__class__
            if kind is TextDelta or kind is ReasoningDelta:
                yield delta
                continue
            if kind is Done:
                self._check_closed()
                self.closed = True
                yield delta
                return
            self._track(delta)
            yield delta

    def finish(self) -> Iterator[Delta]:
        open_calls = f", while {len(self._open)} tool call(s) were open" if self._open else ""
        raise TruncatedStream(f"the stream ended before the provider said it was done{open_calls}")

    def _track(self, delta: Delta) -> None:
        if isinstance(delta, ToolCallStart):
            self._open[delta.choice, delta.index] = (delta, [])
        elif isinstance(delta, ToolCallDelta):
            if call := self._open.get((delta.choice, delta.index)):
                call[1].append(delta.args)
        elif isinstance(delta, ToolCallEnd):
            self._open.pop((delta.choice, delta.index), None)

    def _check_closed(self) -> None:
        for start, fragments in self._open.values():
            raise UnclosedToolCall(start.index, start.id, start.name, "".join(fragments))


def require_done() -> Callable[[Observable[Delta]], Observable[Delta]]:
    """Complete only where the provider's own contract says that the answer is whole.

    .. marble::

        ---Text---Text---Done---Text---|        ---Text---Text---|
        [       require_done()         ]        [ require_done() ]
        ---Text---Text---Done|                  ---Text---Text---#

    Returns:
        An operator from deltas to deltas.

        - emits: everything up to and with `Done`
        - holds back: nothing
        - completes: right after `Done`, disposing the source at once; what the source does then is not seen any more
        - fails: `TruncatedStream` where the source ends without `Done`; `UnclosedToolCall` where `Done` comes while a
          tool call is open
    """
    return lift(RequireDone)
