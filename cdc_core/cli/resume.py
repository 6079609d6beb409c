"""`cdc resume`."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click

from cdc_core.cli.completion import complete_name
from cdc_core.cli.job_commands import adoption_text, await_job, echo_job, json_option, wait_option
from cdc_core.cli.run import name_in, state_of
from cdc_core.cli.session import FILE, CliSession, debug_option
from cdc_core.cli.stored import require_known, require_one_name, state_option, store_option, store_or_environment
from cdc_core.errors import ConfigError
from cdc_core.masking import secret_forms, uri_secrets
from cdc_core.store.job_values import JobRecord
from cdc_core.store.progress import ProgressStore
from cdc_core.store.reports import report

__all__ = ["resume", "resume_text"]


@click.command
@click.argument("file", metavar="FILE", type=FILE)
@click.argument("name", required=False, shell_complete=complete_name)
@state_option
@wait_option
@store_option
@json_option
@debug_option
@click.pass_obj
def resume(
    session: CliSession,
    file: str,
    name: str | None,
    state: str | None,
    wait: bool,
    store: str | None,
    as_json: bool,
) -> int:
    """Resume the changefeed NAME in FILE, which an error has paused, or a job, from where it stopped.

    Fix the cause first: otherwise the same error pauses it again. A run that waits notices within two seconds. Without
    one, the next `cdc run` continues. Only the name is read from FILE: passwords and plugins are not needed.

    A job has only a name: FILE is the name then, in the store that --store or the environment variable CDC_STORE names.
    """
    store = store_or_environment(file, state, store)
    if store is None:
        name, beside = name_in(file, name)
    else:
        require_one_name(name, state)
        name, beside, state = file, Path(), store
    url = state_of(beside, state)[1]
    session.add_secrets(secret_forms(uri_secrets(url)))
    progress = ProgressStore(url)
    try:
        known = require_known(progress, name, option="--state" if store is None else "--store")
        if progress.jobs.find(name) is not None:
            return _resume_job(session, progress, name, wait=wait, as_json=as_json)
        if wait:
            raise ConfigError(f"changefeed '{name}' is not a job, and no node adopts it; remove --wait")
        resumed = progress.changefeeds.resume(name)
        if as_json:
            shown = report(progress, known if not resumed else require_known(progress, name), now=datetime.now(UTC))
            session.echo_json(shown.to_json())
            return 0
    finally:
        progress.close()
    if resumed:
        click.echo(f"changefeed '{name}' is resumed: a waiting run continues now; otherwise start one with `cdc run`")
    else:
        click.echo(f"changefeed '{name}' is not paused")
    return 0


def _resume_job(session: CliSession, store: ProgressStore, name: str, *, wait: bool, as_json: bool) -> int:
    job = store.jobs.resume(name)
    if wait:
        job = await_job(store, name, _is_run, instead="no node runs it")
    echo_job(session, store, job, resume_text(store, job), as_json=as_json)
    return 0


def _is_run(job: JobRecord) -> bool:
    return job.state == "running" and job.node is not None


def resume_text(store: ProgressStore, job: JobRecord) -> str:
    """Return what becomes of *job*, which was resumed."""
    return f"job '{job.name}' is resumed; {adoption_text(store, job)}"
