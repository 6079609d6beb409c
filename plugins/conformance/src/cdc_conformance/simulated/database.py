"""The simulated database as its clients see it: statements, transactions, and reads as of a timestamp."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from cdc_conformance.simulated.cluster import Cluster
from cdc_conformance.simulated.errors import StatementError
from cdc_conformance.simulated.placing import Served, served
from cdc_conformance.simulated.session import Session
from cdc_conformance.simulated.state import Status
from cdc_core import Locality, Timestamp

COLUMNS = (("id", "int"), ("n", "int"), ("note", "string"))
"""The columns of a table by default."""
_START = 1_600_000_000 * 10**9
_TICK_NS = 100_000_000
_LOCALITIES = ("region=eu,zone=a", "region=eu,zone=b", "region=us,zone=a")
_PROTECTED = "protected"


class Txn:
    """An open transaction. Its writes are intents, which block other writers; readers see them only after `commit`."""

    def __init__(self, session: Session, name: str) -> None:
        self._session = session
        self.name = name

    @property
    def is_open(self) -> bool:
        transaction = self._session.cluster.transactions.get(self.name)
        return transaction is not None and transaction.status is Status.OPEN

    def put(self, table: str, **row: Any) -> None:
        """Insert *row*, or update the row with its `id`; other columns keep their value."""
        self._session.execute("write", txn=self.name, table=table, id=row.pop("id"), set=row)

    def delete(self, table: str, id_: int) -> None:
        """Delete the row with that `id`, if there is one."""
        self._session.execute("write", txn=self.name, table=table, id=id_, set=None)

    def commit(self, *, later: bool = False) -> Timestamp:
        """Commit, and return the timestamp. With *later*, only the first range resolves its intents before a tick.

        Raises: TransactionAbortedError when another transaction aborted this one, or its coordinator is down.
        """
        committed: Timestamp = self._session.execute("commit", txn=self.name, later=later)
        return committed

    def rollback(self) -> None:
        self._session.execute("rollback", txn=self.name)

    def push(self) -> Timestamp:
        """Let a reader push the transaction to a later timestamp. Return when it would commit now."""
        pushed: Timestamp = self._session.execute("push", txn=self.name)
        return pushed

    def abort(self) -> None:
        """Abort the transaction, as another one of higher priority would."""
        self._session.execute("abort", txn=self.name)


class Snapshot:
    """All tables as of one timestamp."""

    def __init__(self, session: Session, timestamp: Timestamp) -> None:
        self._session = session
        self.timestamp = timestamp

    def rows(self, table: str) -> dict[int, dict[str, Any]]:
        """Return the rows of *table* by `id`. Raises: StatementError when the history from then is gone."""
        threshold = self._session.cluster.gc_threshold
        if self.timestamp < threshold:
            raise StatementError(f"cannot read as of {self.timestamp}: history begins at {threshold}")
        return rows_of(self._session.cluster, table, self.timestamp)


def rows_of(cluster: Cluster, table: str, timestamp: Timestamp) -> dict[int, dict[str, Any]]:
    known = cluster.table(table)
    shape = known.shape_at(timestamp)
    return {
        id_: shape.row(version.cells) for id_, version in cluster.rows(known, timestamp) if version.cells is not None
    }


class SimulatedDatabase(Session):
    """A database in *directory*, shared by all processes that open it. `create` makes one.

    A statement takes effect at once, or raises a StatementError and does nothing. The time of the cluster passes with
    statements and with `tick`, never by itself. May be used by several threads.
    """

    @classmethod
    def create(
        cls,
        directory: str | os.PathLike[str],
        *,
        seed: int = 0,
        nodes: int = 3,
        localities: Sequence[str] | None = None,
        replicas: int = 3,
        max_skew_ms: int = 250,
        lag_ms: int = 150,
    ) -> SimulatedDatabase:
        """Return the database in *directory*; create it if there is none.

        With *localities*, such as `region=eu,zone=a`, there is one node for each of them, in their order.
        *seed* decides how far the nodes' clocks are ahead, up to *max_skew_ms*. Ranges close timestamps about *lag_ms*
        late.
        """
        database = cls(directory)
        places = localities or [_LOCALITIES[number % len(_LOCALITIES)] for number in range(nodes)]
        machines = [
            (str(Locality.parse(place)), (seed * 7919 + number * 104729) % (max_skew_ms + 1) * 1_000_000)
            for number, place in enumerate(places)
        ]
        database.directory.mkdir(parents=True, exist_ok=True)
        with database._journal.locked():
            if not database.exists:
                event = {"op": "cluster", "seed": seed, "start": _START, "nodes": machines}
                database._journal.append({**event, "replicas": replicas, "lag_ns": lag_ms * 1_000_000})
                database._journal.rewind()
        return database

    def __repr__(self) -> str:
        return f"SimulatedDatabase({str(self.directory)!r})"

    @property
    def uri(self) -> str:
        """The URI by which changefeeds find this database."""
        return f"simulated://{self.directory}"

    @property
    def now(self) -> Timestamp:
        """The greatest timestamp of all events. No commit is above it."""
        return self.cluster.high

    # tables and rows

    def create_table(self, table: str, columns: Sequence[tuple[str, str]] = COLUMNS) -> None:
        """Create *table*. The first column must be the primary key `id`."""
        self.execute("create", table=table, columns=[list(column) for column in columns])

    def drop_table(self, table: str) -> None:
        self.execute("drop", table=table)

    def add_column(self, table: str, column: str, type_: str = "string", *, default: Any = None) -> Timestamp:
        """Add a column that is *default* in every row, and return the timestamp from which on it exists."""
        return self._reshape("add_column", table=table, column=column, type=type_, default=default)

    def drop_column(self, table: str, column: str) -> Timestamp:
        return self._reshape("drop_column", table=table, column=column)

    def rename_column(self, table: str, column: str, to: str) -> Timestamp:
        return self._reshape("rename_column", table=table, column=column, to=to)

    def change_type(self, table: str, column: str, type_: str) -> Timestamp:
        """Change the column's type, and compute its values again: any type to string, or int to float."""
        return self._reshape("change_type", table=table, column=column, type=type_)

    def change_key(self, table: str, *columns: str) -> Timestamp:
        """Give the table another primary key. `id` is one of its columns, and no row has null in any of them."""
        return self._reshape("change_key", table=table, columns=list(columns))

    def put(self, table: str, *, node: int | None = None, **row: Any) -> Timestamp:
        """Insert *row*, or update the row with its `id`, and return the commit timestamp."""
        committed: Timestamp = self.execute("put", table=table, id=row.pop("id"), set=row, node=self._gateway(node))
        return committed

    def delete(self, table: str, id_: int, *, node: int | None = None) -> Timestamp:
        """Delete the row with that `id`, if there is one, and return the commit timestamp."""
        committed: Timestamp = self.execute("put", table=table, id=id_, set=None, node=self._gateway(node))
        return committed

    def begin(self, name: str | None = None, *, node: int | None = None) -> Txn:
        """Return a new transaction, coordinated by *node*."""
        with self.writing():
            if name is None:
                name = f"t{self._cluster.events}"
            self._execute({"op": "begin", "txn": name, "node": self._gateway(node)})
        return Txn(self, name)

    @contextmanager
    def transaction(self, name: str | None = None, *, node: int | None = None) -> Iterator[Txn]:
        """Begin a transaction; commit it at the end of the block, or roll it back if the block raises."""
        txn = self.begin(name, node=node)
        try:
            yield txn
        except BaseException:
            if txn.is_open:
                txn.rollback()
            raise
        if txn.is_open:
            txn.commit()

    def as_of(self, timestamp: Timestamp | None = None) -> Snapshot:
        """Return a snapshot as of *timestamp*, now if None. It never changes.

        Raises: StatementError when the history from then is gone, or the timestamp is ahead of all clocks.
        """
        with self.writing():
            cluster = self._cluster
            if timestamp is None:
                timestamp = cluster.high
            if timestamp < cluster.gc_threshold:
                raise StatementError(f"cannot read as of {timestamp}: history begins at {cluster.gc_threshold}")
            if timestamp > max(cluster.clock(), cluster.high):
                raise StatementError(f"cannot read as of {timestamp}: this is later than all clocks")
            if any(cluster.resolved(table).high_water < timestamp for table in cluster.tables):
                self._execute({"op": "read", "timestamp": str(timestamp)})
            return Snapshot(self, timestamp)

    def rows(self, table: str) -> dict[int, dict[str, Any]]:
        """Return the rows that are committed now, by `id`, without any effect on writers."""
        with self._lock:
            return rows_of(self.cluster, table, self.cluster.high)

    # the cluster

    def tick(self, ms: float = _TICK_NS / 1e6, *, times: int = 1) -> None:
        """Let time pass: leases expire, transactions of dead nodes are cleaned up, and timestamps are closed."""
        for _ in range(times):
            self.execute("tick", ns=int(ms * 1e6))

    def settle(self) -> Timestamp:
        """Let time pass until everything up to now is resolved, and return that timestamp.

        Raises: StatementError when an open transaction or a range without live nodes holds it back.
        """
        target = self.now
        for _ in range(200):
            if all(self.cluster.resolved(table).high_water >= target for table in self.cluster.tables):
                return target
            self.tick()
        held = ", ".join(self.cluster.transactions) or "a range without a live node"
        raise StatementError(f"{target} was not resolved: it is held back by {held}")

    def split(self, table: str, *, at: int) -> None:
        """Split the range that holds the row *at*; the second range begins at *at*."""
        self.execute("split", table=table, at=at)

    def merge(self, table: str, *, at: int) -> None:
        """Merge the range that begins at the row *at* into the one before it."""
        self.execute("merge", table=table, at=at)

    def transfer_lease(self, table: str, *, at: int, to: int) -> None:
        """Move the lease of the range that holds the row *at* to node *to*."""
        self.execute("lease", table=table, at=at, node=to)

    def move_replicas(self, table: str, *, at: int, to: Sequence[int]) -> None:
        """Let the nodes *to*, and no others, have replicas of the range that holds the row *at*.

        The lease stays where it is if it can; otherwise the first of them that runs gets it.
        """
        self.execute("replicas", table=table, at=at, nodes=list(to))

    def set_lag(self, table: str, *, at: int, ms: float, node: int | None = None) -> None:
        """Make the range that holds the row *at* close timestamps *ms* behind its leaseholder's clock.

        With *node*: make the replica on this node hear of closed timestamps *ms* later than the leaseholder.
        """
        self.execute("lag", table=table, at=at, ns=int(ms * 1e6), **({} if node is None else {"node": node}))

    def set_skew(self, node: int, ms: float) -> None:
        """Set the clock of *node* *ms* milliseconds ahead of the true time."""
        self.execute("skew", node=node, ns=int(ms * 1e6))

    def crash(self, node: int) -> None:
        self.execute("crash", node=node)

    def restart(self, node: int) -> None:
        self.execute("restart", node=node)

    def collect_garbage(self, *, force: bool = False) -> Timestamp:
        """Forget versions that no read as of the resolved timestamp or later can see, and return that timestamp.

        It never passes the timestamps that changefeeds protect, unless *force* is set.
        """
        with self.writing():
            cluster = self._cluster
            limits = [cluster.resolved(table).high_water for table in cluster.tables]
            limits += [] if force else self.protected().values()
            used = min([cluster.high, *limits])
            if used > cluster.gc_threshold:
                self._execute({"op": "gc", "threshold": str(used)})
            return used

    def served(self) -> list[Served]:
        """Return who read what from which node, in order. Part of no event: it has no effect on the database."""
        return list(served(self.directory))

    # protected timestamps

    def protect(self, name: str, timestamp: Timestamp) -> None:
        """Keep the history from *timestamp* on for the changefeed *name*; this replaces what it protected before.

        Raises: StatementError when that history is gone already.
        """
        with self.writing():
            if timestamp < self._cluster.gc_threshold:
                raise StatementError(f"history from {timestamp} on is gone: it begins at {self._cluster.gc_threshold}")
            path = self.directory / _PROTECTED / name
            path.parent.mkdir(exist_ok=True)
            scratch = path.with_name(f".{name}.{os.getpid()}")
            scratch.write_text(str(timestamp))
            scratch.replace(path)

    def begin_reading(self, name: str, at: Timestamp | None = None) -> Timestamp:
        """Return a timestamp as of which all commits can be read, and protect it for the changefeed *name*.

        That is *at*, if given; otherwise one above everything that a reader may have resolved by now.
        Raises: StatementError when its history is gone.
        """
        with self.writing():
            if at is None:
                closed = [self._cluster.resolved(table).latest for table in self._cluster.tables]
                at = max([self._cluster.high, *closed]).next()
                self._execute({"op": "read", "timestamp": str(at)})
            else:
                at = self.as_of(at).timestamp
            self.protect(name, at)
            return at

    def unprotect(self, name: str) -> None:
        (self.directory / _PROTECTED / name).unlink(missing_ok=True)

    def protected(self) -> dict[str, Timestamp]:
        """Return the timestamp that each changefeed protects, by name."""
        kept = sorted((self.directory / _PROTECTED).glob("[!.]*"))
        kept = [path for path in kept if _is_alive(path.name)]
        return {path.name: Timestamp.parse(path.read_text()) for path in kept}

    def _reshape(self, op: str, **fields: Any) -> Timestamp:
        since: Timestamp = self.execute(op, **fields)
        return since

    def _gateway(self, node: int | None) -> int:
        if node is not None:
            return node
        return next((number for number, machine in self.cluster.nodes.items() if machine.alive), 1)


def of_this_process(name: str) -> str:
    """Return the name under which history is protected for as long as this process lives."""
    return f"{name}.{os.getpid()}"


def _is_alive(name: str) -> bool:
    """Return whether the process that protects history under *name* is alive; always if it is for no process."""
    _, dot, pid = name.rpartition(".")
    return not dot or os.path.exists(f"/proc/{pid}")
