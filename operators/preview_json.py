"""`preview_json`: what is certain of an answer that is itself JSON, once a frame."""

from __future__ import annotations

from collections.abc import Callable

from reactivex import Observable, abc

from .deltas import Delta, Done, Finish, Json, TextDelta
from .partial_json import JsonPath
from .previews import FRAME, Documents, JsonPreview, with_previews


def preview_json(
    *, every: float = FRAME, scheduler: abc.SchedulerBase | None = None
) -> Callable[[Observable[Delta]], Observable[Delta | JsonPreview]]:
    """Show an answer that is JSON, as structured output is, while it comes.

    .. marble::

        ---Text('{"a":[1')---Text(',2')-------------------Text(']}')------------------------Done---|
        [                                  preview_json()                                          ]
        ---Text('{"a":[1')---Text(',2')---Preview({"a":[1]})---Text(']}')---Preview({"a":[1,2]})-Done---|

    The text of each choice is one document. Whether it fits a schema is the caller's to check, for what `open_path`
    tells to be final.

    Args:
        every: How long a frame is, in seconds; 1/30 by default. 0 shows each piece of text at once.
        scheduler: Where the frames' timers run: by default the scheduler given at subscription; else the event loop of
            `iterate`, `for_each` or a `BackgroundLoop` behind it; else a thread of reactivex's `TimeoutScheduler`.
            Nothing is scheduled while nothing comes.

    Returns:
        An operator from deltas to the same deltas and, between them, a `JsonPreview` for each choice whose document
        has changed, at most one a frame for each.

        - emits: each delta at once; the previews of a frame at its end, which is `every` after the first text in it;
          what is still unseen before a `Finish`, before `Done`, and before the end of the stream
        - holds back: copies of the text of a frame, unread; of each choice what was read of it
        - completes: with the source
        - fails: with the source only: text that is no JSON, too long or too deep stays as it was shown
    """
    return with_previews(_follow, every, scheduler)


def _follow(answers: Documents[JsonPreview], delta: Delta) -> bool:
    match delta:
        case TextDelta(text, choice):

            def show(value: Json, path: JsonPath | None) -> JsonPreview:
                return JsonPreview(value, path, choice)

            if choice not in answers:
                answers.open(choice, show)
            answers.add(choice, text)
            return False
        case _:
            return isinstance(delta, (Finish, Done))
