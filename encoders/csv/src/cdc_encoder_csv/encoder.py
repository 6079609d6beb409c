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
    TerminalError,
    Timestamp,
    joined_values,
    refuse_unavailable,
)
from cdc_encoder_csv.fields import field_texts, quoted_name
from cdc_encoder_csv.options import CsvOptions


class CsvEncoder(Encoder):
    """Lines of comma-separated SQL texts of the columns. A deleted row cannot be written. Envelopes do not differ.

    A message is a line without its end. Its key is a line of the primary key's values.
    """

    file_extension = ".csv"

    def __init__(self, context: EncoderContext) -> None:
        super().__init__(context)
        self._options: CsvOptions = context.options

    def check(self, tables: Sequence[tuple[TableSchema, str]]) -> None:
        envelope = self.context.envelope
        for name in ("diff", "mvcc_timestamp", "topic_in_value", "updated"):
            if getattr(envelope, name):
                raise OptionError(f"encoder 'csv': a line holds only the table's columns, not '{name}'")
        for schema, _ in tables:
            self.keyed_schema(schema)

    def encode(self, rows: RowBatch, *, topic: str) -> MessageBatch:
        _refuse_deletes(rows)
        refuse_unavailable(rows, format_="CSV")
        keyed = self.keyed(rows)
        return MessageBatch(
            topic=topic,
            key=_binary(self._lines(keyed.schema.key_columns, keyed.column("key")), len(rows)),
            value=_binary(self._lines(rows.schema.columns, rows.column("after")), len(rows)),
            updated=rows.column("updated"),
        )

    def encode_resolved(self, topic: str, timestamp: Timestamp) -> bytes:  # noqa: ARG002
        """Raise TerminalError: the registration says that the format is for scans only."""
        raise TerminalError("CSV cannot hold resolved marks; remove option 'resolved', or choose another format")

    def open_body(self, topic: str) -> FileBody:  # noqa: ARG002
        return _CsvBody(self)

    def header(self, schema: TableSchema) -> bytes:
        """Return the first line of a file, empty without the option `csv_header`."""
        if not self._options.csv_header:
            return b""
        return (",".join(quoted_name(column.name) for column in schema.columns) + "\n").encode()

    def lines(self, rows: RowBatch) -> pa.Buffer:
        """Return the lines of *rows*. Raises: EncodeError."""
        _refuse_deletes(rows)
        refuse_unavailable(rows, format_="CSV")
        return joined_values(_binary([*self._lines(rows.schema.columns, rows.column("after")), "\n"], len(rows)))

    def _lines(self, columns: Sequence[Column], structs: pa.StructArray) -> list[Piece]:
        pieces: list[Piece] = []
        for index, column in enumerate(columns):
            texts = field_texts(structs.field(index), column.type, null=self._options.csv_null)
            pieces += ["," if index else "", texts]
        return pieces


class _CsvBody(FileBody):
    """The header, with the option `csv_header`, and lines."""

    def __init__(self, encoder: CsvEncoder) -> None:
        self._encoder = encoder
        self._started = False

    def write(self, rows: RowBatch) -> bytes | pa.Buffer:
        lines = self._encoder.lines(rows)
        if self._started or len(rows) == 0:
            return lines
        self._started = True
        header = self._encoder.header(rows.schema)
        return header + bytes(lines) if header else lines


def _refuse_deletes(rows: RowBatch) -> None:
    row = pc.index(pc.equal(rows.column("op"), pa.scalar(Op.DELETE, pa.uint8())), value=True).as_py()
    if row >= 0:
        raise EncodeError(
            f"cannot encode a deleted row of table {rows.schema.name} as CSV (key {rows.shown_key(row)}): CSV cannot "
            "represent deletes; choose another format",
            row=row,
        )


def _binary(pieces: list[Piece], rows: int) -> pa.Array:
    return joined(pieces, rows).to_arrow(compat_level=pl.CompatLevel.oldest()).cast(pa.large_binary())
