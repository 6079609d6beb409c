"""The row filter of a table in the publication: which changes the server need not decode and send.

It has conditions over columns of the key alone. The log has the key of every change: of an update that moves a row
into or out of the filter, PostgreSQL makes the insert or the delete that a changefeed makes of a changed key too. With
other columns, an update that a query delivers as an update would arrive as an insert.

PostgreSQL allows in a filter only what is built in and depends on no setting. None of it can fail for a value, because
that would end the decoding of the log.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from cdc_core import Comparison, Kind, Restriction
from cdc_rangefeed_postgres.columns import ColumnReader, column_readers
from cdc_rangefeed_postgres.names import quoted
from cdc_rangefeed_postgres.restricted_scan import condition_of, operand_of
from cdc_rangefeed_postgres.types import TableVersion

_COMPARED = frozenset({16, 20, 21, 23, 25, 1043, 1082, 1114, 1184, 1700, 2950})
"""The types that a filter may compare, by oid: bool, bigint, smallint, integer, text, varchar, date, timestamp,
timestamptz, numeric and uuid."""
_FIRST_USER_OID = 16384
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFilter:
    """The conditions of a filter, in SQL; none for all changes. AND joins them."""

    where: tuple[str, ...] = ()
    columns: tuple[tuple[str, int], ...] = ()
    """Names and types of the columns in them."""
    left: tuple[tuple[str, str], ...] = ()
    """What a scan leaves out and the filter cannot: the comparison, and why."""
    whole: tuple[str, ...] = ()
    """The comparisons that a scan does not evaluate either."""


def row_filter(version: TableVersion, restriction: Restriction, collations: dict[str, int]) -> RowFilter:
    """Return the filter for changes of *version*, as far as *restriction* allows. *collations* are by column."""
    readers = {reader.column.name: reader for reader in column_readers(version)}
    where, columns, left, whole = [], [], [], []
    for comparison in restriction.comparisons:
        reader, name = readers[comparison.column], quoted(comparison.column)
        if operand_of(reader, comparison) is None:
            whole.append(condition_of(reader, comparison, name))
        reason = _reason(comparison, reader, restriction, version.schema.primary_key, collations)
        if reason is not None:
            left.append((condition_of(reader, comparison, name), reason))
            continue
        columns.append((comparison.column, reader.column.oid))
        where.append(condition_of(reader, comparison, _operand(reader, comparison, name)))
    return RowFilter(
        where=tuple(dict.fromkeys(where)),
        columns=tuple(dict.fromkeys(columns)),
        left=tuple(dict.fromkeys(left)),
        whole=tuple(dict.fromkeys(whole)),
    )


def explained(found: RowFilter, *, on: bool) -> list[tuple[str, list[str]]]:
    """Return what `cdc explain` says of a filter that is set if *on*, otherwise possible: titles, each with lines."""
    sections: list[tuple[str, list[str]]] = []
    if found.whole:
        sections.append(("left to Spark, too, because PostgreSQL compares these types differently", list(found.whole)))
    if found.where:
        title = (
            "changes that PostgreSQL sends, according to the publication's row filter"
            if on
            else ("changes that PostgreSQL would send with the option row_filter = true; without it, all changes")
        )
        sections.append((title, list(found.where)))
    if found.left:
        lines = [f"{condition}: {reason}" for condition, reason in found.left]
        sections.append(("cannot be in the publication's row filter", lines))
    return sections


def _reason(
    comparison: Comparison,
    reader: ColumnReader,
    restriction: Restriction,
    key: Sequence[str],
    collations: dict[str, int],
) -> str | None:
    """Return why *comparison* cannot be in the filter; None if it can."""
    column = comparison.column
    if column not in key:
        return f"column {column} is not in the key, and the log may not have it for deletes"
    if comparison not in restriction.of_changes:
        return "deletes are delivered whatever the condition says, because it uses columns that are not in the key"
    if not comparison.values:
        return f"column {column} is in the key and never null"
    if reader.column.oid >= _FIRST_USER_OID:
        return f"column {column} has a type that is not built in"
    if reader.column.oid not in _COMPARED:
        return f"a filter cannot compare the type of column {column}, {reader.type_.source}"
    if collations.get(column, 0) >= _FIRST_USER_OID:
        return f"column {column} has a collation that is not built in"
    if reader.type_.kind is Kind.UUID and not all(_UUID.fullmatch(str(value)) for value in comparison.values):
        return f"column {column} is compared with a text that is not a uuid in lower case"
    return None


def _operand(reader: ColumnReader, comparison: Comparison, name: str) -> str:
    return f'{name}::text COLLATE "C"' if reader.type_.kind is Kind.STRING and comparison.values else name
