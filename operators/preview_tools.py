"""`preview_tools`: what is certain of open tool calls' arguments, once a frame."""

from __future__ import annotations

from collections.abc import Callable

from reactivex import Observable, abc

from .deltas import Delta, Json, ToolCall, ToolCallDelta, ToolCallEnd, ToolCallStart
from .partial_json import JsonPath
from .previews import FRAME, Documents, ToolCallPreview, with_previews


def preview_tools(
    *, every: float = FRAME, scheduler: abc.SchedulerBase | None = None
) -> Callable[[Observable[Delta]], Observable[Delta | ToolCallPreview]]:
    """Show the arguments of tool calls while they come.

    .. marble::

        ---Start(0)---Delta('{"a":"x')---Delta('yz')------------------------Delta('"}')---End(0)---|
        [                                  preview_tools()                                         ]
        ---Start(0)---Delta('{"a":"x')---Delta('yz')---Preview({"a":"xyz"})---Delta('"}')---End(0)---|

    Args:
        every: How long a frame is, in seconds; 1/30 by default. 0 shows each fragment at once.
        scheduler: Where the frames' timers run: by default the scheduler given at subscription; else the event loop of
            `iterate`, `for_each` or a `BackgroundLoop` behind it; else a thread of reactivex's `TimeoutScheduler`.
            Nothing is scheduled while nothing comes.

    Returns:
        An operator from deltas to the same deltas and, between them, a `ToolCallPreview` for each open call that has
        changed, at most one a frame for each.

        - emits: each delta at once; the previews of a frame at its end, which is `every` after the first fragment in
          it; what is still unseen of open calls before the end of the stream. None after a call's `ToolCallEnd`: what
          was unseen then, its `ToolCall` tells
        - holds back: copies of the fragments of a frame, unread; of each open call what was read of it
        - completes: with the source
        - fails: with the source only: arguments that are no JSON, too long or too deep stay as they were shown
    """
    return with_previews(_follow, every, scheduler)


def _follow(calls: Documents[ToolCallPreview], delta: Delta) -> bool:
    match delta:
        case ToolCallStart(index, _, name, choice):

            def show(value: Json, path: JsonPath | None) -> ToolCallPreview:
                return ToolCallPreview(index, name, value, path, choice)

            calls.open((choice, index), show)
        case ToolCallDelta(index, args, choice):
            calls.add((choice, index), args)
        case ToolCallEnd() | ToolCall():
            calls.close((delta.choice, delta.index))
        case _:
            pass
    return False
