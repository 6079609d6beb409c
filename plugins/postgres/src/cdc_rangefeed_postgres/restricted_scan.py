"""What a scan reads when a query uses only a part: the columns of its select list, and conditions for its WHERE."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import psycopg
import pyarrow as pa
from psycopg import sql

from cdc_core import Comparison, Kind, Restriction, RowBatch, TableSchema
from cdc_rangefeed_postgres.blocks import Density
from cdc_rangefeed_postgres.catalog import Catalog, Table
from cdc_rangefeed_postgres.columns import ColumnReader, column_readers
from cdc_rangefeed_postgres.connection import Connection
from cdc_rangefeed_postgres.names import quoted
from cdc_rangefeed_postgres.token import Scan
from cdc_rangefeed_postgres.types import TableVersion
from cdc_rangefeed_postgres.versions import Versions

_TEXTS = {25, 1043}
"""text and varchar. Others compare in ways of their own, such as char(n), for which blanks at the end do not count."""


_WHOLE = Density(1.0, 1.0)
_MIN_SHARE = 1 / 16
"""However little of a table is read, a step looks at so much more of it at most: estimates can be wrong."""


class Estimates:
    """How much of the tables' blocks scans deliver, as the server estimates it. For steps that are large enough."""

    def __init__(self, restricted: Callable[[TableSchema], Restriction]) -> None:
        self._restricted = restricted
        self._round = 0
        self._shares: dict[str, Density] = {}

    def delivered(
        self,
        connection: Connection,
        scan: Scan,
        densities: Mapping[int, Density],
        catalog: Catalog,
        versions: Versions,
    ) -> Mapping[int, Density]:
        """Return *densities* by what is delivered. Asks once for each table in a round."""
        if scan.round != self._round:
            self._round, self._shares = scan.round, {}
        found = dict(densities)
        for part in scan.parts:
            if part.table not in self._shares and versions.lists[part.table]:
                version = versions.lists[part.table][0]
                restriction = self._restricted(version.schema)
                self._shares[part.table] = (
                    _WHOLE
                    if restriction.columns is None and not restriction.comparisons
                    else _share(connection, catalog.tables[part.table], version, restriction)
                )
            share = self._shares.get(part.table)
            if share is not None and part.oid in densities and part.detached is None:
                whole = densities[part.oid]
                found[part.oid] = Density(whole.rows * share.rows, whole.bytes * share.bytes)
        return found


def _share(connection: Connection, table: Table, version: TableVersion, restriction: Restriction) -> Density:
    """Return which shares of the rows and bytes of a table are delivered."""
    columns = ", ".join(quoted(name) for name in read_columns(version, restriction))
    where = " AND ".join(["true", *conditions(version, restriction)])
    try:
        whole_rows, whole_width = _estimated(connection, f"SELECT * FROM {table.sql} AS l")
        rows, width = _estimated(connection, f"SELECT {columns} FROM {table.sql} AS l WHERE {where}")
    except (psycopg.ProgrammingError, psycopg.errors.LockNotAvailable):
        return _WHOLE  # the table is being changed
    rows_share = max(rows / max(whole_rows, 1), _MIN_SHARE)
    return Density(min(rows_share, 1.0), min(max(rows_share * width / max(whole_width, 1), _MIN_SHARE), 1.0))


def _estimated(connection: Connection, query: str) -> tuple[float, float]:
    """Return how many rows *query* gives, and how many bytes each has."""
    row = connection.execute(f"EXPLAIN (FORMAT JSON) {query}".encode()).fetchone()
    assert row is not None
    plan = row[0][0]["Plan"]
    return plan["Plan Rows"], plan["Plan Width"]


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
        operand = operand_of(readers[comparison.column], comparison)
        if operand is not None:
            condition = condition_of(readers[comparison.column], comparison, operand)
            yield f"({condition}) IS NOT FALSE" if restriction.keep_unknown else condition


def operand_of(reader: ColumnReader, comparison: Comparison) -> str | None:
    """Return the column in a scan's *comparison*; None where PostgreSQL would compare in another way."""
    name = f"l.{quoted(comparison.column)}"
    kind = reader.type_.kind
    if not comparison.values or kind not in (Kind.STRING, Kind.ENUM, Kind.UUID):
        return name
    if kind is Kind.STRING and reader.base_oid not in _TEXTS:
        return None
    return f'{name}::text COLLATE "C"'


def condition_of(reader: ColumnReader, comparison: Comparison, operand: str) -> str:
    """Return *comparison* in SQL, with *operand* for the column of *reader*. A NaN of a decimal holds."""
    values = ", ".join(sql.Literal(value).as_string(None) for value in comparison.values)
    if comparison.operator == "in":
        condition = f"{operand} IN ({values})"
    else:
        condition = f"{operand} {comparison.operator.upper()} {values}".rstrip()
    if reader.type_.kind is Kind.DECIMAL and comparison.values:
        return f"({condition} OR {operand} = 'NaN')"
    return condition
