"""Open transactions and snapshots of a simulated database."""

from __future__ import annotations

from typing import Any

from cdc_conformance.simulated.cluster import Cluster
from cdc_conformance.simulated.errors import StatementError
from cdc_conformance.simulated.session import Session
from cdc_conformance.simulated.transactions import Status
from cdc_core import Timestamp

__all__ = ["Snapshot", "Txn", "rows_of"]


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
