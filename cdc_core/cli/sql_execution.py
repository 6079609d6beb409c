"""What the statements do: the same as the commands for jobs, by the same functions."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from cdc_core.cli.cancel import cancel_text
from cdc_core.cli.create import check_new_job, create_job
from cdc_core.cli.job_commands import by_user, job_store, require_owner, user_name
from cdc_core.cli.pause import pause_text
from cdc_core.cli.resume import resume_text
from cdc_core.cli.run import resolved
from cdc_core.cli.session import CliSession
from cdc_core.cli.sql_jobs import show_jobs
from cdc_core.cli.sql_results import Result
from cdc_core.statements.definitions import changefeed_of_statement, derived_name
from cdc_core.statements.values import ControlJobs, CreateChangefeed, OwnJob, ShowJobs, Statement, Verb
from cdc_core.store.job_values import FOLLOWING, JobRecord, JobState
from cdc_core.store.progress import ProgressStore

__all__ = ["SqlTarget", "execute"]

_BECOMES: dict[Verb, JobState] = {"PAUSE": "paused", "RESUME": "running", "CANCEL": "cancel-requested"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlTarget:
    """Where statements apply: the databases to watch, the store, the owner of what is made, and where paths begin."""

    sources: Sequence[str]
    store: str | None
    owner: str | None
    directory: Path


def execute(session: CliSession, target: SqlTarget, statement: Statement) -> Result:
    """Do what *statement* says and return its result. Raises: CdcError, as the command does."""
    if isinstance(statement, CreateChangefeed):
        return _create(session, target, statement)
    with _opened(session, target) as store:
        if isinstance(statement, ShowJobs):
            return show_jobs(store, statement)
        if isinstance(statement, OwnJob):
            job = store.own_job(statement.job, require_owner(statement.owner))
            return _jobs([(job, f"job '{job.name}' belongs to {job.owner}")])
        return _jobs(_control(store, statement))


def _opened(session: CliSession, target: SqlTarget, *, create: bool = False) -> AbstractContextManager[ProgressStore]:
    return job_store(session, target.store, create=create)


def _create(session: CliSession, target: SqlTarget, statement: CreateChangefeed) -> Result:
    owner = require_owner(user_name() if target.owner is None else target.owner)
    with _opened(session, target, create=True) as store:
        name = statement.name or derived_name(statement.tables, {known.name for known in store.list()})
        changefeed = changefeed_of_statement(
            statement, name, sources=target.sources, directory=target.directory, environ=os.environ
        )
        feed = resolved(session, changefeed)
        check_new_job(store, feed)
        job, text = create_job(store, feed, owner=owner)
    return Result(columns=["job_id"], rows=[[job.name]], notices=[text])


def _control(store: ProgressStore, statement: ControlJobs) -> list[tuple[JobRecord, str]]:
    reason = statement.reason or by_user()
    verbs: dict[Verb, Callable[[str], tuple[JobRecord, str]]] = {
        "PAUSE": lambda name: (job := store.pause_job(name, reason), pause_text(job)),
        "RESUME": lambda name: (job := store.resume_job(name), resume_text(store, job)),
        "CANCEL": lambda name: (job := store.cancel_job(name, reason), cancel_text(job)),
    }
    names = statement.jobs
    if names is None:
        wanted = _BECOMES[statement.verb]
        names = tuple(job.name for job in store.jobs() if wanted in FOLLOWING[job.state])
    return [verbs[statement.verb](name) for name in names]


def _jobs(done: Sequence[tuple[JobRecord, str]]) -> Result:
    return Result(
        columns=["job_id", "status"],
        rows=[[job.name, job.state] for job, _ in done],
        notices=[text for _, text in done],
    )
