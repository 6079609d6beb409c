"""The data of the simulated cluster, and the events of transactions, with their timestamps and intents."""

from __future__ import annotations

import random
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from cdc_conformance.simulated.errors import (
    StatementError,
    TransactionAbortedError,
    UnavailableError,
    WriteConflictError,
)
from cdc_conformance.simulated.table import END_KEY, Cells, Table, Version, key_of
from cdc_core import Frontier, Locality, Span, TableName, Timestamp

Row = tuple[str, int]
"""Full name of a table, and a row's `id`."""
_DATABASE = "sim"
LEASE_NS = 500_000_000
"""How long a lease outlives its node, and an open transaction its coordinator."""


@dataclass(slots=True, kw_only=True)
class Node:
    """A node. Its clock is `skew_ns` ahead of the true time."""

    id: int
    locality: Locality
    skew_ns: int
    down_since: int | None = None
    """True time at which it crashed; None while it runs."""

    @property
    def alive(self) -> bool:
        return self.down_since is None

    def clock(self, now: int) -> Timestamp:
        """Return what the node's clock shows at the true time *now*."""
        return Timestamp(now + self.skew_ns)


@dataclass(slots=True, kw_only=True)
class Range:
    """A part of a table's keys, with its replicas. One of them holds the lease and serves all writes.

    No transaction writes at or below `closed` anymore, but earlier writes may still be open. The leaseholder closes
    timestamps `lag_ns` behind its clock. The other replicas hear of it, each `follower_lag_ns` later.
    """

    span: Span
    replicas: tuple[int, ...]
    leaseholder: int
    closed: Timestamp
    lag_ns: int
    follower_lag_ns: dict[int, int] = field(default_factory=dict)
    """By node; 0 for those that are missing."""
    follower_closed: dict[int, Timestamp] = field(default_factory=dict)
    """By node; nothing is closed on those that are missing."""

    def closed_on(self, node: int) -> Timestamp:
        """Return up to which timestamp the replica on *node* can serve everything that is resolved."""
        return self.closed if node == self.leaseholder else self.follower_closed.get(node, Timestamp())

    def tell_followers(self, living: Container[int]) -> None:
        """Pass the closed timestamp on to the replicas on *living* nodes. It never falls."""
        for node in self.replicas:
            if node in living:
                lag_ns = self.follower_lag_ns.get(node, 0)
                told = Timestamp(max(0, self.closed.wall - lag_ns)) if lag_ns else self.closed
                self.follower_closed[node] = max(self.closed_on(node), told)

    @property
    def end(self) -> bytes:
        return END_KEY if self.span.end is None else self.span.end

    def holds(self, key: bytes) -> bool:
        return self.span.start <= key < self.end


class Status(StrEnum):
    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(slots=True, kw_only=True)
class Intent:
    """A version that is not committed yet, or not known to be. It commits at `timestamp` or later."""

    timestamp: Timestamp
    cells: Cells | None


@dataclass(slots=True, kw_only=True)
class Transaction:
    """A transaction with a coordinator on the node `gateway`.

    `timestamp` is when it would commit now; it only increases. `intents` are the unresolved ones. After a commit some
    may stay for a while: they hold back the resolved timestamp, although readers see the new versions.
    """

    name: str
    gateway: int
    timestamp: Timestamp
    status: Status = Status.OPEN
    intents: dict[Row, Intent] = field(default_factory=dict)


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


