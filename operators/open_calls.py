"""`OpenCalls`: the tool calls that have started and not ended, with their fragments so far."""

from __future__ import annotations

from typing import TypeAlias

from .deltas import ToolCallStart


class OpenCall:
    """A call, and what has come of its arguments.

    Attributes:
        start: How it started.
        fragments: Its fragments.
        length: Their length, in characters.
    """

    __slots__ = ("fragments", "length", "start")

    def __init__(self, start: ToolCallStart) -> None:
        self.start = start
        self.fragments: list[str] = []
        self.length = 0


OpenCalls: TypeAlias = dict[tuple[int, int], OpenCall]
"""The open calls by choice and index."""
