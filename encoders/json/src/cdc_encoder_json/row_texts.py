"""Keys and rows as JSON: arrays and objects of whole columns, joined from the texts of their values."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from cdc_column_texts import (
    NULL,
    SPECIAL_DECIMALS,
    Ints,
    NoRepresentationError,
    Piece,
    columns_with_keys,
    encode_error,
    joined,
    json_pieces,
    quoted,
)

from cdc_core import METADATA_MEMBER, Column, ColumnType, Envelope, Kind, RowBatch, RowPlace, TableName, TableSchema
from cdc_encoder_json.connect_schema import written_type

_METADATA_INDEX = -1


@dataclass(frozen=True, slots=True)
class _Layout:
    """The members of the objects of one schema version: the index of each column, and the text before its value."""

    schema: TableSchema
    members: tuple[tuple[int, str], ...]

    @classmethod
    def of(cls, schema: TableSchema, *, metadata: bool, without: Collection[str]) -> _Layout:
        names = [(column.name, index) for index, column in enumerate(schema.columns) if column.name not in without]
        if metadata:
            names.append((METADATA_MEMBER, _METADATA_INDEX))
        names.sort()
        starts = ((index, f"{', ' if rank else '{'}{quoted(name)}: ") for rank, (name, index) in enumerate(names))
        return cls(schema, tuple(starts))


class RowTexts:
    """Writes keys and rows. Where a row is the whole message, metadata is a member among its columns.

    Raises: EncodeError when a value has no JSON text.
    """

    def __init__(self, envelope: Envelope, *, null_as_object: bool) -> None:
        self._null_as_object = null_as_object
        self._envelope = envelope
        self._metadata = envelope.row is RowPlace.MESSAGE and bool(envelope.metadata)
        self._layouts: dict[tuple[TableName, bool], _Layout] = {}

    def key(self, rows: RowBatch) -> list[Piece]:
        """Return the JSON arrays of the primary keys' values, or in `enriched` objects with their names."""
        key = rows.column("key")
        if self._envelope.enriched:
            return self._key_objects(rows, key)
        pieces: list[Piece] = ["["]
        for index, column in enumerate(rows.schema.key_columns):
            pieces += [", " if index else "", *self._column(rows, column, key.field(index), None)]
        return [*pieces, "]"]

    def _key_objects(self, rows: RowBatch, key: pa.StructArray) -> list[Piece]:
        pieces: list[Piece] = []
        for column, index in sorted((column.name, index) for index, column in enumerate(rows.schema.key_columns)):
            start = f"{', ' if pieces else '{'}{quoted(column)}: "
            pieces += [start, *self._column(rows, rows.schema.key_columns[index], key.field(index), None)]
        return [*pieces, "}"]

    def objects(self, rows: RowBatch, structs: pa.StructArray, *, absent: str | None = NULL) -> list[Piece]:
        """Return the JSON objects of *structs*, a column `after` or `before` of *rows*; *absent* where it is null."""
        if structs.null_count == 0:
            return self._members(rows, structs, None)
        present = np.asarray(structs.is_valid().to_numpy(zero_copy_only=False), np.bool_)
        places = np.flatnonzero(present)
        if len(places) == 0:
            return [NULL] if absent == NULL else [pl.Series([absent], dtype=pl.String).new_from_index(0, len(rows))]
        objects = joined(self._members(rows, structs.filter(pa.array(present)), places), len(places))
        objects = objects.append(pl.Series([absent], dtype=pl.String))
        return [objects.gather(pl.Series(np.where(present, np.cumsum(present) - 1, len(places)).astype(np.uint32)))]

    def incomplete(
        self, rows: RowBatch, without: tuple[str, ...], *, metadata: list[Piece] | None = None
    ) -> list[Piece]:
        """Return the JSON objects of the rows after the change, none of which is deleted, *without* some columns.

        With *metadata*, the objects have a member for it, whatever the constructor was told.
        """
        return self._members(rows, rows.column("after"), None, metadata, without=without)

    def with_deleted(self, rows: RowBatch, metadata: list[Piece]) -> list[Piece]:
        """Return the JSON objects of the rows after the change. A deleted row has its key, and nulls elsewhere.

        *metadata* is the value of the member for metadata, if the objects have it.
        """
        after = RowBatch.struct(rows.schema.after_type, columns_with_keys(rows))
        return self._members(rows, after, None, metadata)

    def _members(
        self,
        rows: RowBatch,
        structs: pa.StructArray,
        places: Ints | None,
        metadata: list[Piece] | None = None,
        *,
        without: tuple[str, ...] = (),
    ) -> list[Piece]:
        pieces: list[Piece] = []
        layout = self._layout(rows.schema, metadata=self._metadata or bool(without and metadata), without=without)
        for index, start in layout.members:
            if index == _METADATA_INDEX:
                pieces += [start, *(metadata or [])]
                continue
            column = rows.schema.columns[index]
            pieces += [start, *self._column(rows, column, structs.field(index), places)]
        return [*pieces, "}"]

    def _column(self, rows: RowBatch, column: Column, array: pa.Array, places: Ints | None) -> list[Piece]:
        """Return the JSON texts of one column. *places* are the rows that *array* has, None for all."""
        type_ = written_type(column.type) if self._envelope.has_schema else column.type
        try:
            if self._envelope.has_schema:
                _refuse_unreadable(array, type_)
            return json_pieces(array, type_, null_as_object=self._null_as_object)
        except NoRepresentationError as error:
            raise encode_error(error, rows, column, format_="JSON", places=places) from error

    def _layout(self, schema: TableSchema, *, metadata: bool, without: tuple[str, ...]) -> _Layout:
        if without:  # updates may leave out each set of columns
            return _Layout.of(schema, metadata=metadata, without=without)
        place = (schema.name, metadata)
        layout = self._layouts.get(place)
        if layout is None or (layout.schema is not schema and layout.schema != schema):
            layout = self._layouts[place] = _Layout.of(schema, metadata=metadata, without=())
        return layout


def _refuse_unreadable(array: pa.Array, type_: ColumnType) -> None:
    """Raise a NoRepresentationError for what Connect would read as zeros and nulls."""
    refused = []
    if type_.kind is Kind.ARRAY:
        refused.append((pc.starts_with(array, "[["), "an array of arrays has no Kafka Connect schema"))
    number = type_.element or type_
    if number.kind in (Kind.FLOAT, Kind.DECIMAL):
        special = _SPECIAL[type_.kind](array)
        refused.append((special, "Kafka Connect would read NaN and infinities as 0"))
    for found, reason in refused:
        row = pc.index(found, value=True).as_py()
        if row >= 0:
            raise NoRepresentationError(row, f"{reason}; remove 'schema'")


_SPECIAL: dict[Kind, Callable[[pa.Array], pa.BooleanArray]] = {
    Kind.FLOAT: lambda array: pc.invert(pc.is_finite(array)),
    Kind.DECIMAL: lambda array: pc.is_in(array, value_set=pa.array(SPECIAL_DECIMALS)),
    Kind.ARRAY: lambda array: pc.match_substring(array, '"'),  # other numbers have no quotes
}
"""Where a column of numbers, or of arrays of them, has a NaN or an infinity."""
