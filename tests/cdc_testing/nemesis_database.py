"""The databases that a nemesis writes to: one through its source writer alone, and the simulated one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import psycopg
from cdc_conformance.simulated import SimulatedDatabase, StatementError, Txn
from cdc_conformance.simulated.cluster import table_name
from cdc_conformance.simulated.log_steps import next_boundary
from cdc_rangefeed_postgres.options import PostgresOptions
from cdc_rangefeed_postgres.writer import PostgresWriter
from cdc_testing.nemesis_events import Disturb, Write

from cdc_core import Frontier, SourceTransaction, SourceWriterContext, Timestamp


class NemesisDatabase(ABC):
    """A fresh database. One transaction may be open, besides those that begin and end in one call."""

    uri: str
    options: Mapping[str, Any] = {}
    """Options that a changefeed needs to read it."""
    tells_times = False
    """Whether it says when a transaction was committed."""

    @abstractmethod
    def create_table(self, table: str) -> None: ...

    @abstractmethod
    def drop_table(self, table: str) -> None: ...

    @abstractmethod
    def transact(self, writes: Sequence[Write]) -> Timestamp | None:
        """Commit *writes* and return when that was, as far as the database tells. Raises: StatementError."""

    @abstractmethod
    def open(self, writes: Sequence[Write]) -> None:
        """Begin a transaction with *writes* and leave it open. Raises: StatementError."""

    @abstractmethod
    def commit(self) -> Timestamp | None:
        """Commit the open transaction. Raises: StatementError when that cannot be any more."""

    @abstractmethod
    def roll_back(self) -> None: ...

    @abstractmethod
    def add_column(self, table: str, column: str) -> None: ...

    @abstractmethod
    def fill_column(self, table: str, column: str, value: str | int) -> Timestamp | None:
        """Add a column that has *value* in every row, and return when that was, as far as the database tells."""

    @abstractmethod
    def drop_column(self, table: str, column: str) -> Timestamp | None:
        """Drop a column and return when that was, as far as the database tells."""

    @abstractmethod
    def rename_column(self, table: str, column: str, to: str) -> None: ...

    @abstractmethod
    def make_text(self, table: str, column: str) -> Timestamp | None:
        """Give an integer column the type text, and return when that was, as far as the database tells."""

    @abstractmethod
    def change_key(self, table: str, columns: Sequence[str]) -> Timestamp | None:
        """Give the table another primary key, and return when that was, as far as the database tells.

        Raises: StatementError.
        """

    @abstractmethod
    def disturb(self, event: Disturb) -> None:
        """Let *event* happen to the database. Raises: StatementError when it makes no sense now."""

    @abstractmethod
    def settled(self, now: Callable[[], Timestamp]) -> Timestamp:
        """Return up to when all that is committed can be resolved; *now* reads the source's clock."""

    @abstractmethod
    def has_resolved(self, frontier: Frontier) -> bool:
        """Return whether *frontier* is where the database would let it be without more time."""

    @abstractmethod
    def close(self) -> None: ...


