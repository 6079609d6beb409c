"""Errors of values that a format cannot represent."""

from __future__ import annotations

from cdc_column_texts.numpy_columns import Ints
from cdc_core import Column, EncodeError, RowBatch


class NoRepresentationError(ValueError):
    """A format cannot represent one value of a column. `row` is its index; the message says why, and the remedy."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(reason)
        self.row = row


def encode_error(
    error: NoRepresentationError, rows: RowBatch, column: Column, *, format_: str, places: Ints | None = None
) -> EncodeError:
    """Return *error*, raised for a value of *column*, with the names of table, column and key.

    *places* are the indices of the rows whose values were encoded, None for all rows.
    """
    row = error.row if places is None else int(places[error.row])
    where = f"column {column.name} of table {rows.schema.name} as {format_} (key {rows.shown_key(row)})"
    return EncodeError(f"cannot encode {where}: {error}", row=row)
