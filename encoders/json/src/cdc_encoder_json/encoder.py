"""The JSON encoder: whole batches become messages, byte for byte as CockroachDB writes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core import (
    Column,
    ContractError,
    EncodeError,
    Encoder,
    EncoderContext,
    FileBody,
    MessageBatch,
    Op,
    RowBatch,
    TableName,
    TableSchema,
    Timestamp,
)
from cdc_core.encoder import joined_values
from cdc_encoder_json.clock import hlc_pieces
from cdc_encoder_json.escape import quoted
from cdc_encoder_json.options import JsonOptions
from cdc_encoder_json.pieces import NULL, Piece, joined
from cdc_encoder_json.values import NotANumberError, value_pieces

__all__ = ["JsonEncoder"]

_OPS_WITHOUT_BEFORE = pa.array([Op.INSERT, Op.SCAN], pa.uint8())


@dataclass(frozen=True, slots=True)
class _Layout:
    """What the objects of one schema version share: the columns by name, each with the text that precedes its value."""

    schema: TableSchema
    fields: tuple[tuple[int, str], ...]

    @classmethod
    def of(cls, schema: TableSchema) -> _Layout:
        by_name = sorted((column.name, index) for index, column in enumerate(schema.columns))
        return cls(
            schema,
            tuple((index, f"{', ' if rank else '{'}{quoted(name)}: ") for rank, (name, index) in enumerate(by_name)),
        )


class JsonEncoder(Encoder):
    """Messages of JSON, envelope `wrapped`; the message key is the array of the primary key's values.

    Object keys stand in alphabetical order, `": "` and `", "` separate. A message never contains a line end.
    """

    file_extension = ".ndjson"

    def __init__(self, context: EncoderContext) -> None:
        super().__init__(context)
        options: JsonOptions = context.options
        self._null_as_object = options.encode_json_value_null_as_object
        self._layouts: dict[TableName, _Layout] = {}

    def check(self, tables: Sequence[tuple[TableSchema, str]]) -> None:
        """Every kind of value has a JSON text."""

    def encode(self, rows: RowBatch, *, topic: str) -> MessageBatch:
        keys = joined(self._key(rows), len(rows))
        values = joined(self._value(rows, topic, [keys]), len(rows))
        return MessageBatch(topic=topic, key=_binary(keys), value=_binary(values), updated=rows.column("updated"))

    def encode_resolved(self, topic: str, timestamp: Timestamp) -> bytes:  # noqa: ARG002 (the same for every topic)
        return f'{{"resolved":"{timestamp}"}}'.encode()

    def open_body(self, topic: str) -> FileBody:
        return _LinesBody(self, topic)

    def lines(self, rows: RowBatch, *, topic: str) -> pa.Buffer:
        """Return the messages' values one after the other, each followed by a newline, as `encode` would give them."""
        keys = self._key(rows) if self.context.envelope.key_in_value else []
        return joined_values(_binary(joined([*self._value(rows, topic, keys), "\n"], len(rows))))

    def _key(self, rows: RowBatch) -> list[Piece]:
        key = rows.column("key")
        pieces: list[Piece] = ["["]
        for index, name in enumerate(rows.schema.primary_key):
            column = rows.schema.column(name)
            pieces += [", " if index else "", *self._column(rows, column, key.field(index), None)]
        return [*pieces, "]"]

    def _value(self, rows: RowBatch, topic: str, key: list[Piece]) -> list[Piece]:
        """Return the pieces of the envelope; its keys are in alphabetical order."""
        envelope = self.context.envelope
        pieces: list[Piece] = ['{"after": ', *self._objects(rows, "after")]
        if envelope.diff:
            pieces += [', "before": ', *self._before(rows)]
        if envelope.key_in_value:
            pieces += [', "key": ', *key]
        if envelope.mvcc_timestamp:
            pieces += [', "mvcc_timestamp": "', *hlc_pieces(_mvcc(rows)), '"']
        if envelope.topic_in_value:
            pieces += [f', "topic": {quoted(topic)}']
        if envelope.updated:
            pieces += [', "updated": "', *hlc_pieces(rows.column("updated")), '"']
        return [*pieces, "}"]

    def _before(self, rows: RowBatch) -> list[Piece]:
        if rows.has_before:
            return self._objects(rows, "before")
        if not pc.all(pc.is_in(rows.column("op"), _OPS_WITHOUT_BEFORE)).as_py():
            raise ContractError(
                f"the source gave updates or deletes of table {rows.schema.name} without the column 'before', "
                "which the option 'diff' asks of it"
            )
        return [NULL]

    def _objects(self, rows: RowBatch, name: str) -> list[Piece]:
        """Return the JSON objects of column *name*, `null` where there is no row."""
        structs = rows.column(name)
        if structs.null_count == 0:
            return self._fields(rows, structs, None)
        present = np.asarray(structs.is_valid().to_numpy(zero_copy_only=False), np.bool_)
        places = np.flatnonzero(present)
        if len(places) == 0:
            return [NULL]
        objects = joined(self._fields(rows, structs.filter(pa.array(present)), places), len(places))
        objects = objects.append(pl.Series([NULL]))
        return [objects.gather(pl.Series(np.where(present, np.cumsum(present) - 1, len(places)).astype(np.uint32)))]

    def _fields(self, rows: RowBatch, structs: pa.StructArray, places: np.ndarray | None) -> list[Piece]:
        pieces: list[Piece] = []
        for index, start in self._layout(rows.schema).fields:
            column = rows.schema.columns[index]
            pieces += [start, *self._column(rows, column, structs.field(index), places)]
        return [*pieces, "}"]

    def _column(self, rows: RowBatch, column: Column, array: pa.Array, places: np.ndarray | None) -> list[Piece]:
        """Return the JSON texts of one column; *places* are the rows that *array* has, None when it has all."""
        try:
            return value_pieces(array, column.type, null_as_object=self._null_as_object)
        except NotANumberError as error:
            row = error.row if places is None else int(places[error.row])
            key = rows.column("key")[row].as_py()
            place = f"column {column.name} of table {rows.schema.name}"
            raise EncodeError(f"{place} cannot become JSON in the row with key {key}: {error}") from error

    def _layout(self, schema: TableSchema) -> _Layout:
        layout = self._layouts.get(schema.name)
        if layout is None or (layout.schema is not schema and layout.schema != schema):
            layout = self._layouts[schema.name] = _Layout.of(schema)
        return layout


class _LinesBody(FileBody):
    """Messages' values, each followed by a newline that is written along with them."""

    def __init__(self, encoder: JsonEncoder, topic: str) -> None:
        self._encoder = encoder
        self._topic = topic

    def write(self, rows: RowBatch) -> pa.Buffer:
        return self._encoder.lines(rows, topic=self._topic)

    def finish(self) -> bytes:
        return b""


def _mvcc(rows: RowBatch) -> pa.StructArray:
    """Return when each row version was committed: where the source does not know it, when it was emitted."""
    updated = rows.column("updated")
    if "mvcc" not in rows.batch.schema.names:
        return updated
    mvcc = rows.column("mvcc")
    return mvcc if mvcc.null_count == 0 else pc.if_else(mvcc.is_valid(), mvcc, updated)


def _binary(texts: pl.Series) -> pa.Array:
    array = texts.to_arrow(compat_level=pl.CompatLevel.oldest())
    return cast(pa.Array, array.cast(pa.large_binary()))
