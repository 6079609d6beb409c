"""The state of the simulated database: a pure function of its events."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cdc_conformance.simulated.errors import (
    StatementError,
    TransactionAbortedError,
    UnavailableError,
    WriteConflictError,
)
from cdc_conformance.simulated.keys import key_of
from cdc_conformance.simulated.table import Table, Version
from cdc_conformance.simulated.topology import Node, Range
from cdc_conformance.simulated.transactions import Intent, Row, Status, Transaction
from cdc_core import Frontier, Span, TableName, Timestamp

__all__ = ["LEASE_NS", "Cluster", "table_name"]

LEASE_NS = 500_000_000
"""How long a lease outlives the node that holds it, and an open transaction its coordinator."""
_STATEMENT_NS = 1_000_000
_DATABASE = "sim"


def table_name(text: str) -> TableName:
    """Return the table that users write as `t` or `schema.t`."""
    schema, _, table = text.rpartition(".")
    return TableName(_DATABASE, schema or "public", table)


class Cluster:
    """What all events so far have made of nodes, ranges, tables and transactions.

    `apply` is the only way to change it. When `apply` raises, nothing else can be said of the instance: build it anew
    from the events. Timestamps come from the nodes' clocks, which stand in the events too, so that every process that
    has seen the same events has the same state.
    """

    def __init__(self) -> None:
        self.events = 0
        self.now = 0
        """True time, in nanoseconds."""
        self.high = Timestamp()
        """The greatest timestamp of anything that has happened."""
        self.gc_threshold = Timestamp()
        """As of earlier timestamps nothing can be read."""
        self.nodes: dict[int, Node] = {}
        self.tables: dict[str, Table] = {}
        self.ranges: dict[str, list[Range]] = {}
        self.transactions: dict[str, Transaction] = {}
        """Those that are open, or have intents left."""
        self._resolved: dict[str, Frontier] = {}
        self._seed = 0
        self._statements = 0
        self._lag_ns = 0
        self._replicas = 0
        self._read = Timestamp()

    # what is there

    def table(self, name: str) -> Table:
        """Return the table that users call *name*. Raises: StatementError when there is none."""
        full = table_name(name).full
        if full not in self.tables:
            raise StatementError(f"there is no table {table_name(name)}")
        return self.tables[full]

    def resolved(self, table: str) -> Frontier:
        """Return up to when which keys of the table with this full name are resolved: nothing is added below it."""
        return self._resolved[table]

    def range_of(self, table: str, key: bytes) -> Range:
        return next(range_ for range_ in self.ranges[table] if range_.holds(key))

    def version_at(self, row: Row, timestamp: Timestamp) -> Version | None:
        """Return the version of *row* as of *timestamp*, whether or not its intent is still there."""
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

    # what happens

    def apply(self, event: Mapping[str, Any]) -> Any:
        """Let *event* happen and return its outcome. Raises: StatementError when it is refused."""
        fields = dict(event)
        op = fields.pop("op")
        if op != "tick":
            self._statements += 1
            self.now += _STATEMENT_NS + self._random().randrange(_STATEMENT_NS)
        outcome = getattr(self, f"_on_{op}")(**fields)
        self.events += 1
        return outcome

    def _on_cluster(self, seed: int, start: int, nodes: Sequence[tuple[str, int]], lag_ns: int, replicas: int) -> None:
        self._seed, self.now, self._lag_ns, self._replicas = seed, start, lag_ns, replicas
        for number, (locality, skew_ns) in enumerate(nodes, start=1):
            self.nodes[number] = Node(id=number, locality=locality, skew_ns=skew_ns)
        self._happened(Timestamp(start))

    def _on_create(self, table: str, columns: Sequence[tuple[str, str]]) -> None:
        name = table_name(table)
        if name.full in self.tables:
            raise StatementError(f"table {name} exists already")
        created = self._happened(max(self.clock(), self._read.next()))
        self.tables[name.full] = Table(name, [(column, type_) for column, type_ in columns], created)
        chosen = self._random().sample(sorted(self.nodes), min(self._replicas, len(self.nodes)))
        leaseholder = next((node for node in chosen if self.nodes[node].alive), chosen[0])
        span = Span(name.full)
        self.ranges[name.full] = [
            Range(
                span=span, replicas=tuple(chosen), leaseholder=leaseholder, closed=created, lag_ns=self._some_lag_ns()
            )
        ]
        self._resolved[name.full] = Frontier([span], created)

    def _on_drop(self, table: str) -> None:
        name = self.table(table).name.full
        for transaction in list(self.transactions.values()):
            for row in [row for row in transaction.intents if row[0] == name]:
                del transaction.intents[row]
            self._forget_finished(transaction)
        del self.tables[name], self.ranges[name], self._resolved[name]

    def _on_begin(self, txn: str, node: int) -> None:
        if txn in self.transactions:
            raise StatementError(f"transaction {txn!r} is there already")
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
        least = [transaction.timestamp, range_.closed.next(), self._read.next(), known.newest_shape.since]
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
        """Somebody reads all tables as of *timestamp*, now when None: nothing is written at or below it any more."""
        at = max(self.high.next(), self.gc_threshold) if timestamp is None else Timestamp.parse(timestamp)
        self._happened(at)
        self._read = max(self._read, at)
        for transaction in self.transactions.values():
            if transaction.status is Status.OPEN:
                self._push(transaction, at)
        return at

    def _on_tick(self, ns: int) -> None:
        """Time passes: leases expire, what dead coordinators left is cleaned up, timestamps are closed."""
        self.now += ns
        self._clean_up()
        for ranges in self.ranges.values():
            for range_ in ranges:
                holder = self.nodes[range_.leaseholder]
                if not holder.alive:
                    self._move_expired_lease(range_)
                    holder = self.nodes[range_.leaseholder]
                if holder.alive:
                    closing = Timestamp(max(0, holder.clock(self.now).wall - range_.lag_ns))
                    range_.closed = max(range_.closed, closing)
        self._resolve()

    def _on_split(self, table: str, at: int) -> None:
        name, key = self.table(table).name.full, key_of(at)
        range_ = self.range_of(name, key)
        if range_.span.start == key:
            raise StatementError(f"table {table} has a range that begins at {at} already")
        left = Span(name, range_.span.start, key)
        right = Range(
            span=Span(name, key, range_.span.end),
            replicas=range_.replicas,
            leaseholder=range_.leaseholder,
            closed=range_.closed,
            lag_ns=self._some_lag_ns(),
        )
        range_.span = left
        self.ranges[name].insert(self.ranges[name].index(range_) + 1, right)

    def _on_merge(self, table: str, at: int) -> None:
        name, key = self.table(table).name.full, key_of(at)
        right = self.range_of(name, key)
        if right.span.start != key:
            raise StatementError(f"table {table} has no range that begins at {at}")
        ranges = self.ranges[name]
        left = ranges[ranges.index(right) - 1]
        left.span = Span(name, left.span.start, right.span.end)
        left.closed = max(left.closed, right.closed)
        ranges.remove(right)

    def _on_lease(self, table: str, at: int, node: int) -> None:
        range_ = self.range_of(self.table(table).name.full, key_of(at))
        if node not in range_.replicas or not self._node(node).alive:
            raise StatementError(f"node {node} has no living replica of the range of table {table} that holds {at}")
        range_.leaseholder = node

    def _on_lag(self, table: str, at: int, ns: int) -> None:
        self.range_of(self.table(table).name.full, key_of(at)).lag_ns = ns

    def _on_skew(self, node: int, ns: int) -> None:
        self._node(node).skew_ns = ns

    def _on_crash(self, node: int) -> None:
        if not self._node(node).alive:
            raise StatementError(f"node {node} is down already")
        self.nodes[node].down_since = self.now

    def _on_restart(self, node: int) -> None:
        if self._node(node).alive:
            raise StatementError(f"node {node} is running")
        # What its transactions were about to do it has forgotten.
        for transaction in [one for one in self.transactions.values() if one.gateway == node]:
            self._end_abandoned(transaction)
        self.nodes[node].down_since = None

    def _on_add_column(self, table: str, column: str, type: str) -> Timestamp:  # noqa: A002
        known = self.table(table)
        since = self._schema_time(known)
        known.add_column(column, type, since)
        return self._happened(since)

    def _on_drop_column(self, table: str, column: str) -> Timestamp:
        known = self.table(table)
        since = self._schema_time(known)
        known.drop_column(column, since)
        return self._happened(since)

    def _on_gc(self, threshold: str) -> None:
        at = Timestamp.parse(threshold)
        self.gc_threshold = max(self.gc_threshold, at)
        for table in self.tables.values():
            table.collect(at)

    # how

    def _random(self) -> random.Random:
        return random.Random(f"{self._seed} {self._statements}")

    def _some_lag_ns(self) -> int:
        return int(self._lag_ns * self._random().uniform(0.2, 2.0))

    def clock(self) -> Timestamp:
        """Return a reading of the clock that is ahead of all others."""
        return max(node.clock(self.now) for node in self.nodes.values())

    def _happened(self, timestamp: Timestamp) -> Timestamp:
        self.high = max(self.high, timestamp)
        return timestamp

    def _node(self, number: int) -> Node:
        if number not in self.nodes:
            raise StatementError(f"there is no node {number}; there are {', '.join(map(str, self.nodes))}")
        return self.nodes[number]

    def _open_transaction(self, name: str) -> Transaction:
        transaction = self.transactions.get(name)
        if transaction is None or transaction.status is not Status.OPEN:
            raise TransactionAbortedError(f"transaction {name!r} is not open: it was ended or aborted")
        if not self.nodes[transaction.gateway].alive:
            raise TransactionAbortedError(
                f"transaction {name!r} is lost: its coordinator, node {transaction.gateway}, is down"
            )
        return transaction

    def _schema_time(self, table: Table) -> Timestamp:
        """Return when a change of the table's shape takes effect: nothing of it is written or closed by then."""
        closed = max(range_.closed for range_ in self.ranges[table.name.full])
        return max(self.clock(), closed.next(), table.latest.next(), self._read.next())

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

    def _clean_up(self) -> None:
        for transaction in list(self.transactions.values()):
            down_since = self.nodes[transaction.gateway].down_since
            if down_since is None:
                if transaction.status is Status.COMMITTED:
                    self._end_abandoned(transaction)
            elif self.now >= down_since + LEASE_NS:
                self._end_abandoned(transaction)

    def _move_expired_lease(self, range_: Range) -> None:
        down_since = self.nodes[range_.leaseholder].down_since
        alive = [node for node in range_.replicas if self.nodes[node].alive]
        if down_since is not None and self.now >= down_since + LEASE_NS and len(alive) * 2 > len(range_.replicas):
            range_.leaseholder = alive[0]

    def _await_lease(self, range_: Range) -> None:
        """Let the time pass that a writer waits for, until a living node holds the lease."""
        down_since = self.nodes[range_.leaseholder].down_since
        if down_since is None:
            return
        alive = [node for node in range_.replicas if self.nodes[node].alive]
        if len(alive) * 2 <= len(range_.replicas):
            raise UnavailableError(f"{range_.span} has lost {len(range_.replicas) - len(alive)} of its replicas")
        self.now = max(self.now, down_since + LEASE_NS)
        self._move_expired_lease(range_)

    def _resolve(self) -> None:
        """Move what is resolved: of each range up to its closed timestamp, but not up to its oldest intent."""
        for table, ranges in self.ranges.items():
            for range_ in ranges:
                oldest = [
                    intent.timestamp.prev()
                    for transaction in self.transactions.values()
                    for (name, id_), intent in transaction.intents.items()
                    if name == table and range_.holds(key_of(id_))
                ]
                self._resolved[table].forward(range_.span, min([range_.closed, *oldest]))
