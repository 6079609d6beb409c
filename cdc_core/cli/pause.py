"""`cdc pause`."""

from __future__ import annotations

import click

from cdc_core.cli.completion import complete_name
from cdc_core.cli.job_commands import (
    await_job,
    by_user,
    changefeeds_at,
    echo_job,
    job_store_option,
    json_option,
    wait_option,
)
from cdc_core.cli.session import CliSession, debug_option
from cdc_core.store.job_values import RESTING, JobRecord

__all__ = ["pause", "pause_text"]


@click.command
@click.argument("name", metavar="NAME", shell_complete=complete_name)
@click.option("--reason", metavar="TEXT", help="Why, for `cdc show` and the history of the job.")
@wait_option
@job_store_option
@json_option
@debug_option
@click.pass_obj
def pause(session: CliSession, name: str, reason: str | None, wait: bool, store: str | None, as_json: bool) -> int:
    """Pause the job NAME: its node finishes the running step, and no node runs it until `cdc resume`.

    While a job is paused, its source retains the history that the job has not delivered, and may run out of space.
    """
    with changefeeds_at(session, store) as changefeeds:
        job = changefeeds.pause(name, reason or by_user())
        if wait and job.state not in RESTING:
            job = await_job(changefeeds, name, "pause")
        echo_job(session, changefeeds.store, job, pause_text(job), as_json=as_json)
    return 0


def pause_text(job: JobRecord) -> str:
    """Return what becomes of *job*, which is to be paused."""
    if job.state in RESTING:
        return f"job '{job.name}' {'has failed, and is not running' if job.state == 'failed' else 'is paused'}"
    return f"job '{job.name}': node {job.node or 'that adopts it next'} will pause it"
