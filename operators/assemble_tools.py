"""`assemble_tools`: fragments of arguments become tool calls that are safe to run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from reactivex import Observable

from .deltas import PASSING, Delta, Done, ToolCall, ToolCallDelta, ToolCallEnd, ToolCallStart, is_attempt, only_passing
from .errors import LimitExceeded, MalformedPayload, MalformedToolArguments, StreamError
from .open_calls import OpenCall, OpenCalls
from .parse_arguments import parse_arguments
from .stage import BatchStage, lift

MAX_ARGS = 16 * 1024 * 1024


class AssembleTools(BatchStage[Delta, Delta]):
    """The stage of `assemble_tools`. `open` has the open calls."""

    def __init__(self, *, max_args: int | None = MAX_ARGS) -> None:
        self._limit = float("inf") if max_args is None else max_args
        self.open: OpenCalls = {}
        self._malformed: MalformedToolArguments | None = None

    def take(self, batch: Sequence[Delta]) -> tuple[Sequence[Delta], Exception | None]:
        if only_passing(batch):
            return batch, None
        given: list[Delta] = []
        open_calls, limit = self.open, self._limit
        try:
            for delta in batch:
                if delta.__class__ in PASSING:
                    given.append(delta)
                elif isinstance(delta, ToolCallDelta):
                    call = open_calls.get((delta.choice, delta.index))
                    if call is None:
                        raise MalformedPayload(f"a fragment for tool call {delta.index}, which is not open")
                    call.fragments.append(delta.args)
                    call.length += len(delta.args)
                    if call.length > limit:
                        raise LimitExceeded("max_args", int(limit), f"the arguments of tool call {delta.index}")
                    given.append(delta)
                elif isinstance(delta, (ToolCallStart, ToolCallEnd, Done)):
                    given.extend(self._follow(delta))
                else:
                    if is_attempt(delta):
                        self.open.clear()
                        self._malformed = None
                    given.append(delta)
        except StreamError as error:
            return given, error
        return given, None

    def finish(self) -> Iterator[Delta]:
        if self._malformed is not None:
            raise self._malformed
        return iter(())

    def _follow(self, delta: ToolCallStart | ToolCallEnd | Done) -> Iterator[Delta]:
        match delta:
            case ToolCallStart():
                self._start(delta)
                yield delta
            case ToolCallEnd():
                call = self._take(delta)
                yield delta
                yield from self._finished(call)
            case Done():
                yield from self.finish()
                yield delta

    def _start(self, start: ToolCallStart) -> None:
        key = (start.choice, start.index)
        if key in self.open:
            raise MalformedPayload(f"tool call {start.index} was started while it was open")
        self.open[key] = OpenCall(start)

    def _take(self, end: ToolCallEnd) -> OpenCall:
        call = self.open.pop((end.choice, end.index), None)
        if call is None:
            raise MalformedPayload(f"the end of tool call {end.index}, which is not open")
        return call

    def _finished(self, call: OpenCall) -> Iterator[ToolCall]:
        start, text = call.start, "".join(call.fragments)
        try:
            args = parse_arguments(text)
        except MalformedToolArguments as error:
            # Kept until the end: the finish reason and the usage that follow say why, and other calls may be whole.
            self._malformed = self._malformed or MalformedToolArguments(
                error.reason, text, index=start.index, id=start.id, name=start.name
            )
            return
        yield ToolCall(start.index, start.id, start.name, args, text, start.choice)


def assemble_tools(*, max_args: int | None = MAX_ARGS) -> Callable[[Observable[Delta]], Observable[Delta]]:
    """Add each finished tool call, right after its end.

    .. marble::

        ---Start(0)---Delta('{"a"')---Delta(':1}')---End(0)-----------------------Done---|
        [                             assemble_tools()                                   ]
        ---Start(0)---Delta('{"a"')---Delta(':1}')---End(0)-ToolCall(args={"a":1})-Done--|

    Args:
        max_args: The longest arguments taken, in characters a call; 16 Mi by default, None for no limit.

    Returns:
        An operator from deltas to deltas.

        - emits: everything it gets, plus a `ToolCall` right after its `ToolCallEnd`, where the arguments are one strict
          JSON object (see `parse_arguments`); at an `Attempt` it forgets the open calls
        - holds back: copies of the fragments of open calls, by choice and index
        - completes: with the source
        - fails: `MalformedToolArguments` for the first call whose arguments are anything else, before `Done` or at the
          end of the source, so that the rest of the answer is seen; `LimitExceeded`; `MalformedPayload` for a fragment
          or an end without a start, or a second start
    """
    return lift(lambda: AssembleTools(max_args=max_args))
