"""`Call`: one tool call of `openai-chat`, whose name, id and end the servers tell as they like."""

from __future__ import annotations

import json
from collections.abc import Iterator

from rillet.operators import Delta, ToolCallDelta, ToolCallEnd, ToolCallStart, parse_arguments
from rillet.operators.errors import MalformedPayload, MalformedToolArguments
from rillet.operators.value import maker

# A call waits for its name and id before it is shown, but no longer than this many characters of arguments.
HELD_UNSHOWN = 65_536

FREE_LOOKS = 16

_make_fragment = maker(ToolCallDelta)


class Call:
    """One tool call, from its first head or fragment on.

    Args:
        index: Its number in the choice.
        choice: The choice it belongs to.
        is_text: It is of a custom tool, which takes raw text; that is wrapped as {"input": text}.

    Attributes:
        id: As far as it is known.
        name: As far as it is known.
        has_args: Arguments have come.
        closed: Its end was given.
    """

    def __init__(self, index: int, choice: int, *, is_text: bool) -> None:
        self.index = index
        self.choice = choice
        self.id = ""
        self.name = ""
        self.has_args = False
        self.closed = False
        self._is_text = is_text
        self._fragments: list[str] = []
        self._length = 0
        self._shown = False
        self._checked = 0  # the length last looked at
        self._looks = 0
        self._whole = False
        self._may_be_two = True

    @property
    def shows_where_it_ends(self) -> bool:
        """Whether its arguments tell by themselves that they are whole."""
        return self.has_args and not self._is_text

    def go_on(self, args: str) -> ToolCallDelta | None:
        """What a fragment gives while the call is shown and open; None where it takes `add` to tell."""
        if not self._shown or self.closed or self._is_text:
            return None
        self.has_args = self.has_args or not args.isspace()
        self._fragments.append(args)
        self._length += len(args)
        return _make_fragment(self.index, args, self.choice)

    def add(self, args: str) -> Iterator[Delta]:
        """What a fragment gives: nothing while the call waits for its name, its id or its first argument."""
        if not args:
            return
        if self.closed:
            if not args.isspace():
                raise MalformedPayload(f"goes on with tool call {self.index}, whose arguments were whole")
            return
        if self._is_text:
            args = ("" if self._fragments else '{"input":"') + json.dumps(args, ensure_ascii=False)[1:-1]
        self.has_args = self.has_args or not args.isspace()
        self._fragments.append(args)
        self._length += len(args)
        if self._shown:
            yield _make_fragment(self.index, args, self.choice)
        elif self.has_args and self.name and (self.id or self._length > HELD_UNSHOWN):
            yield from self.show()
        elif self._length > HELD_UNSHOWN and not self.name:
            raise MalformedPayload(f"sends {self._length:,} characters of arguments for a tool call without a name")

    def show(self) -> Iterator[Delta]:
        """Its start and what has come of its arguments, unless that was given."""
        if self._shown:
            return
        self._shown = True
        yield ToolCallStart(self.index, self.id, self.name, self.choice)
        for fragment in self._fragments:
            yield _make_fragment(self.index, fragment, self.choice)

    def close(self) -> Iterator[Delta]:
        """Its end, and before that what has not been given of it."""
        self.closed = True
        if self._is_text:
            self._fragments.append('"}' if self._fragments else '{"input":""}')
            if self._shown:
                yield _make_fragment(self.index, self._fragments[-1], self.choice)
        yield from self.show()
        if self.name:  # one that never got a name can't be run: it stays open, which the verdict reports
            yield ToolCallEnd(self.index, self.choice)

    def is_whole(self) -> bool:
        """Whether the arguments are one whole JSON value, so that nothing can follow."""
        if self.shows_where_it_ends and not self._whole and self._looks_worthwhile():
            self._checked = self._length
            self._looks += 1
            self._whole = self._is_json()
        return self._whole

    def _looks_worthwhile(self) -> bool:
        """Not twice at the same text; and after some tries, only at twice as much, so that all looks are linear."""
        return self._length > (self._checked if self._looks < FREE_LOOKS else 2 * self._checked)

    def _is_json(self) -> bool:
        if self._fragments[-1].rstrip()[-1:] not in '}"l':  # ends no object, string or null
            return False
        try:
            parse_arguments("".join(self._fragments))
        except MalformedToolArguments:
            return False
        return True

    def is_followed_by(self, args: str) -> bool:
        """Whether `args` begin a second call under the same name; a server that repeats names is asked once."""
        if not (self._may_be_two and args.startswith("{")):
            return False
        self._may_be_two = self.closed or self.is_whole()
        return self._may_be_two
