"""Rows in which a deleted row has its key, the keys of rows that were read, and rows that lack columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_column_texts.numpy_columns import Ints
from cdc_core import EncodeError, RowBatch, TableSchema, unavailable_sets

T = TypeVar("T")


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


def key_in_row(schema: TableSchema, row: Mapping[str, Any] | None) -> tuple[Any, ...] | None:
    """Return the key that the columns of *row* hold; None when they do not hold all of it."""
    if row is None or schema.key or not row.keys() >= set(schema.primary_key):
        return None
    return tuple(row[name] for name in schema.primary_key)


def by_unavailable(rows: RowBatch, encode: Callable[[RowBatch, tuple[str, ...]], T]) -> tuple[list[T], Ints]:
    """Return what *encode* returns for each set of rows that lack the same columns, with these columns.

    Also return the place of each row's among the rows of all sets, one set after the other. Raises: EncodeError, of the
    row in *rows*.
    """
    parts, places = [], []
    for without, indices in unavailable_sets(rows):
        part = RowBatch(schema=rows.schema, batch=rows.batch.take(pa.array(indices)))
        try:
            parts.append(encode(part, without))
        except EncodeError as error:
            raise EncodeError(str(error), row=None if error.row is None else int(indices[error.row])) from error
        places.append(indices)
    return parts, np.argsort(np.concatenate(places))
