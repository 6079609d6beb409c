"""`cdc resume`."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import click

from cdc_core.changefeeds.service import Changefeeds
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
    with closing(ProgressStore(url)) as opened:
        changefeeds = Changefeeds(opened)
        known = require_known(opened, name, option="--state" if store is None else "--store")
        if wait and changefeeds.find_job(name) is None:
            raise ConfigError(f"changefeed '{name}' is not a job, and no node adopts it; remove --wait")
        job = changefeeds.resume(name)
        if job is not None:
            job = await_job(changefeeds, name, "resume") if wait else job
            echo_job(session, opened, job, resume_text(opened, job), as_json=as_json)
        elif as_json:
            session.echo_json(report(opened, require_known(opened, name), now=datetime.now(UTC)).to_json())
        elif known.paused is None:
            click.echo(f"changefeed '{name}' is not paused")
        else:
            remedy = "a waiting run continues now; otherwise start one with `cdc run`"
            click.echo(f"changefeed '{name}' is resumed: {remedy}")
    return 0


def resume_text(store: ProgressStore, job: JobRecord) -> str:
    """Return what becomes of *job*, which was resumed."""
    return f"job '{job.name}' is resumed; {adoption_text(store, job)}"
