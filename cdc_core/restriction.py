"""What a rangefeed need not read, because the changefeed's query does not use it.

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

    The values are those that the column's kind has: int for numbers, str for strings, enums and UUIDs, bool, date, and
    datetime, which has a time zone for `timestamptz` and none for `timestamp`. Strings are equal when their UTF-8 is.
    Infinities and NaN are greater than every constant, and -infinity is less.
    """

    column: str
    operator: Literal["=", "<>", "<", "<=", ">", ">=", "in", "is null", "is not null"]
    values: tuple[bool | int | str | date | datetime, ...] = ()
    """One; several for `in`, none for `is null` and `is not null`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restriction:
    """What of the rows of a table is used. A rangefeed may read more."""

    columns: frozenset[str] | None = None
    """Columns that are used, those of the key among them; None for all. In place of others, `after` may have nulls."""
    comparisons: tuple[Comparison, ...] = ()
    """Scanned rows for which one of these does not hold may be left out. A NaN of a decimal must not be."""
    keep_unknown: bool = False
    """Whether to leave out only rows for which one is false, and not those for which one is null."""
    of_changes: tuple[Comparison, ...] = ()
    """Those of them, over columns of the key, that also hold for changes: a change may be left out if one is false for
    its key. An update that changes the key is a delete of the old key and an insert of the new one. All other changes
    have to be read, with all columns."""


def unrestricted(schema: TableSchema) -> Restriction:  # noqa: ARG001
    """Return that all columns of all rows are used."""
    return Restriction()
