"""What a rangefeed does not have to read, because the changefeed's query does not use it.

CockroachDB's optimizer restricts in the same way what the scans of a CDC query read.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from typing import Literal

from cdc_core.schema import TableSchema


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A comparison of a column with constants. It does not hold for a null, except `is null`.

    A value has the type of the column's kind: int for numbers, str for strings, enums and UUIDs, bool, date, and
    datetime, with a time zone for `timestamptz` and without for `timestamp`. Strings are equal when their UTF-8
    bytes are. Infinities and NaN are greater than every constant, and -infinity is less.
    """

    column: str
    operator: Literal["=", "<>", "<", "<=", ">", ">=", "in", "is null", "is not null"]
    values: tuple[bool | int | str | date | datetime, ...] = ()
    """One value; several for `in`, none for `is null` and `is not null`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restriction:
    """The columns and rows of a table that are used. A rangefeed may read more."""

    columns: frozenset[str] | None = None
    """Columns that are used, including those of the key; None for all. Other columns may be null in `after`."""
    comparisons: tuple[Comparison, ...] = ()
    """A scanned row may be left out if one of these does not hold for it, unless the value is a decimal NaN."""
    keep_unknown: bool = False
    """Whether to keep rows for which a comparison is null, so that only rows for which it is false are left out."""
    of_changes: tuple[Comparison, ...] = ()
    """The comparisons of key columns that also apply to changes: a change may be left out if one is false for its key.
    An update that changes the key is a delete of the old key and an insert of the new one. All other changes must be
    read, with all columns."""


def unrestricted(schema: TableSchema) -> Restriction:  # noqa: ARG001
    """Return a restriction by which all columns of all rows are used."""
    return Restriction()
