"""Changes tables of the simulated database, for the conformance kit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qs, urlsplit

from cdc_conformance.simulated.database import SimulatedDatabase, Txn
from cdc_conformance.simulated.errors import StatementError
from cdc_conformance.simulated.source import directory_of
from cdc_conformance.simulated.state import table_name
from cdc_core import SourceTransaction, SourceWriter, SourceWriterContext


class SimulatedWriter(SourceWriter):
    """See `cdc_core.SourceWriter`. Creates the database if there is none; the URI's parameter `seed` is its seed."""

    def __init__(self, context: SourceWriterContext) -> None:
        super().__init__(context)
        self._opened: SimulatedDatabase | None = None
        self._begun: list[Txn] = []

    @property
    def database(self) -> SimulatedDatabase:
        """The database itself, for tests that need what only a simulated database can do."""
        if self._opened is None:
            uri = self.context.uri
            seed = int(parse_qs(urlsplit(uri).query).get("seed", ["0"])[0])
            self._opened = SimulatedDatabase.create(directory_of(uri), seed=seed)
        return self._opened

    def create_table(self, table: str) -> None:
        self.drop_table(table)
        self.database.create_table(table)

    def drop_table(self, table: str) -> None:
        if table_name(table).full in self.database.cluster.tables:
            self.database.drop_table(table)

    def begin(self) -> SimulatedTransaction:
        txn = self.database.begin()
        self._begun.append(txn)
        return SimulatedTransaction(txn)

    def rows(self, table: str) -> Mapping[int, Mapping[str, Any]]:
        return self.database.rows(table)

    def add_column(self, table: str, column: str) -> None:
        self.database.add_column(table, column)

    def add_filled_column(self, table: str, column: str, value: str) -> bool:
        self.database.add_column(table, column, default=value)
        return True

    def drop_column(self, table: str, column: str) -> None:
        self.database.drop_column(table, column)

    def change_key(self, table: str, columns: Sequence[str]) -> bool:
        self.database.change_key(table, *columns)
        return True

    def close(self) -> None:
        for txn in self._begun:
            with suppress(StatementError):
                if txn.is_open:
                    txn.rollback()
        self._begun.clear()


class SimulatedTransaction(SourceTransaction):
    """See `cdc_core.SourceTransaction`."""

    def __init__(self, txn: Txn) -> None:
        self._txn = txn

    def put(self, table: str, row: Mapping[str, Any]) -> None:
        self._txn.put(table, **row)

    def delete(self, table: str, id_: int) -> None:
        self._txn.delete(table, id_)

    def commit(self) -> None:
        self._txn.commit()

    def rollback(self) -> None:
        self._txn.rollback()
