"""Rows in which a deleted row has its key."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from cdc_core import RowBatch

__all__ = ["columns_with_keys"]


def columns_with_keys(rows: RowBatch) -> list[pa.Array]:
    """Return the columns of the rows after the change. A deleted row has its key, and nulls elsewhere.

    Rows may have only some columns of the key, and others that have the name of one.
    """
    after = rows.column("after")
    arrays: list[pa.Array] = after.flatten()
    if after.null_count:
        for place, column in enumerate(rows.schema.key_columns):
            index = rows.schema.after_type.get_field_index(column.name)
            if index >= 0 and rows.schema.columns[index] == column:
                arrays[index] = pc.coalesce(arrays[index], rows.column("key").field(place))
    return arrays
