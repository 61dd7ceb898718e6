"""`Calls`: the tool calls of a dialect that says where each begins and ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rillet.operators import ToolCallDelta, ToolCallEnd, ToolCallStart
from rillet.operators.errors import MalformedPayload
from rillet.operators.value import maker

_make_fragment = maker(ToolCallDelta)


class Calls:
    """The calls of one choice, by the provider's own index.

    Attributes:
        any: Whether there has been one.
        next_index: The number after the highest one so far.
    """

    def __init__(self, choice: int = 0) -> None:
        self.any = False
        self.next_index = 0
        self._choice = choice
        self._open: dict[int, bool] = {}  # whether arguments have come
        self._closed: set[int] = set()

    def __contains__(self, index: int) -> bool:
        """Whether the call is open."""
        return index in self._open

    def has_args(self, index: int) -> bool:
        """Whether arguments have come for an open call."""
        return self._open[index]

    def was_closed(self, index: int) -> bool:
        """Whether there was such a call, and it is over."""
        return index in self._closed

    def start(self, index: int, id: str, name: str) -> ToolCallStart:
        """The call opens.

        Raises:
            MalformedPayload: It has been opened before, or has no name.
        """
        if index in self._open or index in self._closed:
            raise MalformedPayload(f"starts tool call {index} a second time")
        if not name:
            raise MalformedPayload(f"starts tool call {index} without a name")
        self.any = True
        self.next_index = max(self.next_index, index + 1)
        self._open[index] = False
        return ToolCallStart(index, id, name, self._choice)

    def add(self, index: int, args: str) -> Sequence[ToolCallDelta]:
        """A fragment of its arguments; an empty one gives nothing.

        Raises:
            MalformedPayload: The call is not open.
        """
        if index not in self._open:
            raise MalformedPayload(f"goes on with tool call {index}, which is not open")
        if not args:
            return ()
        self._open[index] = True
        return (_make_fragment(index, args, self._choice),)

    def go_on(self, index: int, args: str) -> ToolCallDelta | None:
        """One more fragment, which is not empty, of a call that has some; None where the call is not open."""
        return _make_fragment(index, args, self._choice) if index in self._open else None

    def end(self, index: int) -> ToolCallEnd:
        """The call closes.

        Raises:
            MalformedPayload: It is not open.
        """
        if index not in self._open:
            raise MalformedPayload(f"ends tool call {index}, which is not open")
        del self._open[index]
        self._closed.add(index)
        return ToolCallEnd(index, self._choice)

    def whole(self, id: str, name: str, args: str) -> Iterator[ToolCallStart | ToolCallDelta | ToolCallEnd]:
        """A call that comes in one piece, under the next free index."""
        index = self.next_index
        yield self.start(index, id, name)
        yield from self.add(index, args)
        yield self.end(index)
