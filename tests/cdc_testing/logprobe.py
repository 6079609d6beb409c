"""Reads tables of a PostgreSQL server with the decoders of the log and of the scan."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, Self

import adbc_driver_postgresql.dbapi as adbc
import numpy as np
import psycopg
import pyarrow as pa
from cdc_rangefeed_postgres.pgoutput import LogDecoder
from cdc_rangefeed_postgres.scan_values import select_list, to_struct
from cdc_rangefeed_postgres.transaction_framing import TransactionClock
from cdc_rangefeed_postgres.types import PgColumn, TableVersion, TypeCatalog, TypeInfo, column_type
from cdc_rangefeed_postgres.unchanged_toast import Lookup
from cdc_testing.pgvalues import TYPES, Maker

from cdc_core import Column, Op, RowBatch, TableName, TableSchema, Timestamp

_SETTINGS = {
    "DateStyle": "ISO",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "bytea_output": "hex",
    "extra_float_digits": "1",
}
_TYPES = """
    SELECT t.oid, format_type(t.oid, NULL), t.typtype::text, t.typbasetype, t.typtypmod,
           CASE WHEN t.typoutput = 'array_out'::regproc THEN t.typelem ELSE 0 END, t.typdelim::text,
           ARRAY(SELECT enumlabel::text FROM pg_enum WHERE enumtypid = t.oid ORDER BY enumsortorder),
           ARRAY(SELECT attname::text FROM pg_attribute WHERE attrelid = t.typrelid AND attnum > 0
                 AND NOT attisdropped AND t.typtype = 'c' ORDER BY attnum),
           ARRAY(SELECT atttypid FROM pg_attribute WHERE attrelid = t.typrelid AND attnum > 0
                 AND NOT attisdropped AND t.typtype = 'c' ORDER BY attnum),
           ARRAY(SELECT atttypmod FROM pg_attribute WHERE attrelid = t.typrelid AND attnum > 0
                 AND NOT attisdropped AND t.typtype = 'c' ORDER BY attnum)
    FROM pg_type t WHERE t.oid = ANY(%s::oid[])
