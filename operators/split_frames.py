"""`split_frames`: bytes in any pieces become the frames of AWS's binary event stream."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib import import_module
from typing import Any

from reactivex import Observable

from .decode_utf8 import MAX_BYTES
from .errors import LimitExceeded, MalformedPayload, TruncatedStream
from .events import EventFrame
from .stage import Stage, lift

PRELUDE = 12  # the lengths of the frame and of its headers, and their checksum
SMALLEST = 16  # a prelude, and the checksum of the whole
MAX_FRAME = 24 * 1024 * 1024


class SplitFrames(Stage[bytes, EventFrame]):
    """The stage of `split_frames`. `bytes_seen` counts what was fed."""

    refuses = (str,)

    def __init__(self, *, max_frame: int | None = MAX_FRAME, max_bytes: int | None = MAX_BYTES) -> None:
        _codec()  # told at once where it is missing
        self.bytes_seen = 0
        self._max_frame = max_frame
        self._max_bytes = max_bytes
        self._pending = bytearray()
        self._frame = None  # the codec's, once it has seen the prelude
        self._length = PRELUDE
        self._at = 0  # where the frame begins

    def feed(self, batch: Iterable[bytes]) -> Iterator[EventFrame]:
        for chunk in batch:
            start = self.bytes_seen
            self.bytes_seen += len(chunk)
            exceeds = self._max_bytes is not None and self.bytes_seen > self._max_bytes
            self._pending += chunk[: self._max_bytes - start] if exceeds and self._max_bytes is not None else chunk
            at = 0
            while len(self._pending) - at >= self._length:
                end = at + self._length
                yield from self._take(bytes(self._pending[at:end]))
                at = end
            del self._pending[:at]
            if exceeds and self._max_bytes is not None:
                raise LimitExceeded("max_bytes", self._max_bytes, "the stream")

    def finish(self) -> Iterator[EventFrame]:
        if self._pending or self._frame is not None:
            raise TruncatedStream(f"the stream ended inside a frame, after {self.bytes_seen:,} bytes")
        return iter(())

    def _take(self, piece: bytes) -> Iterator[EventFrame]:
        """A prelude, whose checksum is checked before its lengths are believed; or the rest of a frame."""
        try:
            if self._frame is None:
                self._begin(piece)
                return
            self._frame.add_data(piece)
            message = self._frame.next()
        except (_codec().ParserError, LookupError, struct.error, UnicodeDecodeError) as error:
            raise MalformedPayload(f"the frame at byte {self._at:,} is damaged: {type(error).__name__}") from error
        self._at += PRELUDE + self._length
        self._frame, self._length = None, PRELUDE
        yield EventFrame(message.headers, message.payload)

    def _begin(self, prelude: bytes) -> None:
        (total,) = struct.unpack_from(">I", prelude)
        frame = _codec().EventStreamBuffer()
        frame.add_data(prelude)
        next(frame, None)
        if total < SMALLEST:
            raise MalformedPayload(f"a frame says that it has {total} bytes, fewer than the smallest has")
        if self._max_frame is not None and total > self._max_frame:
            raise LimitExceeded("max_frame", self._max_frame, "a frame")
        self._frame, self._length = frame, total - PRELUDE


@cache
def _codec() -> Any:
    """Botocore's codec, which has no types and is not always installed."""
    try:
        return import_module("botocore.eventstream")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("the binary event stream needs botocore: pip install 'rillet[bedrock]'") from error


def split_frames(
    *, max_frame: int | None = MAX_FRAME, max_bytes: int | None = MAX_BYTES
) -> Callable[[Observable[bytes]], Observable[EventFrame]]:
    """Split AWS's binary event stream (`application/vnd.amazon.eventstream`) into its frames.

    .. marble::

        ---bytes---bytes---bytes---|
        [      split_frames()      ]
        -----------Frame---Frame---|

    Needs the extra `bedrock`: the codec is botocore's.

    Args:
        max_frame: The longest frame taken, in bytes; 24 MiB by default, None for the codec's own limit.
        max_bytes: The longest stream taken, in bytes; 256 MiB by default, None for no limit.

    Returns:
        An operator from bytes to `EventFrame`.

        - emits: each frame whose two checksums are right
        - holds back: the unfinished frame
        - completes: with the source
        - fails: `MalformedPayload` where a checksum or a length is wrong; `TruncatedStream` where the source ends
          inside a frame; `LimitExceeded`

    Source: Smithy, Amazon Event Stream Specification.
    """
    return lift(lambda: SplitFrames(max_frame=max_frame, max_bytes=max_bytes))
