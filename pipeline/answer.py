"""`Answer`: the sum of the deltas of one answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from io import StringIO

from rillet.operators import (
    Attempt,
    Delta,
    Finish,
    Message,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    Usage,
)


# What waits to be summed up, which costs half as much together as one by one.
_TOGETHER = 16
_NO_SUMS = frozenset((TextDelta, ReasoningDelta, RefusalDelta, ToolCallDelta))


class Answer:
    """What has arrived of an answer: add its deltas, and read its messages at any time."""

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        self._arrived = False
        self._waiting: list[Delta] = []
        self._text: dict[int, StringIO] = {}
        self._reasoning: dict[int, StringIO] = {}
        self._refusal: dict[int, StringIO] = {}
        self._calls: dict[int, list[ToolCall]] = {}
        self._finishes: dict[int, Finish] = {}
        self._usage: Usage | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing has arrived."""
        return not (self._arrived or self._waiting)

    def add(self, delta: Delta | Attempt) -> None:
        """Add the next delta; the cost does not grow with what is there. An `Attempt` starts afresh."""
        if isinstance(delta, Attempt):
            self._start()
            self._arrived = True
        else:
            self.extend((delta,))

    def extend(self, deltas: Iterable[Delta]) -> None:
        """Add the next deltas."""
        self._waiting += deltas
        if len(self._waiting) >= _TOGETHER:
            self._sum_up()

    def _sum_up(self) -> None:
        """Add what waits. Texts are joined without a look at each."""
        deltas, self._waiting = self._waiting, []
        kinds = {*map(type, deltas)}
        self._arrived = self._arrived or bool(kinds)
        if TextDelta in kinds:
            _write(self._text, [delta for delta in deltas if isinstance(delta, TextDelta)])
        if ReasoningDelta in kinds:
            _write(self._reasoning, [delta for delta in deltas if isinstance(delta, ReasoningDelta)])
        if RefusalDelta in kinds:
            _write(self._refusal, [delta for delta in deltas if isinstance(delta, RefusalDelta)])
        for delta in () if kinds <= _NO_SUMS else deltas:
            if isinstance(delta, Usage):
                self._usage = delta
            elif isinstance(delta, ToolCall):
                self._calls.setdefault(delta.choice, []).append(delta)
            elif isinstance(delta, Finish):
                self._finishes[delta.choice] = delta

    @property
    def messages(self) -> tuple[Message, ...]:
        """One `Message` for each choice that has said something; the first has the usage where none has."""
        self._sum_up()
        choices = {*self._text, *self._reasoning, *self._refusal, *self._calls, *self._finishes}
        if not choices and self._usage is not None:
            choices = {0}
        return tuple(self.message(choice) for choice in sorted(choices))

    def message(self, choice: int = 0) -> Message:
        """What has arrived of one choice."""
        self._sum_up()
        return Message(
            _value(self._text.get(choice)),
            _value(self._reasoning.get(choice)),
            _value(self._refusal.get(choice)),
            tuple(sorted(self._calls.get(choice, ()), key=lambda call: call.index)),
            self._finishes.get(choice),
            self._usage,
            choice,
        )


def _write(texts: dict[int, StringIO], deltas: Sequence[TextDelta | ReasoningDelta | RefusalDelta]) -> None:
    """Append pieces of text, each to its choice's."""
    for choice in {delta.choice for delta in deltas}:
        pieces = [delta.text for delta in deltas if delta.choice == choice]
        texts.setdefault(choice, StringIO()).write("".join(pieces))


def _value(text: StringIO | None) -> str:
    return text.getvalue() if text else ""
