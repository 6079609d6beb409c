"""Changefeeds as jobs: their rows, and their definitions. What people ask of them: `cdc_core.changefeeds`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import sqlalchemy as sa

from cdc_core.locality import Locality
from cdc_core.store.changefeeds import register_changefeed
from cdc_core.store.database import Aggregate
from cdc_core.store.deletion import forget
from cdc_core.store.events import add_event
from cdc_core.store.handover import Kept, put
from cdc_core.store.job_rows import all_jobs, found_job, known_job, of_job, offer_job, record_event
from cdc_core.store.job_tables import JOB_EVENTS, JOBS, DatabaseNow
from cdc_core.store.job_values import JobEvent, JobRecord, JobState, Pending
from cdc_core.store.nodes import alive_sessions, require_match
from cdc_core.store.tables import CHANGEFEEDS, update
from cdc_core.store.values import dump, record_of
from cdc_core.store.verbs import RefusedError, require_free


class Jobs(Aggregate):
    """Every job, from its creation until it has been finished for as long as the nodes keep it.

    Raises, everywhere: UnknownError when there is no such job, RefusedError when its state refuses the verb; nothing is
    changed then.
    """

    def create(
        self,
        name: str,
        definition: Mapping[str, Any],
        *,
        owner: str,
        locality: Locality,
        schedule: str | None = None,
        paused_for: Literal["pause", "stop"] | None = None,
        kept: Kept | None = None,
        offer_to: str | None = None,
    ) -> JobRecord:
        """Make the changefeed a job, which a node will run. *definition* is `ResolvedChangefeed.definition`.

        With *paused_for* it is paused from the first moment; otherwise the node named *offer_to* may have it first.
        What an earlier, finished job of this name has left in the store is forgotten; a changefeed that a `cdc run` has
        left is continued, also one that has left *kept* in another store. Raises: ConfigError when it is already a job,
        or one whose source still holds something, or no live node matches *locality*.
        """
        return self._database.once_more(
            lambda connection: create_job(
                connection,
                name,
                definition,
                owner=owner,
                locality=locality,
                schedule=schedule,
                paused_for=paused_for,
                kept=kept,
                offer_to=offer_to,
            )
        )

    def find(self, name: str, *, of_runs: bool = False) -> JobRecord | None:
        """Return the job, None when the changefeed is not one; with *of_runs* also what `cdc run` runs."""
        with self._database.transaction(reading=True) as connection:
            job = found_job(connection, name)
        return None if job is None or (job.is_run and not of_runs) else job

    def all(self) -> list[JobRecord]:
        """Return every job that nodes run by name, finished ones too."""
        with self._database.transaction(reading=True) as connection:
            return all_jobs(connection, alive_sessions(connection))

    def runs(self) -> list[str]:
        """Return the names of what `cdc run` runs, in their order."""
        with self._database.transaction(reading=True) as connection:
            return list(connection.execute(sa.select(JOBS.c.name).where(JOBS.c.is_run).order_by(JOBS.c.name)).scalars())

    def paused_runs(self) -> frozenset[str]:
        """Return the names of what `cdc run` is not to run now."""
        with self._database.transaction(reading=True) as connection:
            asked = sa.select(JOBS.c.name).where(JOBS.c.is_run, JOBS.c.state.in_(("pause-requested", "paused")))
            return frozenset(connection.execute(asked).scalars())

    def events(self, name: str) -> list[JobEvent]:
        """Return the changes of the job's state, the first one first."""
        of_job = sa.select(JOB_EVENTS).where(JOB_EVENTS.c.name == name).order_by(JOB_EVENTS.c.id)
        with self._database.transaction(reading=True) as connection:
            return [record_of(JobEvent, row) for row in connection.execute(of_job)]

    def all_events(self) -> dict[str, list[JobEvent]]:
        """Return what `events` returns, by job."""
        found: dict[str, list[JobEvent]] = {}
        with self._database.transaction(reading=True) as connection:
            for row in connection.execute(sa.select(JOB_EVENTS).order_by(JOB_EVENTS.c.id)):
                found.setdefault(row.name, []).append(record_of(JobEvent, row))
        return found


def create_job(
    connection: sa.Connection,
    name: str,
    definition: Mapping[str, Any],
    *,
    owner: str,
    locality: Locality,
    schedule: str | None,
    paused_for: Literal["pause", "stop"] | None = None,
    kept: Kept | None = None,
    offer_to: str | None = None,
) -> JobRecord:
    """Do what `Jobs.create` does, in the transaction of *connection*."""
    known = found_job(connection, name, locked=True)
    require_free(known)
    if known is not None and known.state == "revert-failed":
        raise RefusedError(
            f"job '{name}' has ended, but what it created at its source still exists",
            state=known.state,
            remedy=f"drop those objects with `cdc cancel {name}`, keep them with `cdc drop {name} --forget-only`, or"
            " choose another name",
        )
    if known is not None and known.is_run:
        for table in (JOBS, JOB_EVENTS):
            connection.execute(sa.delete(table).where(table.c.name == name))
        connection.execute(update(name).values(epoch=CHANGEFEEDS.c.epoch + 1))  # fence a run that begins, or waits
    elif known is not None:
        forget(connection, name)
    if kept is not None:
        put(connection, name, kept)  # before any other refusal: it waits for an attempt whose end is not known
    require_match(name, locality, alive_sessions(connection))
    register_changefeed(connection, name, definition)
    if known is not None and not known.is_run:  # a frozen attempt of that one must not pass for one of this
        connection.execute(update(name).values(epoch=CHANGEFEEDS.c.epoch + known.epoch + 1))
    state: JobState = "running" if paused_for is None else "paused"
    connection.execute(
        sa.insert(JOBS).values(
            name=name,
            state=state,
            paused_for=None if paused_for == "pause" else paused_for,
            owner=owner,
            locality=str(locality),
            is_clean=True,
            schedule=schedule,
            created=DatabaseNow(),
        )
    )
    record_event(connection, name, state, "created", None)
    place = str(locality) or None
    add_event(connection, "create_job", name, state=state, owner=owner, execution_locality=place, schedule=schedule)
    offer_job(connection, name, offer_to)
    return known_job(connection, name)


def define_job(connection: sa.Connection, name: str, wanted: Pending) -> None:
    """Give the job, which does not run, another definition. Raises: ConfigError."""
    chosen = wanted.initial_scans
    register_changefeed(connection, name, wanted.definition, changes_tables=True, why=wanted.why, scans=chosen)
    scans = dump(dict(chosen)) if chosen else None
    connection.execute(update(name).values(initial_scans=scans))
    connection.execute(of_job(name).values(locality=str(wanted.locality)))
    job = known_job(connection, name, of_runs=True)
    if not job.is_run:  # its history says since when it is paused, and the event log the rest
        record_event(connection, name, job.state, wanted.why, None)
