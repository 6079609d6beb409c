"""Columns of arrays, which are JSON texts in a `RowBatch`, as Avro arrays of typed items."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from cdc_column_texts import JSON_KINDS, NoRepresentationError, items_of, valid_rows

from cdc_core import ColumnType, joined_values
from cdc_encoder_avro.pieces import Piece, binary, joined, looked_up, offsets_of
from cdc_encoder_avro.varints import longs

__all__ = ["array_pieces"]

_ENDS = pa.array([b"", b"\x00"], pa.large_binary())
_NESTED = r"^\s*\[\s*\["


def array_pieces(
    array: pa.Array, element: ColumnType, item_pieces: Callable[[pa.Array, ColumnType], list[Piece]]
) -> list[Piece]:
    """Return the unions of a column of arrays: one block of all items, then the end. *item_pieces* writes the items.

    Raises: NoRepresentationError for an array of several dimensions, and for items that *item_pieces* refuses.
    """
    if element.kind not in JSON_KINDS:
        nested = pc.index(pc.match_substring_regex(array, _NESTED), value=True).as_py()
        if nested >= 0:
            raise NoRepresentationError(
                nested, "the array has several dimensions; set avro_arrays = 'json' to write arrays as JSON text"
            )
    items, counts = items_of(array, element)
    ends = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=ends[1:])
    try:
        written = joined(item_pieces(items, element), len(items))
    except NoRepresentationError as error:
        raise NoRepresentationError(int(np.searchsorted(ends, error.row, side="right")) - 1, str(error)) from error
    # An empty array has no block: the zero in place of the count is already its end.
    return [
        longs(counts, branch=1, valid=valid_rows(array)),
        binary(offsets_of(written)[ends], np.frombuffer(joined_values(written), np.uint8)),
        looked_up(_ENDS, (counts > 0).astype(np.int8)),
    ]
