"""The CSV encoder."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from cdc_column_texts import Piece, joined

from cdc_core import (
    Column,
    EncodeError,
    Encoder,
    EncoderContext,
    FileBody,
    MessageBatch,
    Op,
    OptionError,
    RowBatch,
    TableSchema,
    Timestamp,
)
from cdc_core.encoder import joined_values
from cdc_encoder_csv.fields import field_texts, quoted_name
from cdc_encoder_csv.options import CsvOptions

__all__ = ["CsvEncoder"]


class CsvEncoder(Encoder):
    """Lines of the columns' SQL texts between commas, for rows that are there: a deleted row is no line.

    A message is a line without its end; its key is a line of the primary key's values. The same in every envelope.
    """

    file_extension = ".csv"

    def __init__(self, context: EncoderContext) -> None:
        super().__init__(context)
        self._options: CsvOptions = context.options

    def check(self, tables: Sequence[tuple[TableSchema, str]]) -> None:  # noqa: ARG002 (every table can be written)
        envelope = self.context.envelope
        for name in ("diff", "mvcc_timestamp", "topic_in_value", "updated"):
            if getattr(envelope, name):
                raise OptionError(f"encoder 'csv': a line has no place for '{name}', only for the table's columns")

    def encode(self, rows: RowBatch, *, topic: str) -> MessageBatch:
        _refuse_deletes(rows)
        key = [rows.schema.column(name) for name in rows.schema.primary_key]
        return MessageBatch(
            topic=topic,
            key=_binary(self._lines(key, rows.column("key")), len(rows)),
            value=_binary(self._lines(rows.schema.columns, rows.column("after")), len(rows)),
            updated=rows.column("updated"),
        )

    def encode_resolved(self, topic: str, timestamp: Timestamp) -> bytes:  # noqa: ARG002 (there is no such thing)
        raise EncodeError(
            "CSV has no place for resolved marks; leave out the option 'resolved', or choose another format"
        )

    def open_body(self, topic: str) -> FileBody:  # noqa: ARG002 (the file's name has it)
        return _CsvBody(self)

    def header(self, schema: TableSchema) -> bytes:
        """Return what a file begins with."""
        if not self._options.csv_header:
            return b""
        return (",".join(quoted_name(column.name) for column in schema.columns) + "\n").encode()

    def lines(self, rows: RowBatch) -> pa.Buffer:
        """Return a line for each row, each with its end. Raises: EncodeError."""
        _refuse_deletes(rows)
        return joined_values(_binary([*self._lines(rows.schema.columns, rows.column("after")), "\n"], len(rows)))

    def _lines(self, columns: Sequence[Column], structs: pa.StructArray) -> list[Piece]:
        pieces: list[Piece] = []
        for index, column in enumerate(columns):
            texts = field_texts(structs.field(index), column.type, null=self._options.csv_null)
            pieces += ["," if index else "", texts]
        return pieces


class _CsvBody(FileBody):
    """The header, if one is asked for, and lines."""

    def __init__(self, encoder: CsvEncoder) -> None:
        self._encoder = encoder
        self._begun = False

    def write(self, rows: RowBatch) -> bytes | pa.Buffer:
        lines = self._encoder.lines(rows)
        if self._begun or len(rows) == 0:
            return lines
        self._begun = True
        header = self._encoder.header(rows.schema)
        return header + bytes(lines) if header else lines

    def finish(self) -> bytes:
        return b""


def _refuse_deletes(rows: RowBatch) -> None:
    row = pc.index(pc.equal(rows.column("op"), pa.scalar(Op.DELETE, pa.uint8())), value=True).as_py()
    if row >= 0:
        raise EncodeError(
            f"a deleted row of table {rows.schema.name} cannot become CSV, the one with key {rows.shown_key(row)}: it"
            " has no place for what is gone; choose another format"
        )


def _binary(pieces: list[Piece], rows: int) -> pa.Array:
    return joined(pieces, rows).to_arrow(compat_level=pl.CompatLevel.oldest()).cast(pa.large_binary())
