"""`decode_utf8`: bytes in any pieces become text."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from reactivex import Observable

from .errors import InvalidUtf8, LimitExceeded, StreamError, TruncatedStream
from .stage import BatchStage, lift

MAX_BYTES = 256 * 1024 * 1024
BOM = "\N{ZERO WIDTH NO-BREAK SPACE}"


class DecodeUtf8(BatchStage[bytes, str]):
    """The stage of `decode_utf8`. `bytes_seen` counts what was fed."""

    refuses = (str,)

    def __init__(self, *, errors: Literal["strict", "replace"] = "strict", max_bytes: int | None = MAX_BYTES) -> None:
        self.bytes_seen = 0
        self.errors = errors
        self.tail = b""
        self.limit = float("inf") if max_bytes is None else max_bytes
        self.at_start = True

    def take(self, batch: Sequence[bytes]) -> tuple[Sequence[str], Exception | None]:
        texts: list[str] = []
        fault: StreamError | None = None
        for chunk in batch:
            start = self.bytes_seen
            self.bytes_seen = seen = start + len(chunk)
            if seen > self.limit:
                chunk = chunk[: int(self.limit) - start]
                fault = LimitExceeded("max_bytes", int(self.limit), "the stream")
            data = self.tail + chunk if self.tail else chunk
            try:
                text, used = codecs.utf_8_decode(data, self.errors, False)
            except UnicodeDecodeError as error:
                text, used = data[: error.start].decode(), len(data)
                fault = InvalidUtf8(start - len(self.tail) + error.start)
            self.tail = data[used:]
            if text and self.at_start:
                self.at_start = False
                text = text.removeprefix(BOM)
            if text:
                texts.append(text)
            if fault is not None:
                break
        return texts, fault

    def finish(self) -> Iterator[str]:
        if self.tail and self.errors == "strict":
            raise TruncatedStream(f"the stream ended inside a character, after {self.bytes_seen:,} bytes")
        if self.tail:
            yield codecs.utf_8_decode(self.tail, self.errors, True)[0]


def decode_utf8(
    *, errors: Literal["strict", "replace"] = "strict", max_bytes: int | None = MAX_BYTES
) -> Callable[[Observable[bytes]], Observable[str]]:
    """Decode UTF-8, however the bytes are cut.

    .. marble::

        ---"Caf" C3---A9 "!"---|
        [   decode_utf8()      ]
        ---"Caf"------"é!"-----|

    Args:
        errors: "strict" (the default) fails at a byte that is not UTF-8; "replace" puts U+FFFD there, as browsers do.
        max_bytes: The longest stream taken, in bytes; 256 MiB by default, None for no limit.

    Returns:
        An operator from bytes to text.

        - emits: text, as soon as whole characters are there; one byte order mark at byte 0 is dropped
        - holds back: an unfinished character, at most 3 bytes
        - completes: with the source
        - fails: `InvalidUtf8` with the byte's offset, what came before it having been emitted; `TruncatedStream` where
          the source ends inside a character; `LimitExceeded`

    Source: HTML Standard §9.2.5 (streams are UTF-8), Encoding Standard §8.1.1 (UTF-8 decode).
    """
    return lift(lambda: DecodeUtf8(errors=errors, max_bytes=max_bytes))
