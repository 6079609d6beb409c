"""What a scan reads when a query uses only a part: the columns of its select list, and conditions for its WHERE."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from psycopg import sql

from cdc_core import Comparison, Kind, Restriction, RowBatch
from cdc_rangefeed_postgres.columns import ColumnReader, column_readers
from cdc_rangefeed_postgres.names import quoted
from cdc_rangefeed_postgres.types import TableVersion

__all__ = ["conditions", "read_columns", "whole_rows"]

_TEXTS = {25, 1043}
"""text and varchar. Others compare in ways of their own, such as char(n), for which blanks at the end do not count."""


def read_columns(version: TableVersion, restriction: Restriction) -> Sequence[str]:
    """Return the columns to read."""
    names = [column.name for column in version.schema.columns]
    return names if restriction.columns is None else [name for name in names if name in restriction.columns]


def whole_rows(read: pa.StructArray, version: TableVersion) -> pa.StructArray:
    """Return rows of some columns as rows of all, with nulls for the others."""
    schema = version.schema
    arrays = [
        read.field(column.name) if read.type.get_field_index(column.name) >= 0 else pa.nulls(len(read), field.type)
        for column, field in zip(schema.columns, schema.after_type, strict=True)
    ]
    return RowBatch.struct(schema.after_type, arrays)


def conditions(version: TableVersion, restriction: Restriction) -> Iterator[str]:
    """Yield the comparisons that PostgreSQL evaluates as *restriction* means them, as SQL over `l`."""
    readers = {reader.column.name: reader for reader in column_readers(version)}
    for comparison in restriction.comparisons:
        operand = _operand(readers[comparison.column], comparison)
        if operand is not None:
            condition = _condition(operand, readers[comparison.column], comparison)
            yield f"({condition}) IS NOT FALSE" if restriction.keep_unknown else condition


def _operand(reader: ColumnReader, comparison: Comparison) -> str | None:
    name = f"l.{quoted(comparison.column)}"
    kind = reader.type_.kind
    if not comparison.values or kind not in (Kind.STRING, Kind.ENUM, Kind.UUID):
        return name
    if kind is Kind.STRING and reader.base_oid not in _TEXTS:
        return None
    return f'{name}::text COLLATE "C"'


def _condition(operand: str, reader: ColumnReader, comparison: Comparison) -> str:
    values = ", ".join(sql.Literal(value).as_string(None) for value in comparison.values)
    if comparison.operator == "in":
        condition = f"{operand} IN ({values})"
    else:
        condition = f"{operand} {comparison.operator.upper()} {values}".rstrip()
    if reader.type_.kind is Kind.DECIMAL and comparison.values:
        return f"({condition} OR {operand} = 'NaN')"
    return condition
