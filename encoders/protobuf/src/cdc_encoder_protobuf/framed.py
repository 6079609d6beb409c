"""Parts of messages of a whole column, whose sizes are known before their bytes are joined.

A message inside another one stands behind its size, and the size of that depends on it, and so on to the outermost. All
these sizes depend on one number, the size of the innermost bytes, so what stands before these is made once for each
distinct size and looked up for each row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from cdc_column_texts import Ints
from cdc_column_texts.binary import Piece, distinct, joined, looked_up, offsets_of, varint_bytes

ABSENT = -1
"""The size of the body of a row that has none."""


def _nothing(_: int) -> bytes:
    return b""


@dataclass(frozen=True, slots=True)
class Framed:
    """The bytes of each row: a head, which depends only on the size of its body, and the body.

    `sizes` are those of the bodies, one number if all are equal, and `ABSENT` in rows whose pieces are empty.
    """

    sizes: Ints | int
    body: Sequence[Piece]
    head: Callable[[int], bytes] = _nothing

    @classmethod
    def of(cls, array: pa.Array, *, absent: Ints | None = None) -> Framed:
        """Return the bytes of a large_binary *array* without nulls. The rows at *absent* are empty and become so."""
        sizes = np.diff(offsets_of(array))
        if absent is not None:
            sizes[absent] = ABSENT
        return cls(sizes, [array])

    def after(self, start: bytes) -> Framed:
        """Return *start* and the bytes, in every row."""
        head = self.head
        return replace(self, head=lambda size: start + head(size))

    def tagged(self, tag: bytes) -> Framed:
        """Return *tag* and the bytes where they are present."""
        head = self.head
        return replace(self, head=lambda size: b"" if size == ABSENT else tag + head(size))

    def field(self, tag: bytes) -> Framed:
        """Return *tag*, the size and the bytes where they are present."""
        whole = self.message(tag).head
        return replace(self, head=lambda size: b"" if size == ABSENT else whole(size))

    def message(self, tag: bytes) -> Framed:
        """Return *tag*, the size and the bytes, in every row. An absent one has the size 0."""
        head = self.head

        def with_size(size: int) -> bytes:
            inner = head(size)
            return tag + varint_bytes(len(inner) + max(size, 0)) + inner

        return replace(self, head=with_size)

    def written(self) -> tuple[list[Piece], Ints | int]:
        """Return the pieces of head and body, and the sizes of both together."""
        if isinstance(self.sizes, int):
            head = self.head(self.sizes)
            return [head, *self.body], len(head) + max(self.sizes, 0)
        sizes, places = distinct(self.sizes)
        heads = [self.head(size) for size in sizes.tolist()]
        totals = np.array([len(head) for head in heads], np.int64) + np.maximum(sizes, 0)
        if len(sizes) == 1:
            return [heads[0], *self.body], int(totals[0])
        return [looked_up(pa.array(heads, pa.large_binary()), places), *self.body], totals[places]

    def column(self, rows: int) -> pa.Array:
        """Return the bytes of all *rows*, large_binary without nulls."""
        return joined(self.written()[0], rows)


def concatenated(parts: Sequence[Framed]) -> Framed:
    """Return the bytes of all *parts*, one after the other, in every row."""
    pieces: list[Piece] = []
    total: Ints | int = 0
    for part in parts:
        written, sizes = part.written()
        pieces += written
        total = total + sizes
    return Framed(total, pieces)
