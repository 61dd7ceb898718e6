"""`shortened`: stages in a row, where one does the work of some of them in less time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .decode_deltas import DecodeDeltas
from .decode_utf8 import DecodeUtf8
from .frame_sse import FrameSse
from .group_events import GroupEvents
from .skim_sse import SkimSse
from .split_lines import SplitLines
from .stage import Stage


def shortened(stages: Iterable[Stage[Any, Any]]) -> list[Stage[Any, Any]]:
    """The same stages, with their own state, joined where there is a shorter way through several of them.

    Args:
        stages: The stages, in the order of the flow.
    """
    made: list[Stage[Any, Any]] = []
    for stage in stages:
        made.append(stage)
        match made:
            case [*_, DecodeUtf8() as decode, SplitLines() as split, GroupEvents(lazy=False) as group]:
                made[-3:] = [FrameSse(decode, split, group)]
            case [*_, FrameSse() as frame, DecodeDeltas(template=template) as decode] if template is not None:
                made[-2:] = [SkimSse(frame, decode, template)]
            case _:
                pass
    return made
