"""The publication of one changefeed."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from psycopg import sql

from cdc_core import ConfigError, RangefeedContext
from cdc_rangefeed_postgres.catalog import Table
from cdc_rangefeed_postgres.connection import Connection
from cdc_rangefeed_postgres.names import object_name, quoted, temporary_title

log = logging.getLogger(__name__)

_STATE = "SELECT pubinsert, pubupdate, pubdelete, pubtruncate, pubviaroot FROM pg_publication WHERE pubname = %s"
_OWNED = "SELECT current_user::text, pg_has_role(pubowner, 'USAGE') FROM pg_publication WHERE pubname = %s"
# Before PostgreSQL 15 there were no column lists and no row filters. This waits for no lock, as pg_publication_tables
# would behind ALTER TABLE.
_LISTS = """
SELECT r.prrelid::bigint, to_jsonb(r) ->> 'prqual' IS NOT NULL,
       CASE jsonb_typeof(to_jsonb(r) -> 'prattrs') WHEN 'array' THEN (
           SELECT array_agg(a.attname::text) FROM pg_attribute a
           WHERE a.attrelid = r.prrelid AND a.attnum IN (
               SELECT attnum::int FROM jsonb_array_elements_text(to_jsonb(r) -> 'prattrs') AS list(attnum))) END
FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid
WHERE p.pubname = %s AND r.prrelid = ANY(%s::oid[])
"""
_GENERATED_ARE_PUBLISHED = 180000
"""Since this version a publication can have generated columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """The publication. Holds no connection. Picklable."""

    name: str
    given: bool
    """Whether it existed before: then it is never created, altered or dropped."""
    own: str
    """The name of the one that the changefeed creates when none is given."""
    changefeed: str
    nulls: bool
    """Whether rows have the columns that it leaves out, as nulls."""

    @classmethod
    def of(cls, context: RangefeedContext) -> Self:
        """Return the publication of a changefeed. Connects to nothing."""
        given = context.options.publication_name
        changefeed = temporary_title(context.changefeed) if context.temporary else context.changefeed
        own, nulls = object_name(changefeed, context.feed_id), context.options.virtual_columns == "null"
        return cls(name=given or own, given=given is not None, own=own, changefeed=changefeed, nulls=nulls)

    def create(self, connection: Connection, tables: Sequence[Table]) -> None:
        """Create the publication of *tables*. Changes of a partition are published under its root's name.

        Its comment names the changefeed, because different names may become the same object name.
        """
        connection.execute(creation(connection, self.own, tables))
        comment = f"changefeed {self.changefeed}"
        connection.execute(
            sql.SQL("COMMENT ON PUBLICATION {} IS {}").format(sql.Identifier(self.own), sql.Literal(comment))
        )

    def change(self, connection: Connection, *, add: Sequence[Table], drop: Sequence[Table]) -> None:
        """Publish the tables *add*, and no longer the tables *drop*. Repeatable. Never one that existed before."""
        for verb, tables in (("ADD", add), ("DROP", drop)):
            names = [table.sql_only for table in tables if table.published is (verb == "DROP")]
            if names and not self.given:
                connection.execute(f"ALTER PUBLICATION {quoted(self.name)} {verb} TABLE {', '.join(names)}")

    def filter(self, connection: Connection, table: Table, where: Sequence[str]) -> None:
        """Give *table*, which is published, the row filter *where*, none if it is empty. Within a transaction."""
        name, condition = quoted(self.name), " AND ".join(f"({each})" for each in where)
        connection.execute(f"ALTER PUBLICATION {name} DROP TABLE {table.sql_only}")
        connection.execute(
            f"ALTER PUBLICATION {name} ADD TABLE {table.sql_only}" + (f" WHERE ({condition})" if where else "")
        )

    def check_owner(self, connection: Connection, *, altered: bool) -> None:
        """Log when the publication that the changefeed created belongs to another role, which alone may alter it.

        Raises: ConfigError instead when it must be *altered*.
        """
        row = connection.execute(_OWNED, [self.own]).fetchone()
        if self.given or row is None or row[1]:
            return
        name, role = quoted(self.own), row[0]
        text = (
            f"role {role} does not own publication {self.own}, so it can neither add tables to the publication nor drop"
            f" it. Run ALTER PUBLICATION {name} OWNER TO {quoted(role)};"
        )
        if altered:
            raise ConfigError(text, repairable=True)
        log.info("%s", text)

    def drop(self, connection: Connection) -> None:
        """Drop the publication that the changefeed created, if it exists; never one that existed before."""
        if self.given and self.name == self.own:
            return
        # On a standby, DROP is refused even if there is nothing to drop.
        if connection.execute("SELECT FROM pg_publication WHERE pubname = %s", [self.own]).fetchone() is not None:
            connection.execute(f"DROP PUBLICATION IF EXISTS {quoted(self.own)}")

    def require(self, connection: Connection, tables: Iterable[Table]) -> None:
        """Return when the log has every change of every column of *tables*. Raises: ConfigError."""
        what = f"publication {self.name}"
        tables = list(tables)
        state = connection.execute(_STATE, [self.name]).fetchone()
        if state is None:
            names = ", ".join(table.sql for table in tables)
            raise ConfigError(
                f"{what} does not exist. Run CREATE PUBLICATION {quoted(self.name)} FOR TABLE {names} WITH "
                "(publish_via_partition_root = true);"
            )
        operations = ("insert", "update", "delete", "truncate")
        missing = [name for name, published in zip(operations, state, strict=False) if not published]
        if missing:
            remedy = self._alter("SET (publish = 'insert, update, delete, truncate');")
            raise ConfigError(f"{what} does not publish {' and '.join(missing)}. {remedy}")
        if not state[4]:
            raise ConfigError(
                f"{what} publishes changes to partitions under the partitions' names. "
                f"{self._alter('SET (publish_via_partition_root = true);')}"
            )
        rows = connection.execute(_LISTS, [self.name, [table.oid for table in tables]]).fetchall()
        found = {oid: (filtered, columns) for oid, filtered, columns in rows}
        for table in tables:
            if not table.published:
                raise ConfigError(f"table {table.name} is not in {what}. {self._alter(f'ADD TABLE {table.sql};')}")
            filtered, columns = found.get(table.oid, (False, None))
            if filtered and self.given:  # one of its own is compared with the token
                raise ConfigError(
                    f"table {table.name} has a row filter in {what}, so changes would be missing. {self._again(table)}"
                )
            self._require_columns(connection, table, None if columns is None else set(columns))

    def _require_columns(self, connection: Connection, table: Table, published: set[str] | None) -> None:
        if published is None:
            return
        expected = [column.name for column in table.columns]
        absent = [name for name in expected if name not in published]
        if absent:
            raise ConfigError(
                f"table {table.name} has a column list in publication {self.name} that leaves out "
                f"{', '.join(absent)}. {self._again(table)}"
            )
        listed = [column.name for column in table.all_columns if column.generated and column.name in published]
        if listed and not table.stored_columns and connection.info.server_version >= _GENERATED_ARE_PUBLISHED:
            raise ConfigError(
                f"table {table.name} has a column list in publication {self.name} with the generated column "
                f"{listed[0]}, and the publication leaves out generated columns. "
                f"{self._alter('SET (publish_generated_columns = stored);')}"
            )

    def _alter(self, clause: str) -> str:
        return f"Run ALTER PUBLICATION {quoted(self.name)} {clause}"

    def _again(self, table: Table) -> str:
        """Return the statements that publish the whole table. In one transaction, so that no change is missed."""
        name = quoted(self.name)
        return (
            f"Run BEGIN; ALTER PUBLICATION {name} DROP TABLE {table.sql}; ALTER PUBLICATION {name} ADD TABLE "
            f"{table.sql}; COMMIT;"
        )


def creation(connection: Connection, name: str, tables: Iterable[Table]) -> str:
    """Return the statement that creates a publication *name* with every change of *tables* on this server."""
    names = ", ".join(table.sql_only for table in tables)
    generated = connection.info.server_version >= _GENERATED_ARE_PUBLISHED
    options = "publish_via_partition_root = true" + (", publish_generated_columns = stored" if generated else "")
    return f"CREATE PUBLICATION {quoted(name)} FOR TABLE {names} WITH ({options})"
