"""What `cdc alter` does with a job."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace

from cdc_core.cli.job_commands import adoption_text, by_user
from cdc_core.cli.run import resolved
from cdc_core.cli.session import CliSession
from cdc_core.cli.stored import require_known
from cdc_core.config.alteration import Alteration
from cdc_core.config.definition import changefeed_from, changefeed_of, require_references
from cdc_core.config.listed_tables import own_name
from cdc_core.errors import ConfigError
from cdc_core.jobs.creation import locality_of
from cdc_core.jobs.redefinition import require_redefinable
from cdc_core.store.job_values import RESTING, JobRecord, Pending
from cdc_core.store.progress import ProgressStore

__all__ = ["alter_job"]


def alter_job(
    session: CliSession, store: ProgressStore, job: JobRecord, change: Alteration, *, scans: Mapping[str, bool]
) -> tuple[JobRecord, str]:
    """Give the job its changed definition; return it, and what was done as text. One that runs has it after its step.

    *scans* says of added tables whether their rows are emitted. Raises: ConfigError, which leaves the job as it is.
    """
    name, origin = job.name, f"the progress store {store.shown}"
    known = require_known(store, name, option="--store")
    last = known.definition if job.pending is None else job.pending.definition
    changefeed = changefeed_from(last, name, origin=origin, environ=os.environ)
    before = resolved(session, changefeed)
    add, drop = ([own_name(table, before.sources[0]) for table in tables] for tables in (change.add, change.drop))
    change = replace(change, add=add, drop=drop)
    written = change.applied(last["written"], changefeed.tables)
    after = resolved(session, changefeed_of(name, written, origin=origin, environ=os.environ))
    require_references(after.stored, name)
    require_redefinable(store, known, after, sink=before.sink.name, tables=before.tables)
    if scans and store.progress.load(name) is None:
        raise ConfigError(f"job '{name}' has not begun yet, and its option initial_scan is for all tables; set that")
    wanted = Pending(
        definition=after.definition(),
        locality=locality_of(after),
        initial_scans={own_name(table, before.sources[0]): scan for table, scan in scans.items()},
        why=f"altered ({by_user()}): {change}",
    )
    altered = store.jobs.configure(name, wanted, before=last)
    text = f"job '{name}' is altered: {change}; {_continues(store, altered)}"
    return altered, text if after.tables == before.tables else f"{text}\nits tables are {', '.join(after.tables)}"


def _continues(store: ProgressStore, job: JobRecord) -> str:
    """Return what becomes of the altered job."""
    if job.pending is not None:
        return f"node {job.node} finishes the running step before that"
    if job.state in RESTING:
        return f"continue it with `cdc resume {job.name}`"
    return adoption_text(store, job)
