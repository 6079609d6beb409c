"""Reads what the Parquet encoder writes, by column."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from cdc_column_texts import column_of_texts, json_pieces, list_texts, text_column, timestamps_of_texts

from cdc_core import ColumnType, DecodedRow, Decoder, Kind, Op, RowBatch, TableSchema, Timestamp, plain_value
from cdc_encoder_parquet.columns import BEFORE, EVENT_TYPE, EVENTS, METADATA, MVCC, UNAVAILABLE, UPDATED

_RESOLVED = b'{"resolved":"'
_DELETE = EVENTS[Op.DELETE]
_OPS = pa.array([Op.INSERT, Op.UPDATE, Op.DELETE], pa.uint8())
_EVENTS = pa.array([EVENTS[Op.INSERT], EVENTS[Op.UPDATE], _DELETE])


class ParquetDecoder(Decoder):
    """Reads files. There are no messages."""

    def message(self, schema: TableSchema, key: bytes | None, value: bytes | None) -> DecodedRow:  # noqa: ARG002
        raise ValueError("the Parquet encoder writes no messages")

    def file(self, schema: TableSchema, body: bytes) -> Sequence[DecodedRow]:
        if not body:
            return []
        table = _table(body)
        values = {
            name: _values(table.column(name), schema, name) for name in table.schema.names if name not in METADATA
        }
        events = table.column(EVENT_TYPE).to_pylist()
        updated, mvcc = (_timestamps(table, name) for name in (UPDATED, MVCC))
        before: list[Any] = [None] * table.num_rows
        if BEFORE in table.schema.names:
            before = _structs(table.column(BEFORE), schema)
        names = _unavailable(table)
        lacking = [None] * table.num_rows if names is None else names.to_pylist()
        rows = []
        for row, event in enumerate(events):
            unavailable = tuple(lacking[row] or ())
            image = {name: column[row] for name, column in values.items() if name not in unavailable}
            key = None if schema.key else tuple(image[name] for name in schema.primary_key)
            rows.append(
                DecodedRow(
                    key=key,
                    after=None if event == _DELETE else image,
                    before=before[row],
                    updated=updated[row],
                    mvcc=mvcc[row],
                    key_in_value=key if self.context.envelope.key_in_value else None,
                    unavailable=unavailable,
                )
            )
        return rows

    def rows(self, schema: TableSchema, body: bytes) -> RowBatch:
        """Return the rows of a file as a batch, with the `op` of their event type: a scanned row is an insert."""
        if not body:
            return super().rows(schema, body)
        table = _table(body)
        if UPDATED not in table.schema.names:
            raise ValueError(f"a row of table {schema.name} in a file has no 'updated'")
        if schema.key:
            raise ValueError(f"a row of table {schema.name} in a file has no key, because a query did not select it")
        columns = [_row_values(table.column(column.name), column.type) for column in schema.columns]
        op = _OPS.take(pc.index_in(table.column(EVENT_TYPE), _EVENTS))
        deleted = pc.equal(op, pa.scalar(Op.DELETE, pa.uint8()))
        return RowBatch.of(
            schema,
            op=op,
            updated=timestamps_of_texts(table.column(UPDATED)),
            key=RowBatch.struct(
                schema.key_type, [columns[schema.after_type.get_field_index(name)] for name in schema.primary_key]
            ),
            after=RowBatch.struct(schema.after_type, columns, deleted),
            unavailable=_unavailable(table),
        )

    def resolved(self, value: bytes | None) -> Timestamp | None:
        if not value or not value.startswith(_RESOLVED):
            return None
        return Timestamp.parse(value.removeprefix(_RESOLVED).removesuffix(b'"}').decode())


def _table(body: bytes) -> pa.RecordBatch:
    """Return the columns of a file. Raises: ValueError when it is damaged or not Parquet."""
    try:
        table = pq.ParquetFile(pa.BufferReader(body)).read(use_threads=False).combine_chunks()
    except OSError as error:  # from Arrow, when data cannot be decompressed or deserialized
        raise ValueError(f"the file is damaged: {error}") from error
    batches = table.to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)


def _unavailable(table: pa.RecordBatch) -> pa.ListArray | None:
    """Return the names of unavailable columns by row; None when no row has any."""
    if UNAVAILABLE not in table.schema.names:
        return None
    names = table.column(UNAVAILABLE)
    return None if names.null_count == len(names) else names.cast(pa.list_(pa.string()))


def _values(array: pa.Array, schema: TableSchema, name: str) -> list[Any]:
    """Return a column's values. They are Parquet's when the table lacks the column or has it with another type."""
    with suppress(KeyError, ValueError):
        array = _row_values(array, schema.column(name).type)
    return [plain_value(value) for value in array]


def _structs(array: pa.StructArray, schema: TableSchema) -> list[dict[str, Any] | None]:
    names = [field.name for field in array.type]
    columns = [_values(column, schema, name) for column, name in zip(array.flatten(), names, strict=True)]
    return [
        {name: column[row] for name, column in zip(names, columns, strict=True)} if there else None
        for row, there in enumerate(array.is_valid().to_pylist())
    ]


def _timestamps(table: pa.RecordBatch, name: str) -> list[Timestamp | None]:
    if name not in table.schema.names:
        return [None] * table.num_rows
    return [None if text is None else Timestamp.parse(text) for text in table.column(name).to_pylist()]


def _row_values(array: pa.Array, type_: ColumnType) -> pa.Array:
    """Return *array*, a column of a file, as a column of *type_*. Raises: ValueError when its type does not fit."""
    if pa.types.is_list(array.type) and type_.kind is Kind.ARRAY and type_.element is not None:
        return _array_texts(array, type_.element)
    if pa.types.is_decimal(array.type) and type_.kind is Kind.DECIMAL:
        return _decimal_texts(array)
    if pa.types.is_string(array.type):
        return column_of_texts(array, type_)
    try:
        return array.cast(type_.arrow)
    except pa.ArrowNotImplementedError as error:
        raise ValueError(f"a column of {array.type} cannot be read as {type_.source}") from error


def _array_texts(array: pa.ListArray, element: ColumnType) -> pa.Array:
    """Return the JSON texts of arrays. Items have the form of the JSON encoder."""
    items = _row_values(array.flatten(), element)
    counts = pc.fill_null(pc.list_value_length(array), 0).to_numpy()
    texts = text_column(json_pieces(items, element), len(items))
    return list_texts(texts, counts, brackets="[]", nulls_of=array)


def _decimal_texts(array: pa.Array) -> pa.Array:
    """Return decimals as plain texts with all digits of their scale."""
    scale = array.type.scale
    unscaled = pa.Array.from_buffers(pa.decimal128(38, 0), len(array), array.buffers(), offset=array.offset)
    whole = unscaled.cast(pa.string())
    if scale == 0:
        return whole
    sign = pc.if_else(pc.starts_with(whole, "-"), "-", "")
    digits = pc.utf8_lpad(pc.utf8_ltrim(whole, "-"), scale + 1, "0")
    units, fraction = pc.utf8_slice_codeunits(digits, 0, -scale), pc.utf8_slice_codeunits(digits, -scale)
    empty = pa.scalar("", pa.string())
    return pc.binary_join_element_wise(
        pc.binary_join_element_wise(sign, units, empty), fraction, pa.scalar(".", pa.string())
    )
