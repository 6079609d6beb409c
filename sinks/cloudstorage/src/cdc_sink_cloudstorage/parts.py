"""Large bodies in the parts that object stores take one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cdc_sink_cloudstorage.store import Chunk

__all__ = ["PART_BYTES", "parts_of"]

PART_BYTES = 8 * 1024 * 1024
"""A part has at least this many bytes, and less than twice as many; S3 takes none below 5 MB but the last."""


def parts_of(chunks: Sequence[Chunk], nbytes: int) -> Iterator[bytes]:
    """Yield *chunks* in pieces of about one size, at least PART_BYTES each; less in one piece."""
    size = max(1, -(-nbytes // max(1, nbytes // PART_BYTES)))
    part: list[memoryview] = []
    missing = size
    for chunk in chunks:
        rest = memoryview(chunk).cast("B")
        while len(rest) >= missing:
            yield b"".join([*part, rest[:missing]])
            part, rest, missing = [], rest[missing:], size
        if len(rest):
            part.append(rest)
            missing -= len(rest)
    if part:
        yield b"".join(part)
