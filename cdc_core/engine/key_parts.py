"""Row batches divided by key, so that several tasks can deliver them and each key stays in order."""

from __future__ import annotations

from collections.abc import Iterator
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.engine.packing import divided
from cdc_core.rows import RowBatch


def divided_by_key(rows: RowBatch, parts: int) -> Iterator[tuple[int, RowBatch]]:
    """Yield *rows*, in pieces that are divided among the parts from 0 to *parts* - 1, each with the number of its part.

    The rows of a part come in their order. All rows of a key are in the same part, whatever batch they are in and
    whichever process divides it. So are all rows of a table without a key.
    """
    for piece in divided(rows):  # what has rows of several parts is copied
        yield from _parts_of(piece, parts)


def _parts_of(rows: RowBatch, parts: int) -> Iterator[tuple[int, RowBatch]]:
    numbers = _hashes(rows) % parts
    if (numbers == numbers[0]).all():
        yield int(numbers[0]), rows
        return
    order = np.argsort(numbers, kind="stable")
    sorted_rows = rows.batch.take(pa.array(order))
    ends = np.cumsum(np.bincount(numbers, minlength=parts)).tolist()
    for part, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
        if end > start:
            yield part, RowBatch(schema=rows.schema, batch=sorted_rows.slice(start, end - start))


def _hashes(rows: RowBatch) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
    """Return a number for each of *rows* that depends on its key and its table. Equal keys may differ in type."""
    start = crc32(rows.schema.name.full.encode())
    columns = [_as_bytes(column) for column in rows.column("key").flatten()]
    if not columns:
        return np.full(len(rows), start, np.uint32)
    keys = columns[0] if len(columns) == 1 else pc.binary_join_element_wise(*columns, b"\x1f")
    return np.fromiter((crc32(key, start) for key in keys.to_pylist()), np.uint32, len(rows))


def _as_bytes(values: pa.Array) -> pa.Array:
    if pa.types.is_binary(values.type):
        return values
    if pa.types.is_temporal(values.type):  # infinities have no text
        values = values.view(pa.int32() if values.type.bit_width == 32 else pa.int64())
    return values.cast(pa.string()).cast(pa.binary())