"""


class LogProbe:
    """One slot and one publication of a database. Everything that is executed after `watch` is in the log."""

    def __init__(self, uri: str) -> None:
        self._sql = psycopg.connect(uri, autocommit=True)
        self._arrow = adbc.connect(uri, autocommit=True)
        self._versions: dict[int, list[TableVersion]] = {}

    def __enter__(self) -> Self:
        for name, value in _SETTINGS.items():
            self.execute(f"SET {name} TO '{value}'")
            self._fetch(f"SET {name} TO '{value}'")
        return self

    def __exit__(self, *_: object) -> None:
        self._sql.close()
        self._arrow.close()

    def execute(self, statement: str, parameters: Sequence[Any] | None = None) -> list[tuple[Any, ...]]:
        cursor = self._sql.execute(statement, parameters)
        return cursor.fetchall() if cursor.description else []

    def transaction(self, *statements: str) -> None:
        """Execute *statements* in one transaction."""
        with self._sql.transaction():
            for statement in statements:
                self.execute(statement)

    def watch(self, *tables: str, key: Sequence[str] = ("id",)) -> None:
        """Create the slot and the publication for *tables* with their present columns."""
        self.execute(f"CREATE PUBLICATION probe FOR TABLE {', '.join(tables)}")
        self.execute("SELECT pg_create_logical_replication_slot('probe' || current_database(), 'pgoutput')")
        for table in tables:
            self.learn(table, key=key)

    def learn(self, table: str, *, key: Sequence[str] = ("id",)) -> TableVersion:
        """Add the present version of *table* to the versions that the log can have, and return it."""
        ((relid,),) = self.execute("SELECT %s::regclass::oid", [table])
        versions = self._versions.setdefault(relid, [])
        versions.append(self.version(table, key=key, number=len(versions) + 1))
        return versions[-1]

    def version(self, table: str, *, key: Sequence[str] = ("id",), number: int = 1) -> TableVersion:
        rows = self.execute(
            "SELECT attname, atttypid, atttypmod FROM pg_attribute WHERE attrelid = %s::regclass"
            " AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
            [table],
        )
        columns = tuple(PgColumn(name, oid, typmod, name in key) for name, oid, typmod in rows)
        types = TypeCatalog()
        while wanted := types.unknown(column.oid for column in columns):
            found = {row[0]: _info(row) for row in self.execute(_TYPES, [list(wanted)])}
            assert found.keys() == wanted
            types = TypeCatalog({**types.types, **found})
        schema = TableSchema(
            name=TableName("probe", "public", table),
            version=number,
            columns=tuple(Column(name=column.name, type=column_type(column, types)) for column in columns),
            primary_key=tuple(key),
        )
        return TableVersion(schema, columns, types)

    def messages(self, *, binary: bool) -> pa.Array:
        """Return all messages of the log."""
        ((slot,),) = self.execute("SELECT 'probe' || current_database()")
        table = self._fetch(
            f"SELECT data FROM pg_logical_slot_peek_binary_changes('{slot}', NULL, NULL,"
            f" 'proto_version', '1', 'publication_names', 'probe', 'binary', '{str(binary).lower()}')"
        )
        return table.column(0).combine_chunks()

    def decoder(
        self,
        *,
        after: Timestamp = Timestamp(),
        until: Timestamp | None = None,
        diff: bool = False,
        mvcc: bool = False,
        lookup: Lookup | None = None,
    ) -> LogDecoder:
        clock = TransactionClock(start_lsn=0, end_lsn=1 << 62, after=after, until=until)
        return LogDecoder(self._versions, clock, diff=diff, mvcc=mvcc, lookup=lookup)

    def log(self, *, binary: bool, diff: bool = False, lookup: Lookup | None = None) -> list[RowBatch]:
        """Return all rows of the log, decoded at once."""
        return list(self.decoder(diff=diff, lookup=lookup).decode(self.messages(binary=binary)))

    def scan(self, version: TableVersion, columns: Sequence[str] | None = None, *, where: str = "true") -> pa.Array:
        """Return the rows of a table in the order of column id."""
        columns = columns or [column.name for column in version.columns]
        chunk = self._fetch(
            f"SELECT {select_list(version, columns)} FROM {version.schema.name} WHERE {where} ORDER BY id"
        ).combine_chunks()
        batches = chunk.to_batches()
        if not batches:
            batches = [pa.RecordBatch.from_arrays([pa.array([], f.type) for f in chunk.schema], schema=chunk.schema)]
        return to_struct(batches[0], version, columns)

    def scanned(self, table: str) -> RowBatch:
        """Return the present rows of *table* as an initial scan would, in the order of column id, at timestamp 0."""
        version = self.version(table)
        after = self.scan(version)
        zeros = np.zeros(len(after), np.int64)
        return RowBatch.of(
            version.schema,
            op=pa.array(np.full(len(after), Op.SCAN, np.uint8)),
            updated=RowBatch.timestamps(pa.array(zeros), pa.array(zeros.astype(np.int32))),
            key=RowBatch.struct(version.schema.key_type, [after.field("id")]),
            after=after,
        )

    def fill(self, table: str, makers: Mapping[str, Maker], *, seed: int, rows: int = 300) -> None:
        """Create a table with a column of each type, watch it, and insert random values and nulls."""
        self.execute(TYPES)
        columns = ", ".join(f"c{index} {type_}" for index, type_ in enumerate(makers))
        self.execute(f"CREATE TABLE {table} (id bigint PRIMARY KEY, {columns})")
        self.watch(table)
        rng = random.Random(seed)
        marks = ", ".join(f"%s::text::{type_}" for type_ in makers)
        for number in range(rows):
            values = [None if rng.random() < 0.1 else make(rng) for make in makers.values()]
            self.execute(f"INSERT INTO {table} VALUES ({number}, {marks})", values)

    def assert_log_is(self, rows: pa.StructArray, *, binary: bool, column: str = "after") -> None:
        """Fail unless *column* of the log has exactly *rows*, or null.

        They are compared bit by bit: NaN equals NaN, and -0 differs from 0.
        """
        batches = self.log(binary=binary, diff=column == "before")
        logged = pa.concat_arrays([batch.column(column) for batch in batches]).drop_null()
        assert logged.type == rows.type
        for field in rows.type:
            assert _bits(logged.field(field.name)).to_pylist() == _bits(rows.field(field.name)).to_pylist(), field.name

    def _fetch(self, query: str) -> pa.Table:
        with self._arrow.cursor() as cursor:
            cursor.execute(query)
            return cursor.fetch_arrow_table()


def _bits(array: pa.Array) -> pa.Array:
    """Return floats, dates and timestamps as integers."""
    if array.type in (pa.float32(), pa.date32()):
        return array.view(pa.int32())
    return array.view(pa.int64()) if array.type == pa.float64() or pa.types.is_timestamp(array.type) else array


def _info(row: tuple[Any, ...]) -> TypeInfo:
    oid, name, typtype, base, typmod, element, delimiter, labels, names, oids, typmods = row
    return TypeInfo(
        oid=oid,
        name=name,
        typtype=typtype,
        base=base,
        typmod=typmod,
        element=element,
        delimiter=delimiter,
        labels=tuple(labels),
        fields=tuple(zip(names, oids, typmods, strict=True)),
    )
