"""`FrameJsonLines`: `decode_utf8` and `split_json_lines` as one stage, for chains that need both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .decode_utf8 import MAX_BYTES, DecodeUtf8
from .events import JsonLine, WireEvent
from .split_json_lines import SplitJsonLines
from .split_lines import MAX_LINE
from .stage import BatchStage, Chain
from .value import maker

_make_line = maker(JsonLine)


class FrameJsonLines(BatchStage[bytes, WireEvent]):
    """From bytes to the lines of newline-delimited JSON: the two stages, whose state it is.

    Args:
        max_bytes, max_line: See the two operators.
    """

    refuses = (str,)

    def __init__(self, *, max_bytes: int | None = MAX_BYTES, max_line: int | None = MAX_LINE) -> None:
        self._decode = DecodeUtf8(max_bytes=max_bytes)
        self._split = SplitJsonLines(max_line=max_line)
        self._chain: Chain[bytes, WireEvent] = Chain(self._decode, self._split)

    def take(self, batch: Sequence[bytes]) -> tuple[Sequence[WireEvent], Exception | None]:
        decode, lines = self._decode, self._split.lines
        if len(batch) != 1 or decode.tail or decode.at_start or lines.after_cr:
            return self._chain.take(batch)
        chunk = batch[0]
        size = len(chunk)
        seen = decode.bytes_seen + size
        if seen > decode.limit or lines.pending + size > lines.limit:
            return self._chain.take(batch)
        try:
            text = chunk.decode()
        except UnicodeDecodeError:
            return self._chain.take(batch)
        if "\r" in text:
            return self._chain.take(batch)
        decode.bytes_seen = seen
        return [_make_line(line) for line in lines.cut(text) if line and not line.isspace()], None

    def finish(self) -> Iterator[WireEvent]:
        return self._chain.finish()
