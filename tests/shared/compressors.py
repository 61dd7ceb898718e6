"""Compressors with the names of zlib's, for the tests that send or cut compressed bodies."""

from __future__ import annotations

import importlib
import sys
import zlib
from collections.abc import Callable
from typing import Any, TypeAlias

import brotli

zstd: Any = importlib.import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")

Codec: TypeAlias = tuple[str, Callable[[], Any]]
"""A content encoding, and what makes a compressor for it."""


class Brotli:
    """Brotli's compressor, with the names of zlib's."""

    def __init__(self) -> None:
        self._inner = brotli.Compressor()

    def compress(self, data: bytes) -> bytes:
        return bytes(self._inner.process(data))

    def flush(self, mode: int = zlib.Z_FINISH) -> bytes:
        return bytes(self._inner.flush() if mode == zlib.Z_SYNC_FLUSH else self._inner.finish())


class Zstd:
    """The same for zstd."""

    def __init__(self) -> None:
        self._inner = zstd.ZstdCompressor(options={zstd.CompressionParameter.checksum_flag: 1})

    def compress(self, data: bytes) -> bytes:
        return bytes(self._inner.compress(data))

    def flush(self, mode: int = zlib.Z_FINISH) -> bytes:
        inner = self._inner
        return bytes(inner.flush(inner.FLUSH_BLOCK if mode == zlib.Z_SYNC_FLUSH else inner.FLUSH_FRAME))


CODECS: dict[str, Codec] = {
    "gzip": ("gzip", lambda: zlib.compressobj(wbits=31)),
    "x-gzip": ("x-gzip", lambda: zlib.compressobj(wbits=31)),
    "zlib": ("deflate", lambda: zlib.compressobj(wbits=15)),
    "raw deflate": ("deflate", lambda: zlib.compressobj(wbits=-15)),
    "brotli": ("br", Brotli),
    "zstd": ("zstd", Zstd),
}
