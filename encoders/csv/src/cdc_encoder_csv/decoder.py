"""Reads what the CSV encoder writes, by column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from cdc_column_texts import column_of_texts
from pyarrow import csv

from cdc_core import Column, ColumnType, DecodedRow, Decoder, EncoderContext, Kind, TableSchema, Timestamp, plain_value
from cdc_encoder_csv.arrays import array_texts
from cdc_encoder_csv.options import CsvOptions
from cdc_encoder_csv.years import iso_year

_BEFORE_CHRIST = " BC"


class CsvDecoder(Decoder):
    """Reads messages and files of the table's columns, in table order. There is no `updated`."""

    def __init__(self, context: EncoderContext) -> None:
        super().__init__(context)
        self._options: CsvOptions = context.options

    def message(self, schema: TableSchema, key: bytes | None, value: bytes | None) -> DecodedRow:
        if key is None or value is None:
            raise ValueError("a line of CSV has a key and a value")
        replaced = self.context.key_column is not None
        keys = {} if replaced else self._values(schema.key_columns, key + b"\n")
        ((*_, row),) = zip(self._rows(schema, value + b"\n"), strict=True)
        return self._decoded(schema, row, tuple(column[0] for column in keys.values()))

    def file(self, schema: TableSchema, body: bytes) -> Sequence[DecodedRow]:
        if self._options.csv_header and body:
            body = body[_end_of_line(body) :]
        return [self._decoded(schema, row, None) for row in self._rows(schema, body)]

    def resolved(self, value: bytes | None) -> Timestamp | None:  # noqa: ARG002
        return None

    def _decoded(self, schema: TableSchema, row: dict[str, Any], key: tuple[Any, ...] | None) -> DecodedRow:
        in_row = (key or ()) if schema.key else tuple(row[name] for name in schema.primary_key)
        return DecodedRow(
            key=key or in_row, after=row, key_in_value=in_row if self.context.envelope.key_in_value else None
        )

    def _rows(self, schema: TableSchema, body: bytes) -> list[dict[str, Any]]:
        columns = self._values(schema.columns, body)
        return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]

    def _values(self, columns: Sequence[Column], body: bytes) -> dict[str, list[Any]]:
        names = [column.name for column in columns]
        table = _table(body, names, null=self._options.csv_null)
        read = (_column(table.column(index), column.type) for index, column in enumerate(columns))
        return {name: [plain_value(value) for value in values] for name, values in zip(names, read, strict=True)}


def _table(body: bytes, names: Sequence[str], *, null: str) -> pa.Table:
    """Return the texts of the fields, null where *null* is not quoted. Raises: ValueError."""
    if body and (not body.endswith(b"\n") or body.count(b'"') % 2):
        raise ValueError("the last line is incomplete")
    if not body:
        return pa.table({str(index): pa.array([], pa.string()) for index in range(len(names))})
    places = [str(index) for index in range(len(names))]
    return csv.read_csv(
        pa.BufferReader(body),
        read_options=csv.ReadOptions(column_names=places, block_size=len(body) + 1, use_threads=False),
        parse_options=csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        convert_options=csv.ConvertOptions(
            column_types=dict.fromkeys(places, pa.string()),
            null_values=[null],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )


def _column(fields: pa.ChunkedArray, type_: ColumnType) -> pa.Array:
    texts = pa.concat_arrays(fields.chunks) if fields.num_chunks else pa.array([], pa.string())
    if type_.kind is Kind.ARRAY and type_.element is not None:
        return array_texts(texts, type_.element)
    if type_.kind is Kind.TIMESTAMPTZ:
        texts = pc.replace_substring_regex(texts, r"\+00( BC)?$", r"\1")
    if type_.kind in (Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMPTZ):
        ancient = pc.fill_null(pc.ends_with(texts, _BEFORE_CHRIST), pa.scalar(value=False))
        if pc.any(ancient).as_py():
            iso = [iso_year(text) for text in texts.filter(ancient).to_pylist()]
            texts = pc.replace_with_mask(texts, ancient, pa.array(iso, pa.string()))
    return column_of_texts(texts, type_)


def _end_of_line(body: bytes) -> int:
    """Return the place after the first line end that is not quoted."""
    data = np.frombuffer(body, np.uint8)
    outside = ~np.bitwise_xor.accumulate(data == ord('"'))
    ends = np.flatnonzero(outside & (data == ord("\n")))
    if len(ends) == 0:
        raise ValueError("the first line is incomplete")
    return int(ends[0]) + 1