class Writes(State):
    """Applies the events of transactions.

    A commit gets a timestamp above everything that was closed, read or written in its ranges. An intent holds back the
    resolved timestamp of its range until it is resolved, so a transaction may stay open for any time.
    """

    def _on_begin(self, txn: str, node: int) -> None:
        if txn in self.transactions:
            raise StatementError(f"transaction {txn!r} already exists")
        if not self._node(node).alive:
            raise StatementError(f"node {node} is down")
        timestamp = max(self._node(node).clock(self.now), self._read.next())
        self.transactions[txn] = Transaction(name=txn, gateway=node, timestamp=timestamp)

    def _on_write(self, txn: str, table: str, id: int, set: Mapping[str, Any] | None) -> None:  # noqa: A002
        transaction = self._open_transaction(txn)
        known = self.table(table)
        row = (known.name.full, id)
        key = key_of(id)
        range_ = self.range_of(row[0], key)
        self._await_lease(range_)
        self._clear_the_way(transaction, row)
        newest = known.newest(id)
        own = transaction.intents.get(row)
        base = own.cells if own is not None else newest.cells if newest is not None else None
        if set is None and base is None and own is None:
            return
        cells = None if set is None else known.cells_of(id, set, base)
        least = [transaction.timestamp, range_.closed.next(), known.newest_shape.since.next()]
        if newest is not None:
            least.append(newest.timestamp.next())
        transaction.timestamp = max(least)
        first = own.timestamp if own is not None else transaction.timestamp
        transaction.intents[row] = Intent(timestamp=first, cells=cells)

    def _on_commit(self, txn: str, later: bool = False) -> Timestamp:
        transaction = self._open_transaction(txn)
        transaction.status = Status.COMMITTED
        self._happened(transaction.timestamp)
        rows = list(transaction.intents)
        near = self.range_of(rows[0][0], key_of(rows[0][1])) if rows else None
        for table, id_ in rows:
            if not later or self.range_of(table, key_of(id_)) is near:
                self._settle(transaction, (table, id_))
        self._forget_finished(transaction)
        return transaction.timestamp

    def _on_rollback(self, txn: str) -> None:
        self._abort(self._open_transaction(txn))

    def _on_abort(self, txn: str) -> None:
        self._abort(self._open_transaction(txn))

    def _on_push(self, txn: str) -> Timestamp:
        return self._push(self._open_transaction(txn), self._happened(self.clock()))

    def _on_put(self, table: str, id: int, set: Mapping[str, Any] | None, node: int) -> Timestamp:  # noqa: A002
        name = f"#{self._statements}"
        self._on_begin(name, node)
        self._on_write(name, table, id, set)
        return self._on_commit(name)

    def _on_read(self, timestamp: str | None = None) -> Timestamp:
        """Read all tables as of *timestamp*, now if None. From then on nothing is written at or below it."""
        at = max(self.high.next(), self.gc_threshold) if timestamp is None else Timestamp.parse(timestamp)
        self._happened(at)
        self._read = max(self._read, at)
        for transaction in self.transactions.values():
            if transaction.status is Status.OPEN:
                self._push(transaction, at)
        return at

    def _open_transaction(self, name: str) -> Transaction:
        transaction = self.transactions.get(name)
        if transaction is None or transaction.status is not Status.OPEN:
            raise TransactionAbortedError(f"transaction {name!r} is not open: it has ended or was aborted")
        if not self.nodes[transaction.gateway].alive:
            raise TransactionAbortedError(
                f"transaction {name!r} is lost: its coordinator, node {transaction.gateway}, is down"
            )
        return transaction

    def _clear_the_way(self, writer: Transaction, row: Row) -> None:
        for other in list(self.transactions.values()):
            if other is writer or row not in other.intents:
                continue
            if other.status is Status.OPEN and self.nodes[other.gateway].alive:
                raise WriteConflictError(
                    f"row {row[1]} of {row[0]} was written by transaction {other.name!r}, which is open"
                )
            self._end_abandoned(other) if other.status is Status.OPEN else self._settle(other, row)
            self._forget_finished(other)

    def _push(self, transaction: Transaction, above: Timestamp) -> Timestamp:
        transaction.timestamp = max(transaction.timestamp, above.next())
        for intent in transaction.intents.values():
            intent.timestamp = max(intent.timestamp, above.next())
        return transaction.timestamp

    def _abort(self, transaction: Transaction) -> None:
        transaction.status = Status.ABORTED
        transaction.intents.clear()
        self._forget_finished(transaction)

    def _settle(self, transaction: Transaction, row: Row) -> None:
        """Turn an intent of a committed transaction into a version."""
        intent = transaction.intents.pop(row)
        self.tables[row[0]].add(row[1], Version(transaction.timestamp, intent.cells))

    def _forget_finished(self, transaction: Transaction) -> None:
        if transaction.status is not Status.OPEN and not transaction.intents:
            self.transactions.pop(transaction.name, None)

    def _end_abandoned(self, transaction: Transaction) -> None:
        if transaction.status is Status.OPEN:
            self._abort(transaction)
        for row in list(transaction.intents):
            self._settle(transaction, row)
        self._forget_finished(transaction)

    def _move_expired_lease(self, range_: Range) -> None:
        down_since = self.nodes[range_.leaseholder].down_since
        if down_since is not None and self.now >= down_since + LEASE_NS and self.has_quorum(range_):
            self._move_lease(range_, next(node for node in range_.replicas if self.nodes[node].alive))

    def _move_lease(self, range_: Range, node: int) -> None:
        """Make *node* the leaseholder. What the old one had closed, its replica still knows."""
        range_.follower_closed[range_.leaseholder] = range_.closed
        range_.leaseholder = node

    def _await_lease(self, range_: Range) -> None:
        """Let time pass, as a client would wait, until a live node holds the lease. Raises: UnavailableError."""
        if not self.has_quorum(range_):
            raise UnavailableError(f"{range_.span} has lost most of its replicas: restart a node of {range_.replicas}")
        down_since = self.nodes[range_.leaseholder].down_since
        if down_since is not None:
            self.now = max(self.now, down_since + LEASE_NS)
            self._move_expired_lease(range_)
