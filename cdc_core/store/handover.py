"""What a stopped `cdc run` has left in its store becomes that of a job in another store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import sqlalchemy as sa

from cdc_core.errors import ConfigError
from cdc_core.store.database import Aggregate
from cdc_core.store.events import add_event
from cdc_core.store.job_rows import found_job, of_job, pause_run, record_event
from cdc_core.store.job_tables import JOB_EVENTS, DatabaseNow
from cdc_core.store.job_values import HANDED_OVER, HANDING_OVER, REVERTED, JobRecord
from cdc_core.store.tables import CHANGEFEEDS, DEAD_LETTERS, GAPS, RESCANS, TOPICS, UNRECORDED, update
from cdc_core.store.verbs import require_free

_Rows = Mapping[str, Sequence[Mapping[str, Any]]]
_TABLES = (CHANGEFEEDS, UNRECORDED, GAPS, DEAD_LETTERS, RESCANS, TOPICS)
"""What the next run needs. Statuses, claims and traces are of the last one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What a store has kept of a changefeed: the rows by table.

    `require_newest` raises ConfigError when they were given to another attempt since, or taken back.
    """

    rows: _Rows
    require_newest: Callable[[], None]


class Handover(Aggregate):
    """The changefeeds whose progress goes to another store: here each is a canceled job, and says so.

    Until the other store is known to have it, that job has not finished, and nothing here may forget it.

    Of several attempts only the newest can succeed. Each adds the changefeed to the other store, and then checks in the
    same transaction that it is the newest. A later attempt waits there for the end of that transaction. So its own
    refusal means that none has succeeded, or will, even if an earlier one was killed or is frozen.
    """

    def give(self, name: str, *, to: str, again: str, owner: str, repeated: bool = False) -> Kept:
        """Return all that is kept of the changefeed, for `Jobs.create` of another store; nothing runs it here anymore.

        *to* says where that is, and *again* is the command that repeats this, as the other store may not have been
        reached. Raises: ConfigError when it is a job here, or goes to another place, or is there; also when this is
        *repeated*, and was taken back meanwhile, so that a run may have begun.
        """
        beginning = f"{HANDING_OVER} {to};"
        reason = f"{beginning} repeat `{again}`"
        with self._database.transaction() as connection:
            job = found_job(connection, name, locked=True)
            if job is None:
                raise ConfigError(f"changefeed '{name}' is not in the progress store {self._database.shown}")
            if not job.is_run and not (job.is_leaving and (job.reason or "").startswith(beginning)):
                raise ConfigError(self.is_job(job))
            if job.is_run and repeated:
                raise ConfigError(
                    f"the progress of changefeed '{name}' was taken back in the meantime; repeat `{again}`"
                )
            fenced = update(name).values(epoch=CHANGEFEEDS.c.epoch + 1)  # older attempts too
            connection.execute(fenced)  # it waits for whoever registers the changefeed
            if job.state == "pause-requested":  # the run that was to pause has ended
                pause_run(connection, job)
            if job.is_run:
                values = {"state": "canceled", "reason": reason, "owner": owner, "is_run": False}
                connection.execute(of_job(name).values(**values, created=DatabaseNow()))
                add_event(connection, "changefeed_canceled", name, message=reason)
                record_event(connection, name, "canceled", reason, None)
            rows = {table.name: _rows(connection, table, name) for table in _TABLES}
        return Kept(rows=rows, require_newest=partial(self._require_newest, name, rows))

    def take_back(self, name: str, kept: Kept) -> None:
        """Undo the `give` that returned *kept*: the other store has refused it, and runs may continue it here.

        Nothing is changed when it was given to another attempt since, which may be about to succeed.
        """
        mine, left = JOB_EVENTS.c.name == name, JOB_EVENTS.c.state == "canceled"
        last = sa.select(JOB_EVENTS).where(mine, ~left).order_by(JOB_EVENTS.c.id.desc()).limit(1)
        with self._database.transaction() as connection:
            job = found_job(connection, name, locked=True)
            if job is None or not job.is_leaving or not _is_newest(connection, kept.rows):
                return
            connection.execute(sa.delete(JOB_EVENTS).where(mine, left))
            before = connection.execute(last).one_or_none()
            values = {"state": "running", "reason": None}
            if before is not None and before.state == "paused":
                values = {"state": "paused", "reason": before.reason}
            connection.execute(of_job(name).values(**values, owner="", is_run=True))
            add_event(connection, "changefeed_resumed", name)

    def arrive(self, name: str) -> None:
        """Save that the other store has what `give` returned: here it may be forgotten from now on."""
        with self._database.transaction() as connection:
            job = found_job(connection, name, locked=True)
            if job is not None and job.is_leaving:
                there, _, _ = (job.reason or "").removeprefix(HANDING_OVER).rpartition("; repeat `")
                reason = HANDED_OVER + there
                connection.execute(of_job(name).values(reason=reason, finished=DatabaseNow()))
                record_event(connection, name, "canceled", reason, None)

    def _require_newest(self, name: str, rows: _Rows) -> None:
        with self._database.transaction(reading=True) as connection:
            if not _is_newest(connection, rows):
                raise ConfigError(
                    f"another command is handing over changefeed '{name}'; run this command again when that one has"
                    " finished"
                )

    def is_job(self, job: JobRecord) -> str:
        """Return why *job* of this store is not handed over, and what can be done."""
        state = ": ".join(filter(None, (job.state, job.reason)))
        remedy = "" if job.state in REVERTED else f"; end it there with `cdc cancel {job.name}`, or choose another name"
        return f"changefeed '{job.name}' is a job of the progress store {self._database.shown} ({state}){remedy}"


def put(connection: sa.Connection, name: str, kept: Kept) -> None:
    """Add what another store has kept of the changefeed. Raises: ConfigError when this store knows it too, or that
    store has begun another attempt.
    """
    if connection.execute(sa.select(CHANGEFEEDS.c.name).where(CHANGEFEEDS.c.name == name)).first():
        require_free(found_job(connection, name))  # the job of an attempt that has just succeeded is no leftover
        raise ConfigError(
            f"changefeed '{name}' was also started in this store by `cdc run`; remove it here with `cdc drop`, or "
            "leave out --from-state to continue it"
        )
    for table in _TABLES:
        if rows := kept.rows[table.name]:
            connection.execute(sa.insert(table), [dict(row) for row in rows])
    kept.require_newest()  # last: an attempt that begins from now on waits for the end of this transaction


def _is_newest(connection: sa.Connection, rows: _Rows) -> bool:
    """Return whether no attempt, and no run, has begun since *rows* were read."""
    [row] = rows[CHANGEFEEDS.name]
    same = [CHANGEFEEDS.c[column] == row[column] for column in ("name", "feed_id", "epoch")]
    return connection.execute(sa.select(CHANGEFEEDS.c.name).where(*same)).first() is not None


def _rows(connection: sa.Connection, table: sa.Table, name: str) -> list[Mapping[str, Any]]:
    """Return the rows in their order, without the numbers that the other store gives them."""
    columns = [column for column in table.columns if column.name != "id"]
    selected = sa.select(*columns).where(table.c.name == name).order_by(*table.primary_key)
    return [dict(row) for row in connection.execute(selected).mappings()]
