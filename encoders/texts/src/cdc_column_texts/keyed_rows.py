"""Rows in which a deleted row has its key."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from cdc_core import RowBatch

__all__ = ["columns_with_keys"]


def columns_with_keys(rows: RowBatch) -> list[pa.Array]:
    """Return the columns of the rows after the change. A deleted row has its key, and nulls elsewhere."""
    after = rows.column("after")
    arrays: list[pa.Array] = after.flatten()
    if after.null_count and not rows.schema.key:
        for place, name in enumerate(rows.schema.primary_key):
            index = rows.schema.after_type.get_field_index(name)
            arrays[index] = pc.coalesce(arrays[index], rows.column("key").field(place))
    return arrays
