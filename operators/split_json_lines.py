"""`split_json_lines`: text in any pieces becomes the lines of newline-delimited JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import orjson
from reactivex import Observable

from .events import JsonLine
from .split_lines import MAX_LINE, SplitLines
from .stage import BatchStage, lift


class SplitJsonLines(BatchStage[str, JsonLine]):
    """The stage of `split_json_lines`. `lines` splits the text."""

    refuses = (bytes, bytearray, memoryview)

    def __init__(self, *, max_line: int | None = MAX_LINE) -> None:
        self.lines = SplitLines(max_line=max_line, eof="dispatch")

    def take(self, batch: Sequence[str]) -> tuple[Sequence[JsonLine], Exception | None]:
        lines, fault = self.lines.take(batch)
        return [JsonLine(line) for line in lines if line and not line.isspace()], fault

    def finish(self) -> Iterator[JsonLine]:
        for line in self.lines.finish():
            if _is_object(line):
                yield JsonLine(line)


def _is_object(line: str) -> bool:
    """Whether nothing is missing: no beginning of a JSON object is one itself."""
    try:
        return isinstance(orjson.loads(line), dict)
    except orjson.JSONDecodeError:
        return False


def split_json_lines(*, max_line: int | None = MAX_LINE) -> Callable[[Observable[str]], Observable[JsonLine]]:
    r"""Split newline-delimited JSON into its lines, without parsing them.

    .. marble::

        ---'{"a":'---'1}\n{'---'"a":2}'---|
        [       split_json_lines()        ]
        -----------'{"a":1}'--------------'{"a":2}'|

    Args:
        max_line: The longest line taken, in characters; 4 Mi by default, None for no limit.

    Returns:
        An operator from text to `JsonLine`.

        - emits: each line that is not blank, the moment it ends
        - holds back: the unfinished line
        - completes: with the source; a last line without its end counts where it is one whole JSON object
        - fails: `LimitExceeded`, the lines before it having been emitted

    Source: github.com/ndjson/ndjson-spec.
    """
    return lift(lambda: SplitJsonLines(max_line=max_line))
