"""`decode_utf8`: bytes in any pieces become text."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable, Iterator
from typing import Literal

from reactivex import Observable

from .errors import InvalidUtf8, LimitExceeded, StreamError, TruncatedStream
from .stage import Stage, lift

MAX_BYTES = 256 * 1024 * 1024
BOM = "\N{ZERO WIDTH NO-BREAK SPACE}"


class DecodeUtf8(Stage[bytes, str]):
    """The stage of `decode_utf8`. `bytes_seen` counts what was fed."""

    def __init__(self, *, errors: Literal["strict", "replace"] = "strict", max_bytes: int | None = MAX_BYTES) -> None:
        self.bytes_seen = 0
        self._errors = errors
        self._tail = b""
        self._max_bytes = max_bytes
        self._at_start = True

    def feed(self, batch: Iterable[bytes]) -> Iterator[str]:
        for chunk in batch:
            start = self.bytes_seen
            self.bytes_seen += len(chunk)
            fault: StreamError | None = None
            if self._max_bytes is not None and self.bytes_seen > self._max_bytes:
                chunk = chunk[: self._max_bytes - start]
                fault = LimitExceeded("max_bytes", self._max_bytes, "the stream")
            try:
                data = self._tail + chunk if self._tail else chunk
                text, used = codecs.utf_8_decode(data, self._errors, False)
                self._tail = data[used:]
            except UnicodeDecodeError as error:
                whole = error.object  # the bytes held back, then the chunk
                text = whole[: error.start].decode()
                fault = InvalidUtf8(start + len(chunk) - len(whole) + error.start)
            if text and self._at_start:
                self._at_start = False
                text = text.removeprefix(BOM)
            if text:
                yield text
            if fault is not None:
                raise fault

    def finish(self) -> Iterator[str]:
        if self._tail and self._errors == "strict":
            raise TruncatedStream(f"the stream ended inside a character, after {self.bytes_seen:,} bytes")
        if self._tail:
            yield codecs.utf_8_decode(self._tail, self._errors, True)[0]


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
