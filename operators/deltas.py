"""What flows once the payloads are read: the closed union `Delta`, and the `Message` that sums a choice up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from .value import value

FinishReason: TypeAlias = Literal["stop", "length", "tool_calls", "content_filter", "refusal", "other"]
"""Why a choice ended, in one vocabulary for all providers."""

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"
"""A value as strict JSON gives it."""


@value
class TextDelta:
    """A piece of the answer's text; never empty."""

    text: str
    choice: int = 0


@value
class ReasoningDelta:
    """A piece of the model's reasoning, or of its summary; never empty."""

    text: str
    choice: int = 0


@value
class RefusalDelta:
    """A piece of a refusal that the provider keeps apart from the text; never empty."""

    text: str
    choice: int = 0


@value
class ToolCallStart:
    """A tool call opens. `id` is "" where the provider gives none."""

    index: int
    id: str
    name: str
    choice: int = 0


@value
class ToolCallDelta:
    """A fragment of the JSON text of a call's arguments: for display, never to be run."""

    index: int
    args: str
    choice: int = 0


@value
class ToolCallEnd:
    """The provider closed the call: no fragment follows."""

    index: int
    choice: int = 0


@value
class ToolCall:
    """A finished tool call: it was closed, and its arguments are one strict JSON object.

    Attributes:
        index: Its number in the choice: the provider's own, or the next free one.
        id: The id to answer with, "" where the provider gives none.
        name: The tool's name.
        args: The arguments; integers are exact at any size.
        args_text: The arguments as the provider sent them.
        choice: The choice it belongs to.
    """

    index: int
    id: str
    name: str
    args: dict[str, Json]
    args_text: str
    choice: int = 0


@value
class Usage:
    """Tokens so far: cumulative, a later one replaces an earlier one.

    Attributes:
        input_tokens: Tokens of the prompt, None where the provider does not say.
        output_tokens: Tokens of the answer, None where the provider does not say.
        total_tokens: Their sum as the provider counts it, None where it does not say.
        raw: The provider's own figures.
    """

    input_tokens: int | None
    output_tokens: int | None
    total_tokens: int | None
    raw: Mapping[str, Json]


@value
class Finish:
    """A choice ended. `raw` is the provider's own word for the reason."""

    reason: FinishReason
    raw: str
    choice: int = 0


@value
class ProviderEvent:
    """Something only this provider sends; comes with `extras=True` alone.

    Attributes:
        kind: What the provider calls it.
        payload: What it sent, as parsed.
    """

    kind: str
    payload: Json


@value
class Done:
    """The provider's contract was met: the answer arrived whole. Nothing follows."""


Delta: TypeAlias = (
    TextDelta
    | ReasoningDelta
    | RefusalDelta
    | ToolCallStart
    | ToolCallDelta
    | ToolCallEnd
    | ToolCall
    | Usage
    | Finish
    | ProviderEvent
    | Done
)
"""Everything a stream can give, as one closed union: a `match` over it can be checked for completeness."""


@value
class Attempt:
    """A new attempt at the whole answer begins: whatever came before it is void, and must be thrown away.

    It stands beside `Delta`, not in it: it comes from `attempts` alone.

    Attributes:
        number: Which attempt this is; the first, which nothing announces, is 1.
    """

    number: int


def is_attempt(item: object) -> bool:
    """Whether it is an `Attempt`: operators over deltas then forget what they hold."""
    return isinstance(item, Attempt)


PASSING = frozenset((TextDelta, ReasoningDelta, RefusalDelta, Usage, Finish, ProviderEvent))
"""The kinds that concern neither a tool call nor the end."""


def only_passing(deltas: Sequence[Delta]) -> bool:
    """Whether none of them concerns a tool call or the end, as few do: what follows those need not look closer."""
    if len(deltas) == 1:  # as mostly; in half the time
        return type(deltas[0]) in PASSING
    return PASSING.issuperset(map(type, deltas))


@value
class Message:
    """One choice, summed up: what arrived of it, whether or not the stream went on to fail.

    Attributes:
        text: The answer's text.
        reasoning: The reasoning, or its summary.
        refusal: The refusal, where the provider keeps it apart.
        tool_calls: The finished calls, by index; never one that was cut.
        finish: Why it ended, None where it did not.
        usage: The last figures for the whole response, None where there were none.
        choice: Its number among the alternatives asked for.
    """

    text: str = ""
    reasoning: str = ""
    refusal: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    finish: Finish | None = None
    usage: Usage | None = None
    choice: int = 0
