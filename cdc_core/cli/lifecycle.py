"""`cdc pause`, `cdc resume`, `cdc cancel`, `cdc owner` and `cdc drain`."""

from __future__ import annotations

import click

from cdc_core.changefeeds.service import Changefeeds
from cdc_core.cli.completion import complete_name
from cdc_core.cli.job_commands import (
    adoption_text,
    agreed,
    await_job,
    by_user,
    echo_job,
    job_command,
    require_owner,
    wait_option,
)
from cdc_core.cli.located import Named, changefeed_command, opened
from cdc_core.cli.session import CliSession, json_option
from cdc_core.errors import ConfigError
from cdc_core.store.job_values import RESTING, JobRecord

_reason_option = click.option(
    "--reason", metavar="TEXT", help="Reason to show in `cdc show` and in the history of the job."
)


@click.command
@click.argument("name", metavar="NAME", shell_complete=complete_name)
@_reason_option
@wait_option
@job_command
def pause(
    session: CliSession, changefeeds: Changefeeds, name: str, reason: str | None, wait: bool, as_json: bool
) -> None:
    """Pause the job NAME: its node finishes the running step, and no node runs the job until `cdc resume`.

    While a job is paused, its source retains the history that the job has not delivered, and may run out of space. NAME
    may also be a changefeed that `cdc run` runs. If it is running, it finishes its step and waits; otherwise its next
    run waits.
    """
    job = changefeeds.pause(name, reason or by_user())
    if wait and job.state not in RESTING:
        job = await_job(changefeeds, job, "pause")
    echo_job(session, changefeeds, job, pause_text(job), as_json=as_json)


def pause_text(job: JobRecord) -> str:
    """Return what becomes of *job*, which is to be paused."""
    if job.is_run:
        done = "is paused" if job.state in RESTING else "will be paused after the running step"
        return f"changefeed '{job.name}' {done}"
    if job.state in RESTING:
        return f"job '{job.name}' {'has failed, and is not running' if job.state == 'failed' else 'is paused'}"
    return f"job '{job.name}': {f'node {job.node}' if job.node else 'the node that adopts it next'} will pause it"


@changefeed_command()
@wait_option
@json_option
def resume(named: Named, wait: bool, as_json: bool) -> int:
    """Resume the changefeed NAME in FILE, or a job, from where it stopped.

    If an error paused it, fix the cause first; otherwise the same error will pause it again. A waiting run continues
    within two seconds. If no run is waiting, the next `cdc run` continues. Only the name is read from FILE: passwords
    and plugins are not needed.

    For a job, FILE is the name of the job in the store given by --store or the environment variable CDC_STORE.
    """
    name, _, url = named.place()
    with opened(named.session, url, name, by_name=named.store is not None) as changefeeds:
        if wait and changefeeds.find_job(name) is None:
            raise ConfigError(f"changefeed '{name}' is not a job, so no node adopts it; remove --wait")
        paused = changefeeds.known(name).paused
        job = changefeeds.resume(name, by_user())
        if wait:
            job = await_job(changefeeds, job, "resume")
        text = f"changefeed '{name}' is not paused"
        if paused is not None or job.state == "pause-requested" or not job.is_run:
            text = resume_text(changefeeds, job)
        echo_job(named.session, changefeeds, job, text, as_json=as_json)
    return 0


def resume_text(changefeeds: Changefeeds, job: JobRecord) -> str:
    """Return what becomes of *job*, which was resumed."""
    if job.is_run:
        continues = "a running changefeed continues after its step"
        if job.state != "pause-requested":
            continues = "a waiting run continues now"
        return f"changefeed '{job.name}' is resumed: {continues}; otherwise start one with `cdc run`"
    return f"job '{job.name}' is resumed; {adoption_text(changefeeds, job)}"


@click.command
@click.argument("name", metavar="NAME", shell_complete=complete_name)
@_reason_option
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@wait_option
@job_command
def cancel(
    session: CliSession, changefeeds: Changefeeds, name: str, reason: str | None, yes: bool, wait: bool, as_json: bool
) -> int:
    """End the job NAME for good: a node drops what the job created at its source, such as PostgreSQL's slot and
    publication.

    The job cannot be resumed. What was delivered stays at the sink. If an earlier `cdc cancel` could not drop
    everything, repeat it. If no running node can drop everything, the state of the job becomes revert-failed, and its
    reason says what is left and why.
    """
    if not agreed(f"Cancel job '{name}' for good?", yes=yes):
        return 1
    job = changefeeds.cancel(name, reason or by_user())
    if wait:
        job = await_job(changefeeds, job, "cancel")
    echo_job(session, changefeeds, job, cancel_text(job), as_json=as_json)
    return 0


def cancel_text(job: JobRecord) -> str:
    """Return what becomes of *job*, which is to be canceled."""
    if job.state == "canceled":
        return f"job '{job.name}' is canceled"
    if job.node is not None:
        return f"job '{job.name}': node {job.node} will cancel it"
    return f"job '{job.name}' will be canceled by the next node that adopts it"


@click.command
@click.argument("name", metavar="NAME", shell_complete=complete_name)
@click.argument("user", metavar="USER")
@job_command
def owner(session: CliSession, changefeeds: Changefeeds, name: str, user: str, as_json: bool) -> None:
    """Make USER the owner of the job NAME. A node can be restricted to the jobs of certain owners."""
    job = changefeeds.set_owner(name, require_owner(user))
    echo_job(session, changefeeds, job, f"job '{name}' belongs to {user}", as_json=as_json)


@click.command
@click.argument("node", metavar="NODE")
@wait_option
@job_command
def drain(session: CliSession, changefeeds: Changefeeds, node: str, wait: bool, as_json: bool) -> None:
    """Drain the node NODE, as `cdc nodes` lists it: the node finishes the running steps of its jobs, hands the jobs
    over, and stops.

    Other nodes adopt the jobs. Sending SIGTERM to the node has the same effect.
    """
    found = changefeeds.drain(node)
    if wait:
        changefeeds.wait_for_end(found)
    if as_json:
        session.echo_json(changefeeds.node(found).to_json())
    else:
        click.echo(f"node '{node}' has ended" if wait else f"node '{node}' is draining and will end")
