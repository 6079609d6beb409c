"""The data of the simulated cluster, and ways to read them."""

from __future__ import annotations

import random
from collections.abc import Iterator

from cdc_conformance.simulated.errors import StatementError
from cdc_conformance.simulated.table import Table, Version
from cdc_conformance.simulated.topology import Node, Range
from cdc_conformance.simulated.transactions import Row, Status, Transaction
from cdc_core import Frontier, TableName, Timestamp

__all__ = ["State", "table_name"]

_DATABASE = "sim"


def table_name(text: str) -> TableName:
    """Return the table that users write as `t` or `schema.t`."""
    schema, _, table = text.rpartition(".")
    return TableName(_DATABASE, schema or "public", table)


class State:
    """Nodes, ranges, tables and transactions."""

    def __init__(self) -> None:
        self.events = 0
        self.now = 0
        """True time, in nanoseconds."""
        self.high = Timestamp()
        """The greatest timestamp of anything that has happened."""
        self.gc_threshold = Timestamp()
        """Reads as of earlier timestamps are refused."""
        self.nodes: dict[int, Node] = {}
        self.tables: dict[str, Table] = {}
        self.ranges: dict[str, list[Range]] = {}
        self.transactions: dict[str, Transaction] = {}
        """The transactions that are open or still have intents, by name."""
        self._resolved: dict[str, Frontier] = {}
        self._seed = 0
        self._statements = 0
        self._lag_ns = 0
        self._replicas = 0
        self._read = Timestamp()

    def table(self, name: str) -> Table:
        """Return the table that users call *name*. Raises: StatementError when there is none."""
        full = table_name(name).full
        if full not in self.tables:
            raise StatementError(f"there is no table {table_name(name)}")
        return self.tables[full]

    def resolved(self, table: str) -> Frontier:
        """Return the resolved timestamps of the table with this full name: no row is added at or below them."""
        return self._resolved[table]

    def range_of(self, table: str, key: bytes) -> Range:
        """Return the range that holds *key* of the table with this full name."""
        return next(range_ for range_ in self.ranges[table] if range_.holds(key))

    def has_quorum(self, range_: Range) -> bool:
        """Return whether most replicas of the range are alive: otherwise nothing is written or closed."""
        return sum(self.nodes[node].alive for node in range_.replicas) * 2 > len(range_.replicas)

    def version_at(self, row: Row, timestamp: Timestamp) -> Version | None:
        """Return the version of *row* as of *timestamp*, also if its intent is not resolved yet."""
        version = self.tables[row[0]].at(row[1], timestamp)
        for transaction in self.transactions.values():
            committed = transaction.status is Status.COMMITTED and transaction.timestamp <= timestamp
            if committed and row in transaction.intents:
                version = Version(transaction.timestamp, transaction.intents[row].cells)
        return version

    def rows(self, table: Table, timestamp: Timestamp) -> Iterator[tuple[int, Version]]:
        """Yield the rows that exist as of *timestamp*, in key order."""
        ids = {id_ for id_, _ in table.rows(timestamp)}
        for transaction in self.transactions.values():
            ids |= {id_ for name, id_ in transaction.intents if name == table.name.full}
        for id_ in sorted(ids):
            version = self.version_at((table.name.full, id_), timestamp)
            if version is not None and version.cells is not None:
                yield id_, version

    def clock(self) -> Timestamp:
        """Return the time of the node whose clock is furthest ahead."""
        return max(node.clock(self.now) for node in self.nodes.values())

    def _random(self) -> random.Random:
        return random.Random(f"{self._seed} {self._statements}")

    def _some_lag_ns(self) -> int:
        return int(self._lag_ns * self._random().uniform(0.2, 2.0))

    def _happened(self, timestamp: Timestamp) -> Timestamp:
        self.high = max(self.high, timestamp)
        return timestamp

    def _node(self, number: int) -> Node:
        if number not in self.nodes:
            raise StatementError(f"there is no node {number}; there are {', '.join(map(str, self.nodes))}")
        return self.nodes[number]
