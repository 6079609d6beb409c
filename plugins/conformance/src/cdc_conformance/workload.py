"""Seeded transactions on a few keys, and the exact history of their commits.

There are few keys on purpose: bugs show in many versions of one key, not in many keys. Each committed version of a key
has `n` one greater than the version before, also after a delete, so a gap or an old version is visible in the rows.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cdc_core import SourceTransaction, SourceWriter

Row = Mapping[str, Any]
_MOST_OPEN = 3
OTHERS = "cdc-conformance-others"
"""The name of a thread that commits while a rangefeed reads."""
RowKey = tuple[str, int]
"""The table as a user of a changefeed writes it, and the `id`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One row before and after a committed transaction; None if there was no row."""

    table: str
    id: int
    before: Row | None
    after: Row | None

    @property
    def key(self) -> RowKey:
        return self.table, self.id


@dataclass(slots=True)
class History:
    """All commits in order. A commit holds each row that it changed once."""

    commits: list[tuple[Write, ...]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.commits)

    def writes(self, since: int = 0) -> Iterator[Write]:
        """Yield the writes of the commits from number *since* on, in commit order."""
        for commit in self.commits[since:]:
            yield from commit

    def versions(self, since: int = 0) -> dict[RowKey, list[Row | None]]:
        """Return the versions of each key in the commits from number *since* on; None stands for a delete."""
        found: dict[RowKey, list[Row | None]] = defaultdict(list)
        for write in self.writes(since):
            found[write.key].append(write.after)
        return dict(found)

    def numbers(self, since: int = 0) -> dict[RowKey, list[int | None]]:
        """Return the same, with the number `n` of each version."""
        return {key: [None if row is None else row["n"] for row in rows] for key, rows in self.versions(since).items()}


def same_row(seen: Row | None, written: Row | None) -> bool:
    """Return whether a row arrived as it was written. A missing column counts as null."""
    if seen is None or written is None:
        return seen is written
    return all(seen.get(column) == written.get(column) for column in {*seen, *written})


class Transaction:
    """An open transaction. No other transaction may write its rows until it ends. `Workload.begin` returns one."""

    def __init__(self, workload: Workload, transaction: SourceTransaction) -> None:
        self._workload = workload
        self._transaction = transaction
        self._rows: dict[RowKey, Row | None] = {}

    def put(self, table: str, id_: int, **values: Any) -> None:
        """Insert or update a row. `n` is set automatically, and columns without a value keep theirs."""
        before = self._take(table, id_)
        n = self._workload.versions_of(table, id_) + 1
        self._transaction.put(table, {"id": id_, "n": n, **values})
        self._rows[table, id_] = {**self._workload.blank(table), **(before or {}), "id": id_, "n": n, **values}

    def delete(self, table: str, id_: int) -> None:
        self._take(table, id_)
        self._transaction.delete(table, id_)
        self._rows[table, id_] = None

    def row(self, table: str, id_: int) -> Row | None:
        """Return the row as this transaction sees it."""
        key = (table, id_)
        return self._rows[key] if key in self._rows else self._workload.rows.get(key)

    def commit(self) -> None:
        """Commit, and add the writes to the history."""
        self._transaction.commit()
        self._workload.committed(self, self._rows)

    def rollback(self) -> None:
        self._transaction.rollback()
        self._workload.ended(self)

    def owns(self, key: RowKey) -> bool:
        return key in self._rows

    def _take(self, table: str, id_: int) -> Row | None:
        owner = self._workload.owner(table, id_)
        assert owner in (None, self), f"row {id_} of {table} belongs to another open transaction"
        return self.row(table, id_)


class Workload:
    """Writes to *tables*, which must exist, one event at a time. The same seed gives the same events.

    `run` and `step` write to the keys 1 to *keys* of each table. Nothing else may write to the tables, or `history` and
    `rows` are wrong: use `begin`, `put`, `delete` and `fill` for other rows.
    """

    def __init__(self, writer: SourceWriter, tables: Sequence[str], *, seed: int, keys: int = 5) -> None:
        self.writer = writer
        self.tables = tuple(tables)
        self.seed = seed
        self.history = History()
        self.rows: dict[RowKey, Row] = {}
        """The rows that are committed now."""
        self.columns: dict[str, tuple[str, ...]] = dict.fromkeys(tables, ("id", "n", "note"))
        self._fills: dict[tuple[str, str], str] = {}
        self._chance = random.Random(seed)
        self._keys = keys
        self._versions: dict[RowKey, int] = defaultdict(int)
        self._open: list[Transaction] = []
        self._own: list[Transaction] = []
        """The open transactions that `step` began."""

    def __repr__(self) -> str:
        return f"Workload(seed={self.seed}, {len(self.history)} commits, {len(self._open)} open)"

    def begin(self) -> Transaction:
        """Return a new transaction. `step` does not use it."""
        transaction = Transaction(self, self.writer.begin())
        self._open.append(transaction)
        return transaction

    def put(self, table: str, id_: int, **values: Any) -> None:
        """Insert or update one row in a separate transaction."""
        transaction = self.begin()
        transaction.put(table, id_, **values)
        transaction.commit()

    def delete(self, table: str, id_: int) -> None:
        """Delete one row in a separate transaction."""
        transaction = self.begin()
        transaction.delete(table, id_)
        transaction.commit()

    def fill(self, table: str, count: int, *, first: int = 1, note: str = "filled") -> None:
        """Insert *count* rows from `id` *first* on in one transaction."""
        transaction = self.begin()
        for id_ in range(first, first + count):
            transaction.put(table, id_, note=note)
        transaction.commit()

    def run(self, commits: int, *, settle: bool = False) -> None:
        """Run events until *commits* more transactions have committed. Others may still be open, unless *settle*."""
        until = len(self.history) + commits
        while len(self.history) < until:
            self.step()
        if settle:
            self.settle()

    def step(self) -> None:
        """Run one event: begin a transaction, write a row in one, commit one, or roll one back."""
        if not self._own or (len(self._own) < _MOST_OPEN and self._chance.random() < 0.2):
            self._own.append(self.begin())
        transaction = self._chance.choice(self._own)
        event = self._chance.choices(("write", "commit", "roll back"), weights=(70, 25, 5))[0]
        if event == "write":
            self._write(transaction)
        elif event == "commit":
            transaction.commit()
        else:
            transaction.rollback()

    def settle(self) -> None:
        """Commit every transaction that `step` began."""
        for transaction in list(self._own):
            transaction.commit()

    def close(self) -> None:
        """Roll back all open transactions."""
        for transaction in list(self._open):
            transaction.rollback()

    def add_column(self, table: str, column: str) -> None:
        """Add a column, which is null in every row. No transaction may be open."""
        self.writer.add_column(table, column)
        self.columns[table] = (*self.columns[table], column)

    def add_filled_column(self, table: str, column: str, value: str) -> bool:
        """Add a column that is *value* in every row, and return whether the source can. No transaction may be open."""
        if not self.writer.add_filled_column(table, column, value):
            return False
        self.columns[table] = (*self.columns[table], column)
        self._fills[table, column] = value
        for key, row in self.rows.items():
            if key[0] == table:
                self.rows[key] = {**row, column: value}
        return True

    def blank(self, table: str) -> Row:
        """Return what a new row of *table* holds where nothing is written."""
        return {column: self._fills.get((table, column)) for column in self.columns[table]}

    def drop_column(self, table: str, column: str) -> None:
        """Drop a column that was added. No transaction may be open."""
        self.writer.drop_column(table, column)
        self.columns[table] = tuple(name for name in self.columns[table] if name != column)
        for key, row in self.rows.items():
            if key[0] == table:
                self.rows[key] = {name: value for name, value in row.items() if name != column}

    def versions_of(self, table: str, id_: int) -> int:
        """Return how many versions of a row were committed, without deletes."""
        return self._versions[table, id_]

    def owner(self, table: str, id_: int) -> Transaction | None:
        """Return the open transaction that has written a row, if any."""
        return next((transaction for transaction in self._open if transaction.owns((table, id_))), None)

    def committed(self, transaction: Transaction, rows: Mapping[RowKey, Row | None]) -> None:
        """Record that *transaction* has committed *rows*."""
        writes = tuple(
            Write(table=table, id=id_, before=self.rows.get((table, id_)), after=after)
            for (table, id_), after in rows.items()
            if after is not None or (table, id_) in self.rows
        )
        _apply(self.rows, writes)
        for write in writes:
            self._versions[write.key] += write.after is not None
        if writes:
            self.history.commits.append(writes)
        self.ended(transaction)

    def ended(self, transaction: Transaction) -> None:
        """Record that *transaction* has ended."""
        self._open.remove(transaction)
        if transaction in self._own:
            self._own.remove(transaction)

    def _write(self, transaction: Transaction) -> None:
        keys = [(table, id_) for table in self.tables for id_ in range(1, self._keys + 1)]
        free = [key for key in keys if self.owner(*key) in (None, transaction)]
        if not free:
            transaction.commit()
            return
        table, id_ = self._chance.choice(free)
        there = transaction.row(table, id_) is not None
        # Do not delete a row that the same transaction inserted: it would have no version.
        if there and (table, id_) in self.rows and self._chance.random() < 0.25:
            transaction.delete(table, id_)
        else:
            transaction.put(table, id_, **self._values(table))

    def _values(self, table: str) -> dict[str, Any]:
        """Return new values for some columns of a row; the others, such as large values, stay unchanged."""
        values: dict[str, Any] = {}
        for column in self.columns[table][2:]:
            kind = self._chance.choices(("keep", "null", "text"), weights=(25, 10, 60))[0]
            if kind == "null":
                values[column] = None
            elif kind == "text":
                values[column] = f"{column} {self._chance.randrange(1_000_000)}"
        return values


def _apply(rows: dict[RowKey, Row], writes: Sequence[Write]) -> None:
    for write in writes:
        if write.after is None:
            rows.pop(write.key, None)
        else:
            rows[write.key] = write.after
