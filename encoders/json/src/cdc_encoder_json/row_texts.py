"""Texts of keys and rows: JSON arrays and objects of whole columns, put together from the texts of their values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from cdc_column_texts.escape import quoted
from cdc_column_texts.json_values import NotANumberError, value_pieces
from cdc_column_texts.pieces import NULL, Piece, joined

from cdc_core import Column, EncodeError, RowBatch, TableName, TableSchema

__all__ = ["METADATA", "RowTexts"]

METADATA = "__crdb__"
"""The field that rows without an envelope have metadata in."""
_METADATA_INDEX = -1


@dataclass(frozen=True, slots=True)
class _Layout:
    """What the objects of one schema version share: the columns by name, each with the text that precedes its value."""

    schema: TableSchema
    fields: tuple[tuple[int, str], ...]

    @classmethod
    def of(cls, schema: TableSchema, *, metadata: bool) -> _Layout:
        names = [(column.name, index) for index, column in enumerate(schema.columns)]
        if metadata:
            names.append((METADATA, _METADATA_INDEX))
        names.sort()
        starts = ((index, f"{', ' if rank else '{'}{quoted(name)}: ") for rank, (name, index) in enumerate(names))
        return cls(schema, tuple(starts))


class RowTexts:
    """Writes keys and rows. With *metadata* each object has a place for it among the columns.

    Raises, everywhere: EncodeError when a value has no JSON text.
    """

    def __init__(self, *, null_as_object: bool, metadata: bool) -> None:
        self._null_as_object = null_as_object
        self._metadata = metadata
        self._layouts: dict[TableName, _Layout] = {}

    def key(self, rows: RowBatch) -> list[Piece]:
        """Return the JSON arrays of the primary keys' values."""
        key = rows.column("key")
        pieces: list[Piece] = ["["]
        for index, name in enumerate(rows.schema.primary_key):
            column = rows.schema.column(name)
            pieces += [", " if index else "", *self._column(rows, column, key.field(index), None)]
        return [*pieces, "]"]

    def objects(self, rows: RowBatch, name: str, *, absent: str | None = NULL) -> list[Piece]:
        """Return the JSON objects of column *name*, and *absent* where there is no row."""
        structs = rows.column(name)
        if structs.null_count == 0:
            return self._fields(rows, structs, None)
        present = np.asarray(structs.is_valid().to_numpy(zero_copy_only=False), np.bool_)
        places = np.flatnonzero(present)
        if len(places) == 0:
            return [NULL] if absent == NULL else [pl.Series([absent], dtype=pl.String).new_from_index(0, len(rows))]
        objects = joined(self._fields(rows, structs.filter(pa.array(present)), places), len(places))
        objects = objects.append(pl.Series([absent], dtype=pl.String))
        return [objects.gather(pl.Series(np.where(present, np.cumsum(present) - 1, len(places)).astype(np.uint32)))]

    def with_deleted(self, rows: RowBatch, metadata: list[Piece]) -> list[Piece]:
        """Return the JSON objects of the rows after the change; of deleted rows, that has the key and else nulls.

        *metadata* stands at its place in each of them, if there is one.
        """
        after = rows.column("after")
        if after.null_count:
            key = rows.column("key")
            arrays = after.flatten()
            for place, name in enumerate(rows.schema.primary_key):
                index = rows.schema.after_type.get_field_index(name)
                arrays[index] = pc.coalesce(arrays[index], key.field(place))
            after = RowBatch.struct(rows.schema.after_type, arrays)
        return self._fields(rows, after, None, metadata)

    def _fields(
        self, rows: RowBatch, structs: pa.StructArray, places: np.ndarray | None, metadata: list[Piece] | None = None
    ) -> list[Piece]:
        pieces: list[Piece] = []
        for index, start in self._layout(rows.schema).fields:
            if index == _METADATA_INDEX:
                pieces += [start, *(metadata or [])]
                continue
            column = rows.schema.columns[index]
            pieces += [start, *self._column(rows, column, structs.field(index), places)]
        return [*pieces, "}"]

    def _column(self, rows: RowBatch, column: Column, array: pa.Array, places: np.ndarray | None) -> list[Piece]:
        """Return the JSON texts of one column; *places* are the rows that *array* has, None when it has all."""
        try:
            return value_pieces(array, column.type, null_as_object=self._null_as_object)
        except NotANumberError as error:
            row = error.row if places is None else int(places[error.row])
            key = rows.shown_key(row)
            place = f"column {column.name} of table {rows.schema.name}"
            raise EncodeError(f"{place} cannot become JSON in the row with key {key}: {error}", row=row) from error

    def _layout(self, schema: TableSchema) -> _Layout:
        layout = self._layouts.get(schema.name)
        if layout is None or (layout.schema is not schema and layout.schema != schema):
            layout = self._layouts[schema.name] = _Layout.of(schema, metadata=self._metadata)
        return layout
