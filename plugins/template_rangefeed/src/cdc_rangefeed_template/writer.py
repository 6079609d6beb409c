"""Writes to a journal as an application does, for the conformance suite."""

from collections.abc import Mapping
from typing import Any

from cdc_core import SourceTransaction, SourceWriter, SourceWriterContext

from cdc_rangefeed_template.journal import Journal, Key, Row


class TemplateTransaction(SourceTransaction):
    def __init__(self, writer: "TemplateWriter") -> None:
        self._writer = writer
        self._changes: dict[Key, Row | None] = {}

    def put(self, table: str, row: Mapping[str, Any]) -> None:
        key = (table, row["id"])
        before = self._changes[key] if key in self._changes else self._writer.all_rows.get(key)
        self._changes[key] = {"note": None, **(before or {}), **row}

    def delete(self, table: str, id_: int) -> None:
        self._changes[table, id_] = None

    def commit(self) -> None:
        self._writer.write(self._changes)

    def rollback(self) -> None:
        self._changes.clear()


class TemplateWriter(SourceWriter):
    """The only writer of the journal."""

    def __init__(self, context: SourceWriterContext) -> None:
        super().__init__(context)
        self.all_rows: dict[Key, Row] = {}
        self._journal = Journal(context.uri)
        self._last = 0

    def create_table(self, table: str) -> None:
        self._last = self._journal.append(self._last, create=table)

    def drop_table(self, table: str) -> None:
        self._last = self._journal.append(self._last, drop=table)

    def begin(self) -> TemplateTransaction:
        return TemplateTransaction(self)

    def write(self, changes: Mapping[Key, Row | None]) -> None:
        known = {key: after for key, after in changes.items() if after is not None or key in self.all_rows}
        writes = [[*key, self.all_rows.get(key), after] for key, after in known.items()]
        self._last = self._journal.append(self._last, writes=writes)
        for key, after in known.items():
            if after is None:
                del self.all_rows[key]
            else:
                self.all_rows[key] = after

    def rows(self, table: str) -> Mapping[int, Mapping[str, Any]]:
        return {id_: row for (of, id_), row in self.all_rows.items() if of == table}

    def add_column(self, table: str, column: str) -> None:
        raise NotImplementedError("the columns of a journal's tables never change")

    def drop_column(self, table: str, column: str) -> None:
        raise NotImplementedError("the columns of a journal's tables never change")

    def close(self) -> None:
        """Nothing is open between calls."""
