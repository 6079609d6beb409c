"""The status of each changefeed: what its run shows, for those who look from elsewhere."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from cdc_core.store.database import Aggregate
from cdc_core.store.job_tables import DatabaseNow
from cdc_core.store.liveness import is_alive
from cdc_core.store.moments import keep_moment
from cdc_core.store.tables import STATUSES
from cdc_core.store.values import SavedStatus, dump, moment_text


class Statuses(Aggregate):
    """The status that each changefeed saved last."""

    def save(self, name: str, epoch: int, status: Mapping[str, Any], *, moment: bool = False) -> None:
        """Save *status*, JSON without secrets, in place of the previous one. Raises: FencedError.

        With *moment* the store keeps what has been counted by now for a day: see `Moments.of`.
        """
        with self._database.fenced(name, epoch) as connection:
            written_at = moment_text(datetime.now(UTC) - _ahead(connection))
            values = {"status": dump({**status, "epoch": epoch}), "written_at": written_at}
            known = connection.execute(sa.update(STATUSES).where(STATUSES.c.name == name).values(values))
            if not known.rowcount:
                connection.execute(sa.insert(STATUSES).values(name=name, **values))
            if moment:
                keep_moment(connection, name, state=status.get("phase", ""))

    def load(self, name: str) -> SavedStatus | None:
        """Return the status that was saved last, None when none was."""
        with self._database.transaction(reading=True) as connection:
            return _load(connection, name)

    def load_all(self) -> dict[str, SavedStatus]:
        """Return the status that each changefeed saved last, by name."""
        with self._database.transaction(reading=True) as connection:
            ahead = _ahead(connection)
            return {row.name: _saved(row, ahead) for row in connection.execute(sa.select(STATUSES))}


def is_running(connection: sa.Connection, name: str) -> bool:
    """Return whether a run of the changefeed is alive, as far as the store has heard of it."""
    return is_alive(_load(connection, name), now=datetime.now(UTC))


def _load(connection: sa.Connection, name: str) -> SavedStatus | None:
    row = connection.execute(sa.select(STATUSES).where(STATUSES.c.name == name)).one_or_none()
    return None if row is None else _saved(row, _ahead(connection))


def _saved(row: Any, ahead: timedelta) -> SavedStatus:
    values = json.loads(row.status)
    epoch = values.pop("epoch", None)
    return SavedStatus(values=values, written_at=datetime.fromisoformat(row.written_at) + ahead, epoch=epoch)


def _ahead(connection: sa.Connection) -> timedelta:
    """Return how far the clock of this host is ahead of the database's, which all hosts of a store share."""
    if connection.dialect.name != "postgresql":
        return timedelta()
    now: float = connection.execute(sa.select(DatabaseNow())).scalar_one()
    return datetime.now(UTC) - datetime.fromtimestamp(now, UTC)
