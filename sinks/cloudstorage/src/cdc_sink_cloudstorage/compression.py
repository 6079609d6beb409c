"""Compression of file bodies, in pieces. The same pieces always give the same compressed bytes."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any, Protocol

import zstandard

EXTENSIONS = {"none": "", "gzip": ".gz", "zstd": ".zst"}
STATE_BYTES = {"none": 0, "gzip": 300_000, "zstd": 4_000_000}
"""About how much memory one open compressor holds, apart from the bytes that it has returned."""

_GZIP_LEVEL = 4
_GZIP_FORMAT = 31  # the largest window, with a gzip header; zlib writes neither name nor time into that header
_ZSTD_LEVEL = 3


class Compressor(Protocol):
    """Accepts the pieces of a body and returns compressed bytes, possibly none, as soon as they are final."""

    def compress(self, data: Any, /) -> bytes: ...

    def flush(self) -> bytes:
        """Return the rest. Called once, at the end."""
        ...


_NEW: dict[str, Callable[[], Compressor]] = {
    "gzip": lambda: zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, _GZIP_FORMAT),
    "zstd": lambda: zstandard.ZstdCompressor(level=_ZSTD_LEVEL, write_checksum=True).compressobj(),
}
_DECOMPRESS: dict[str, Callable[[bytes], bytes]] = {
    EXTENSIONS["gzip"]: lambda body: zlib.decompress(body, _GZIP_FORMAT),
    EXTENSIONS["zstd"]: lambda body: zstandard.ZstdDecompressor().decompressobj().decompress(body),
}


def new_compressor(compression: str) -> Compressor | None:
    """Return a compressor for one file, or None for "none"."""
    return None if compression == "none" else _NEW[compression]()


def decompressed(body: bytes, name: str) -> bytes:
    """Return *body*, decompressed if *name* ends with the extension of a compression."""
    for extension, decompress in _DECOMPRESS.items():
        if name.endswith(extension):
            return decompress(body)
    return body
