"""Rows read by SELECT through ADBC, in exactly the values that the log gives."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from cdc_core import ColumnType
from cdc_rangefeed_postgres.types import TableVersion

__all__ = ["select_list", "sql_texts", "to_struct"]


def select_list(version: TableVersion, columns: Sequence[str] | None = None) -> str:
    """Return the comma-separated expressions to SELECT, all columns of *version* or only *columns*, in that order.

    The session must have IntervalStyle postgres, DateStyle ISO, TimeZone UTC, bytea_output hex, extra_float_digits 1.
    """
    raise NotImplementedError(version)


def to_struct(batch: pa.RecordBatch, version: TableVersion, columns: Sequence[str] | None = None) -> pa.StructArray:
    """Return what `SELECT select_list` gave through ADBC as `version.schema.after_type` (or the part for *columns*).

    Raises: TerminalRangefeedError for a timestamp out of range.
    """
    raise NotImplementedError(version)


def sql_texts(array: pa.Array, type_: ColumnType) -> list[str | None]:
    """Return values of ours as texts that the type's input function takes, as in `$1::text[]::date[]`."""
    raise NotImplementedError(array)
