"""`cdc cancel`."""

from __future__ import annotations

import click

from cdc_core.cli.completion import complete_name
from cdc_core.cli.confirm import agreed
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
from cdc_core.store.job_values import JobRecord

__all__ = ["cancel", "cancel_text"]


@click.command
@click.argument("name", metavar="NAME", shell_complete=complete_name)
@click.option("--reason", metavar="TEXT", help="Why, for `cdc show` and the history of the job.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@wait_option
@job_store_option
@json_option
@debug_option
@click.pass_obj
def cancel(
    session: CliSession, name: str, reason: str | None, yes: bool, wait: bool, store: str | None, as_json: bool
) -> int:
    """End the job NAME for good: a node drops what it created at its source, such as PostgreSQL's slot and publication.

    It cannot be resumed. What was delivered stays at the sink. Of a job that could not be reverted, this tries again.
    When no living node can drop it, the job ends as revert-failed, and its reason says what is left and why.
    """
    with changefeeds_at(session, store) as changefeeds:
        if not agreed(f"Cancel job '{name}' for good?", yes=yes):
            return 1
        job = changefeeds.cancel(name, reason or by_user())
        if wait:
            job = await_job(changefeeds, name, "cancel")
        echo_job(session, changefeeds.store, job, cancel_text(job), as_json=as_json)
    return 0


def cancel_text(job: JobRecord) -> str:
    """Return what becomes of *job*, which is to be canceled."""
    if job.state == "canceled":
        return f"job '{job.name}' is canceled"
    if job.node is not None:
        return f"job '{job.name}': node {job.node} will cancel it"
    return f"job '{job.name}' will be canceled by the next node that adopts it"
