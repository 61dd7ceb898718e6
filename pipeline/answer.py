"""`Answer`: the sum of the deltas of one answer."""

from __future__ import annotations

from collections.abc import Iterable

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

_BLOCK = 64  # pieces


class Answer:
    """What has arrived of an answer: add its deltas, and read its messages at any time.

    Attributes:
        is_empty: Nothing has arrived.
    """

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        self.is_empty = True
        self._text: dict[int, _Text] = {}
        self._reasoning: dict[int, _Text] = {}
        self._refusal: dict[int, _Text] = {}
        self._calls: dict[int, list[ToolCall]] = {}
        self._finishes: dict[int, Finish] = {}
        self._usage: Usage | None = None

    def add(self, delta: Delta | Attempt) -> None:
        """Add the next delta; the cost does not grow with what is there. An `Attempt` starts afresh."""
        self.extend((delta,))

    def extend(self, deltas: Iterable[Delta | Attempt]) -> None:
        """Add the next deltas."""
        for delta in deltas:
            if type(delta) is TextDelta:  # isinstance takes three times as long to say no
                texts = self._text
            elif type(delta) is ReasoningDelta:
                texts = self._reasoning
            elif type(delta) is RefusalDelta:
                texts = self._refusal
            elif type(delta) is Usage:  # some providers send their figures with every piece of text
                self.is_empty = False
                self._usage = delta
                continue
            else:
                self._add_other(delta)
                continue
            self.is_empty = False
            if delta.choice not in texts:
                texts[delta.choice] = _Text()
            text = texts[delta.choice]
            text.pieces.append(delta.text)  # a method for these lines would cost as much as they do
            if len(text.pieces) == _BLOCK:
                text.pack()

    def _add_other(self, delta: Delta | Attempt) -> None:
        self.is_empty = False
        match delta:
            case ToolCallDelta():
                pass  # the call has it in the end
            case ToolCall():
                self._calls.setdefault(delta.choice, []).append(delta)
            case Finish():
                self._finishes[delta.choice] = delta
            case Attempt():
                self._start()
            case TextDelta(text, choice):  # of a subclass, as the next three
                self.add(TextDelta(text, choice))
            case ReasoningDelta(text, choice):
                self.add(ReasoningDelta(text, choice))
            case RefusalDelta(text, choice):
                self.add(RefusalDelta(text, choice))
            case Usage():
                self._usage = delta
            case _:
                pass

    @property
    def messages(self) -> tuple[Message, ...]:
        """One `Message` for each choice that has said something; the first has the usage where none has."""
        choices = {*self._text, *self._reasoning, *self._refusal, *self._calls, *self._finishes}
        if not choices and self._usage is not None:
            choices = {0}
        return tuple(self.message(choice) for choice in sorted(choices))

    def message(self, choice: int = 0) -> Message:
        """What has arrived of one choice."""
        return Message(
            _value(self._text.get(choice)),
            _value(self._reasoning.get(choice)),
            _value(self._refusal.get(choice)),
            tuple(sorted(self._calls.get(choice, ()), key=lambda call: call.index)),
            self._finishes.get(choice),
            self._usage,
            choice,
        )


def _value(text: _Text | None) -> str:
    return text.joined() if text else ""


class _Text:
    """A text that grows piece by piece.

    They are joined `_BLOCK` at a time: one by one they take about ten times the memory of their characters, and before
    Python 3.12 `StringIO` keeps them apart, too.
    """

    __slots__ = ("_blocks", "pieces")

    def __init__(self) -> None:
        self._blocks: list[str] = []
        self.pieces: list[str] = []

    def pack(self) -> None:
        """Join the pieces."""
        self._blocks.append("".join(self.pieces))
        self.pieces.clear()

    def joined(self) -> str:
        """The whole text so far."""
        return "".join(self._blocks + self.pieces)
