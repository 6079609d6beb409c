"""What a stopped `cdc run` has left in its store becomes that of a job in another store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from cdc_core.errors import ConfigError
from cdc_core.store.database import Aggregate
from cdc_core.store.events import add_event
from cdc_core.store.job_rows import found_job, record_event
from cdc_core.store.job_tables import JOB_EVENTS, JOBS, DatabaseNow
from cdc_core.store.tables import CHANGEFEEDS, DEAD_LETTERS, GAPS, RESCANS, TOPICS, UNRECORDED, update

__all__ = ["HANDED_OVER", "Handover", "Kept", "put"]

HANDED_OVER = "its progress was handed over to"
"""How the reason of such a job begins."""

Kept = Mapping[str, Sequence[Mapping[str, Any]]]
"""The rows of a changefeed by table."""

_TABLES = (CHANGEFEEDS, UNRECORDED, GAPS, DEAD_LETTERS, RESCANS, TOPICS)
"""What the next run needs. Statuses, claims and traces are of the last one."""


class Handover(Aggregate):
    """The changefeeds whose progress is in another store now: here each is a job that was canceled, and says so."""

    def give(self, name: str, *, to: str, owner: str) -> Kept:
        """Return all that is kept of the changefeed, for `Jobs.create` of another store; nothing runs it here any more.

        *to* says where that is. May be repeated: the other store may not have been reached. Raises: ConfigError when
        it is a job here, or was handed over to another place.
        """
        reason = f"{HANDED_OVER} {to}"
        with self._database.transaction() as connection:
            fenced = update(name).values(epoch=CHANGEFEEDS.c.epoch + 1)
            connection.execute(fenced)  # first: it waits for whoever registers the changefeed
            job = found_job(connection, name, locked=True)
            if job is None:
                times = {"created": DatabaseNow(), "finished": DatabaseNow()}
                values = {"name": name, "state": "canceled", "reason": reason, "owner": owner, "locality": ""}
                connection.execute(sa.insert(JOBS).values(**values, **times, clean=True))
                record_event(connection, name, "canceled", reason, None)
                add_event(connection, "changefeed_canceled", name, message=reason)
            elif job.reason != reason:
                state = ": ".join(filter(None, (job.state, job.reason)))
                raise ConfigError(
                    f"changefeed '{name}' is a job of the progress store {self._database.shown} ({state})"
                )
            return {table.name: _rows(connection, table, name) for table in _TABLES}

    def take_back(self, name: str) -> None:
        """Undo `give`: the other store has refused the changefeed, and runs may continue it here."""
        with self._database.transaction() as connection:
            for table in (JOBS, JOB_EVENTS):
                connection.execute(sa.delete(table).where(table.c.name == name))
            add_event(connection, "changefeed_resumed", name)


def put(connection: sa.Connection, name: str, kept: Kept) -> None:
    """Add what another store has kept of the changefeed. Raises: ConfigError when this store knows it too."""
    if connection.execute(sa.select(CHANGEFEEDS.c.name).where(CHANGEFEEDS.c.name == name)).first():
        raise ConfigError(
            f"changefeed '{name}' has begun in this store too, by `cdc run`; remove it here with `cdc drop`, or leave"
            " out --from-state to continue it"
        )
    for table in _TABLES:
        if rows := kept[table.name]:
            connection.execute(sa.insert(table), [dict(row) for row in rows])


def _rows(connection: sa.Connection, table: sa.Table, name: str) -> list[Mapping[str, Any]]:
    """Return the rows in their order, without the numbers that the other store gives them."""
    columns = [column for column in table.columns if column.name != "id"]
    selected = sa.select(*columns).where(table.c.name == name).order_by(*table.primary_key)
    return [dict(row) for row in connection.execute(selected).mappings()]
