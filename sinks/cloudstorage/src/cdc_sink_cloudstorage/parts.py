"""Splits a large body into the parts that object stores accept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cdc_sink_cloudstorage.store import Chunk

PART_BYTES = 8 * 1024 * 1024
"""A part has at least this many bytes and less than twice as many. S3 requires 5 MB, except in the last part."""


def split_parts(chunks: Sequence[Chunk], nbytes: int) -> Iterator[bytes]:
    """Yield *chunks*, which have *nbytes* in all, in parts of about equal size; a small body in one part."""
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
