"""`decompress`: a compressed body becomes what it was, piece by piece."""

from __future__ import annotations

import importlib
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, cast

from reactivex import Observable

from .errors import TransportError, TruncatedStream
from .stage import Stage, lift

PIECE = 64 * 1024
MOUTHFUL = 16 * 1024  # the codecs copy what they have not read yet for each piece and each member
ZSTD_WINDOW = 23  # its binary logarithm: the 8 MiB that RFC 9659 lets HTTP use, of the gigabytes that the format has
GZIP, ZLIB, RAW = 31, 15, -15  # zlib's wbits


class _Member(Protocol):
    """One compressed unit of a body; gzip and zstd may have several, one after another."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


class _Inflate:
    """zlib's decompressor, with what it has not consumed kept inside."""

    def __init__(self, wbits: int) -> None:
        self._inner = zlib.decompressobj(wbits)

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        return self._inner.decompress(self._inner.unconsumed_tail + data, max_length)


class _Deflate(_Inflate):
    """HTTP's "deflate": zlib's format by the standard, raw by the habit of some servers. The first byte tells."""

    def __init__(self) -> None:
        super().__init__(ZLIB)
        self._fresh = True

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        if self._fresh and data:
            self._fresh = False
            if data[0] & 0x0F != zlib.DEFLATED:
                super().__init__(RAW)
                self._fresh = False
        return super().decompress(data, max_length)


class _BrotliObject(Protocol):
    def process(self, data: bytes, *, output_buffer_limit: int) -> bytes: ...
    def is_finished(self) -> bool: ...


class _Brotli:
    """Brotli's decompressor; nothing may follow its end."""

    unused_data = b""

    def __init__(self) -> None:
        module = importlib.import_module("brotli")
        self._inner = cast("_BrotliObject", module.Decompressor())

    @property
    def eof(self) -> bool:
        return self._inner.is_finished()

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        return self._inner.process(data, output_buffer_limit=max_length)


def _zstd() -> _Member:
    module = importlib.import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")
    options = {module.DecompressionParameter.window_log_max: ZSTD_WINDOW}
    return cast("_Member", module.ZstdDecompressor(options=options))


_MEMBERS: dict[str, Callable[[], _Member]] = {
    "gzip": lambda: _Inflate(GZIP),
    "x-gzip": lambda: _Inflate(GZIP),
    "deflate": _Deflate,
    "br": _Brotli,
    "zstd": _zstd,
}

_SINGLE = frozenset(("br",))  # nothing may follow the end: the codec says so, where it is given more


class Decompress(Stage[bytes, bytes]):
    """The stage of `decompress`. It is lazy: of a bomb, no more is unpacked than is handed on.

    Args:
        encoding: The content encoding.
        paced: Whether what gives nothing gives an empty piece: a bomb inside a bomb may give nothing for hours, and
            whoever unpacks it wants to have its turns.
    """

    lazy = True
    refuses = (str,)

    def __init__(self, encoding: str, *, paced: bool = False) -> None:
        if encoding not in _MEMBERS:
            raise ValueError(f"no content encoding {encoding!r}; there are {', '.join(_MEMBERS)}")
        self._encoding = encoding
        self._paced = paced
        self._new = _MEMBERS[encoding]
        self._member = self._new()
        self._bytes_seen = 0

    def feed(self, batch: Iterable[bytes]) -> Iterator[bytes]:
        for chunk in batch:
            nothing = self._paced
            for start in range(0, len(chunk), MOUTHFUL):
                mouthful = chunk[start : start + MOUTHFUL]
                for piece in self._unpacked(mouthful):
                    nothing = False
                    yield piece
                self._bytes_seen += len(mouthful)
            if nothing:
                yield b""

    def finish(self) -> Iterator[bytes]:
        if self._bytes_seen and not self._member.eof:
            raise TruncatedStream(
                f"the {self._encoding} body ended after {self._bytes_seen:,} bytes, without its own end",
                bytes_seen=self._bytes_seen,
            )
        yield from ()

    def _unpacked(self, data: bytes) -> Iterator[bytes]:
        while True:
            if self._member.eof and data and self._encoding not in _SINGLE:
                self._member = self._new()
            piece = self._decompressed(data)
            if piece:
                yield piece
            data = self._member.unused_data if self._member.eof else b""
            # A member that filled the piece may have more to give, though all its input is taken.
            if not data and len(piece) < PIECE:
                return

    def _decompressed(self, data: bytes) -> bytes:
        if self._member.eof and not data:
            return b""
        try:
            return self._member.decompress(data, PIECE)
        except Exception as error:  # each codec has an error of its own
            raise TransportError(
                f"the {self._encoding} body is damaged, after about {self._bytes_seen:,} bytes",
                bytes_seen=self._bytes_seen,
            ) from error


def decompress(encoding: str) -> Callable[[Observable[bytes]], Observable[bytes]]:
    """Decompress a body as it comes, in pieces of 96 KiB at most.

    .. marble::

        ---gzipped------gzipped---|
        [   decompress("gzip")    ]
        ---bytes-bytes--bytes-----|

    `bytes_from` does this by itself.

    Args:
        encoding: The content encoding: "gzip", "deflate", "br" or "zstd"; the last two need the extra `compress`.

    Returns:
        An operator from bytes to bytes.

        - emits: what is unpacked, at once
        - holds back: what the compressor's format does
        - completes: with the source
        - fails: `TruncatedStream` where the source ends before the compressed format does; `TransportError` where the
          bytes are damaged

    Raises:
        ValueError: There is no such encoding.
        ModuleNotFoundError: Its package is not installed.

    Source: RFC 9110 §8.4.1, RFC 7932, RFC 8878, RFC 9659.
    """
    Decompress(encoding)
    return lift(lambda: Decompress(encoding))
