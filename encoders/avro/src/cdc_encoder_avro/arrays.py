"""Columns of arrays, which are JSON texts in a `RowBatch`, as Avro arrays of typed items."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
from cdc_column_texts import valid_rows, written_items
from cdc_column_texts.binary import Piece, binary, joined, looked_up, offsets_of

from cdc_core import ColumnType, joined_values
from cdc_encoder_avro.varints import longs

__all__ = ["array_pieces"]

_ENDS = pa.array([b"", b"\x00"], pa.large_binary())


def array_pieces(
    array: pa.Array, element: ColumnType, item_pieces: Callable[[pa.Array, ColumnType], list[Piece]]
) -> list[Piece]:
    """Return the unions of a column of arrays: one block of all items, then the end. *item_pieces* writes the items.

    Raises: NoRepresentationError for an array of several dimensions, and for items that *item_pieces* refuses.
    """
    written, counts = written_items(
        array, element, lambda items, of: joined(item_pieces(items, of), len(items)), option="avro_arrays"
    )
    ends = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=ends[1:])
    # An empty array has no block: the zero in place of the count is already its end.
    return [
        longs(counts, branch=1, valid=valid_rows(array)),
        binary(offsets_of(written)[ends], np.frombuffer(joined_values(written), np.uint8)),
        looked_up(_ENDS, (counts > 0).astype(np.int8)),
    ]