class PostgresNemesis(NemesisDatabase):
    """Through the plugin's own writer, and by SQL where it knows no such statement."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self._writer = PostgresWriter(SourceWriterContext(uri=uri, options=PostgresOptions()))
        self._open: SourceTransaction | None = None

    def create_table(self, table: str) -> None:
        self._writer.create_table(table)

    def drop_table(self, table: str) -> None:
        self._writer.drop_table(table)

    def transact(self, writes: Sequence[Write]) -> None:
        transaction = self._begun(writes)
        transaction.commit()

    def open(self, writes: Sequence[Write]) -> None:
        self._open = self._begun(writes)

    def commit(self) -> None:
        assert self._open is not None
        self._open.commit()

    def roll_back(self) -> None:
        assert self._open is not None
        self._open.rollback()

    def add_column(self, table: str, column: str) -> None:
        self._writer.add_column(table, column)

    def fill_column(self, table: str, column: str, value: str | int) -> None:
        if isinstance(value, int):
            self._alter(table, f"ADD COLUMN {column} bigint DEFAULT {value}")
        elif not self._writer.add_filled_column(table, column, value):
            raise StatementError("the writer cannot add a column with a default")

    def drop_column(self, table: str, column: str) -> None:
        self._writer.drop_column(table, column)

    def rename_column(self, table: str, column: str, to: str) -> None:
        self._alter(table, f"RENAME COLUMN {column} TO {to}")

    def make_text(self, table: str, column: str) -> None:
        self._alter(table, f"ALTER COLUMN {column} TYPE text")

    def change_key(self, table: str, columns: Sequence[str]) -> None:
        self._writer.change_key(table, columns)

    def disturb(self, event: Disturb) -> None:
        raise StatementError(f"PostgreSQL knows no {event.statement}")

    def settled(self, now: Callable[[], Timestamp]) -> Timestamp:
        return now()

    def has_resolved(self, frontier: Frontier) -> bool:
        return True

    def close(self) -> None:
        self._writer.close()

    def _alter(self, table: str, form: str) -> None:
        with psycopg.connect(self.uri, autocommit=True) as connection:
            connection.execute(f"ALTER TABLE {table} {form}")

    def _begun(self, writes: Sequence[Write]) -> SourceTransaction:
        transaction = self._writer.begin()
        for write in writes:
            if write.values is None:
                transaction.delete(write.table, write.id)
            else:
                transaction.put(write.table, {"id": write.id, **write.values})
        return transaction


class SimulatedNemesis(NemesisDatabase):
    """Time passes only by the script's events, so that a seed gives the same history to the nanosecond.

    Except after a rescan: when the changefeed begins to read it is for the changefeed to say.
    """

    options: Mapping[str, Any] = {"time_passes": False}
    tells_times = True

    def __init__(self, directory: Path, *, seed: int) -> None:
        self.database = SimulatedDatabase.create(directory, seed=seed)
        self.uri = self.database.uri
        self._tables: list[str] = []
        self._open: Txn | None = None

    def create_table(self, table: str) -> None:
        self.database.create_table(table)
        self._tables.append(table)

    def drop_table(self, table: str) -> None:
        self.database.drop_table(table)
        self._tables.remove(table)

    def transact(self, writes: Sequence[Write]) -> Timestamp:
        return self._begun(writes).commit()

    def open(self, writes: Sequence[Write]) -> None:
        self._open = self._begun(writes)

    def commit(self) -> Timestamp:
        assert self._open is not None
        return self._open.commit()

    def roll_back(self) -> None:
        assert self._open is not None
        if self._open.is_open:
            self._open.rollback()

    def add_column(self, table: str, column: str) -> None:
        self.database.add_column(table, column)

    def fill_column(self, table: str, column: str, value: str | int) -> Timestamp:
        return self.database.add_column(table, column, "int" if isinstance(value, int) else "string", default=value)

    def drop_column(self, table: str, column: str) -> Timestamp:
        return self.database.drop_column(table, column)

    def rename_column(self, table: str, column: str, to: str) -> None:
        self.database.rename_column(table, column, to)

    def make_text(self, table: str, column: str) -> Timestamp:
        return self.database.change_type(table, column, "string")

    def change_key(self, table: str, columns: Sequence[str]) -> Timestamp:
        return self.database.change_key(table, *columns)

    def disturb(self, event: Disturb) -> None:
        if event.statement in ("push", "abort"):
            if self._open is None or not self._open.is_open:
                raise StatementError("no transaction is open")
            getattr(self._open, event.statement)()
        else:
            arguments = dict(event.arguments)
            place = [arguments.pop("table")] if "table" in arguments else []
            getattr(self.database, event.statement)(*place, **arguments)

    def settled(self, now: Callable[[], Timestamp]) -> Timestamp:
        return self.database.settle()

    def has_resolved(self, frontier: Frontier) -> bool:
        cluster = self.database.cluster
        found = [entry for table in self._tables for entry in cluster.resolved(table_name(table).full)]
        boundary = next_boundary(cluster, frontier)
        if boundary is not None and any(resolved < boundary.at.prev() for _, resolved in found):
            # All tables wait at a schema boundary for the last of them.
            found = [(span, min(resolved, boundary.at.prev())) for span, resolved in found]
        return all(frontier.of(span) >= resolved for span, resolved in found)

    def close(self) -> None:
        pass

    def _begun(self, writes: Sequence[Write]) -> Txn:
        transaction = self.database.begin()
        try:
            for write in writes:
                if write.values is None:
                    transaction.delete(write.table, write.id)
                else:
                    transaction.put(write.table, id=write.id, **write.values)
        except StatementError:
            if transaction.is_open:
                transaction.rollback()
            raise
        return transaction
