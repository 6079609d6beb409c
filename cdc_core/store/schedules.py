"""Schedules: when jobs are to be started. Each change, with the job that it starts, is one transaction."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import sqlalchemy as sa

from cdc_core.locality import Locality
from cdc_core.options import did_you_mean
from cdc_core.store.database import Aggregate
from cdc_core.store.job_rows import all_jobs, change_job
from cdc_core.store.job_tables import JOBS, DatabaseNow
from cdc_core.store.job_values import FINISHED
from cdc_core.store.jobs import create_job
from cdc_core.store.schedule_values import ScheduleChange, ScheduledRun, ScheduleRecord
from cdc_core.store.tables import METADATA, Words
from cdc_core.store.values import record_of
from cdc_core.store.verbs import UnknownError

SCHEDULES = sa.Table(
    "cdc_schedules",
    METADATA,
    sa.Column("name", sa.String(25), primary_key=True),
    sa.Column("definition", sa.Text, nullable=False),
    sa.Column("locality", sa.Text, nullable=False),
    sa.Column("owner", sa.String(64), nullable=False),
    sa.Column("cron", sa.Text, nullable=False),
    sa.Column("time_zone", sa.String(64), nullable=False),
    sa.Column("on_previous_running", sa.String(10), nullable=False),
    sa.Column("on_execution_failure", sa.String(10), nullable=False),
    sa.Column("created", sa.Double, nullable=False),
    sa.Column("next_run", sa.Double),
    sa.Column("reason", Words),
    sa.Column("last_job", sa.String(40)),
    sa.Column("version", sa.BigInteger, nullable=False),
)
"""`next_run` is null while the schedule is paused. `version` is raised by each change, so that two nodes never make
the same one."""
SCHEDULE_RUNS = sa.Table(
    "cdc_schedule_runs",
    METADATA,
    sa.Column("job", sa.String(40), primary_key=True),
    sa.Column("schedule", sa.String(25), nullable=False, index=True),
)
"""The jobs that schedules have started and whose end no node has looked at yet."""


_JOB = (JOBS.c.state.label("job_state"), JOBS.c.reason.label("job_reason"))
_WITH_RUNS = (
    sa.select(SCHEDULES, SCHEDULE_RUNS.c.job, *_JOB, DatabaseNow().label("now"))
    .join(SCHEDULE_RUNS, SCHEDULE_RUNS.c.schedule == SCHEDULES.c.name, isouter=True)
    .join(JOBS, (JOBS.c.name == SCHEDULE_RUNS.c.job) & ~JOBS.c.is_run, isouter=True)
    .order_by(SCHEDULES.c.name, SCHEDULE_RUNS.c.job)
)
_HAS_ENDED = SCHEDULE_RUNS.c.job.is_not(None) & (JOBS.c.name.is_(None) | JOBS.c.state.in_(FINISHED | {"failed"}))


class Schedules(Aggregate):
    """Every schedule, until it is dropped. Its jobs are jobs like others, and outlive it."""

    def all(self) -> list[ScheduleRecord]:
        """Return every schedule, by name, with its open runs."""
        with self._database.transaction(reading=True) as connection:
            return _records(connection.execute(_WITH_RUNS).all())

    def find(self, name: str) -> ScheduleRecord:
        """Return the schedule, with its open runs. Raises: ConfigError when it is unknown."""
        with self._database.transaction(reading=True) as connection:
            return known_schedule(connection, name)

    def due(self) -> tuple[float, list[ScheduleRecord]]:
        """Return the database's clock and the schedules that are due, with all their runs, or that have a run that has
        ended, with those runs. One read; the clock is 0 when there are none.
        """
        due = _WITH_RUNS.where((SCHEDULES.c.next_run <= DatabaseNow()) | _HAS_ENDED)
        with self._database.transaction(reading=True) as connection:
            rows = connection.execute(due).all()
        return (rows[0].now if rows else 0.0), _records(rows)

    def change(self, known: ScheduleRecord, change: ScheduleChange) -> bool:
        """Change the schedule and start the job of *change*; return False, and do nothing, if it is not as *known* now.

        Raises: ConfigError, and changes nothing, when the job cannot be created.
        """
        values = {"next_run": change.next_run, "reason": change.reason, "version": known.version + 1}
        if change.start is not None:
            values["last_job"] = change.start
        same = (SCHEDULES.c.version == known.version) & (SCHEDULES.c.created == known.created)
        mine = sa.update(SCHEDULES).where(SCHEDULES.c.name == known.name, same)
        with self._database.transaction() as connection:
            if not connection.execute(mine.values(values)).rowcount:
                return False
            connection.execute(sa.delete(SCHEDULE_RUNS).where(SCHEDULE_RUNS.c.job.in_(change.ended)))
            if change.start is not None:
                self._cancel_failed(connection, known.name)
                create_job(
                    connection,
                    change.start,
                    known.definition,
                    owner=known.owner,
                    locality=known.locality,
                    schedule=known.name,
                )
                connection.execute(sa.insert(SCHEDULE_RUNS).values(job=change.start, schedule=known.name))
        return True

    def _cancel_failed(self, connection: sa.Connection, schedule: str) -> None:
        """Cancel the runs of the schedule that have failed: the next one, which starts over, takes their place."""
        failed = (JOBS.c.schedule == schedule) & (JOBS.c.state == "failed")
        for job in all_jobs(connection, [], failed):
            reason = f"schedule '{schedule}' runs again; it had failed: {job.reason}"
            change_job(connection, job, "cancel-requested", reason=reason)


def known_schedule(connection: sa.Connection, name: str, *, locked: bool = False) -> ScheduleRecord:
    """Return the schedule, with its open runs. *locked*: no other transaction changes it until the end of this one.

    Raises: UnknownError.
    """
    if locked:
        connection.execute(sa.select(SCHEDULES.c.name).where(SCHEDULES.c.name == name).with_for_update())
    found = _records(connection.execute(_WITH_RUNS.where(SCHEDULES.c.name == name)).all())
    if not found:
        known = connection.execute(sa.select(SCHEDULES.c.name)).scalars()
        raise UnknownError(f"there is no schedule '{name}'" + did_you_mean(name, known))
    return found[0]


def _records(rows: Sequence[Any]) -> list[ScheduleRecord]:
    found = []
    for _, each in groupby(rows, key=lambda row: row.name):
        of_one = list(each)
        runs = [ScheduledRun(job=row.job, state=row.job_state, reason=row.job_reason) for row in of_one if row.job]
        definition, locality = json.loads(of_one[0].definition), Locality.parse(of_one[0].locality)
        found.append(record_of(ScheduleRecord, of_one[0], definition=definition, locality=locality, runs=runs))
    return found
