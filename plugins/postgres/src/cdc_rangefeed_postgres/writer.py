"""Writes to tables that a changefeed reads, for the conformance kit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import psycopg
from psycopg import sql
from psycopg.rows import dict_row

from cdc_core import SourceTransaction, SourceWriter, SourceWriterContext
from cdc_rangefeed_postgres.selection import Selection

_LOCK_TIMEOUT = "10s"
"""Two transactions of one thread could otherwise wait for each other forever."""

Connection = psycopg.Connection[tuple[Any, ...]]


class PostgresWriter(SourceWriter):
    """See `cdc_core.SourceWriter`. Each open transaction has its own connection, which is used again afterwards."""

    def __init__(self, context: SourceWriterContext) -> None:
        super().__init__(context)
        self._idle: list[Connection] = []
        self._all: list[Connection] = []

    def create_table(self, table: str) -> None:
        name = _identifier(table)
        create = "CREATE TABLE {} (id integer PRIMARY KEY, n integer NOT NULL, note text)"
        self._execute("DROP TABLE IF EXISTS {}", name)
        self._execute(create, name)
        self._execute("ALTER TABLE {} REPLICA IDENTITY FULL", name)

    def drop_table(self, table: str) -> None:
        self._execute("DROP TABLE IF EXISTS {}", _identifier(table))

    def begin(self) -> PostgresTransaction:
        return PostgresTransaction(self, self.take())

    def rows(self, table: str) -> Mapping[int, Mapping[str, Any]]:
        connection = self.take()
        try:
            with connection.cursor(row_factory=dict_row) as cursor, connection.transaction():
                cursor.execute(sql.SQL("SELECT * FROM {}").format(_identifier(table)))
                return {row["id"]: row for row in cursor}
        finally:
            self.give(connection)

    def add_column(self, table: str, column: str) -> None:
        self._execute("ALTER TABLE {} ADD COLUMN {} text", _identifier(table), sql.Identifier(column))

    def add_filled_column(self, table: str, column: str, value: str) -> bool:
        default = sql.Literal(value)
        self._execute(
            "ALTER TABLE {} ADD COLUMN {} text DEFAULT {}", _identifier(table), sql.Identifier(column), default
        )
        return True

    def change_key(self, table: str, columns: Sequence[str]) -> bool:
        key = sql.SQL(", ").join(map(sql.Identifier, columns))
        ((_, name),) = Selection.parse([table]).names
        self._execute(
            "ALTER TABLE {} DROP CONSTRAINT {constraint}, ADD CONSTRAINT {constraint} PRIMARY KEY ({key})",
            _identifier(table),
            constraint=sql.Identifier(f"{name}_pkey"),
            key=key,
        )
        return True

    def drop_column(self, table: str, column: str) -> None:
        self._execute("ALTER TABLE {} DROP COLUMN {}", _identifier(table), sql.Identifier(column))

    def close(self) -> None:
        for connection in self._all:
            with suppress(psycopg.Error):
                connection.close()
        self._all.clear()
        self._idle.clear()

    def take(self) -> Connection:
        """Return a connection without a transaction, for one user at a time."""
        while self._idle:
            connection = self._idle.pop()
            with suppress(psycopg.OperationalError):  # the server may have ended it
                connection.execute("SELECT 1")
                connection.rollback()
                return connection
        connection = psycopg.connect(self.context.uri, application_name="cdc writer", prepare_threshold=None)
        self._all.append(connection)
        connection.execute(f"SET lock_timeout = '{_LOCK_TIMEOUT}'")
        connection.commit()
        return connection

    def give(self, connection: Connection) -> None:
        """Take back a connection without a transaction."""
        self._idle.append(connection)

    def _execute(self, statement: str, *names: sql.Composable, **named: sql.Composable) -> None:
        connection = self.take()
        with connection.transaction():
            connection.execute(sql.SQL(statement).format(*names, **named))
        self.give(connection)


class PostgresTransaction(SourceTransaction):
    """See `cdc_core.SourceTransaction`."""

    def __init__(self, writer: PostgresWriter, connection: Connection) -> None:
        self._writer = writer
        self._connection = connection

    def put(self, table: str, row: Mapping[str, Any]) -> None:
        columns = [sql.Identifier(column) for column in row]
        values = dict(row)
        settings = sql.SQL(", ").join(
            sql.SQL("{} = {}").format(identifier, sql.Placeholder(column))
            for identifier, column in zip(columns, row, strict=True)
        )
        update = sql.SQL("UPDATE {} SET {} WHERE id = %(id)s").format(_identifier(table), settings)
        if self._connection.execute(update, values).rowcount == 0:
            insert = sql.SQL("INSERT INTO {} ({}) VALUES ({})").format(
                _identifier(table),
                sql.SQL(", ").join(columns),
                sql.SQL(", ").join(sql.Placeholder(column) for column in row),
            )
            self._connection.execute(insert, values)

    def delete(self, table: str, id_: int) -> None:
        self._connection.execute(sql.SQL("DELETE FROM {} WHERE id = %s").format(_identifier(table)), [id_])

    def commit(self) -> None:
        self._connection.commit()
        self._writer.give(self._connection)

    def rollback(self) -> None:
        self._connection.rollback()
        self._writer.give(self._connection)


def _identifier(table: str) -> sql.Identifier:
    ((schema, name),) = Selection.parse([table]).names
    return sql.Identifier(schema, name)
