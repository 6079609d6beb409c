"""Streaming compression of file bodies. The same bytes in the same pieces always give the same bytes out."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any, Protocol

import zstandard

__all__ = ["EXTENSIONS", "STATE_BYTES", "Compressor", "new_compressor"]

EXTENSIONS = {"none": "", "gzip": ".gz", "zstd": ".zst"}
STATE_BYTES = {"none": 0, "gzip": 300_000, "zstd": 4_000_000}
"""Memory that one open compressor holds besides what it has returned, about."""

_GZIP_LEVEL = 4
_GZIP_FORMAT = 31  # the largest window, with gzip's header; zlib leaves name and mtime out of that header
_ZSTD_LEVEL = 3


class Compressor(Protocol):
    """Takes pieces of a body and returns compressed bytes, possibly none, as they become final."""

    def compress(self, data: Any, /) -> bytes: ...

    def flush(self) -> bytes:
        """Return the rest. Called once, at the end."""
        ...


_NEW: dict[str, Callable[[], Compressor]] = {
    "gzip": lambda: zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, _GZIP_FORMAT),
    "zstd": lambda: zstandard.ZstdCompressor(level=_ZSTD_LEVEL, write_checksum=True).compressobj(),
}


def new_compressor(compression: str) -> Compressor | None:
    """Return a compressor for one file, or None for "none"."""
    return None if compression == "none" else _NEW[compression]()
