"""`cdc jobs`."""

from __future__ import annotations

import click

from cdc_core.changefeeds.reading import recent
from cdc_core.cli.job_commands import changefeeds_at, job_store_option
from cdc_core.cli.session import CliSession, debug_option
from cdc_core.cli.tables import echo_table, marked
from cdc_core.store.job_values import moment
from cdc_core.store.reports import Report
from cdc_core.telemetry.status import behind_text, shown_moment, size_text

_HEADING = ("name", "state", "node", "owner", "behind", "retained", "status")


@click.command
@click.option("--all", "everything", is_flag=True, help="Also list jobs that finished more than 12 hours ago.")
@click.option("--json", "as_json", is_flag=True, help="Print each job as one line of JSON.")
@job_store_option
@debug_option
@click.pass_obj
def jobs(session: CliSession, everything: bool, as_json: bool, store: str | None) -> int:
    """List every job of the store: its state, the node that runs it, and how far it is.

    `cdc show NAME` tells all that is known of one.
    """
    with changefeeds_at(session, store) as changefeeds:
        found = changefeeds.job_reports()
        shown = found if everything else recent(found)
        if as_json:
            for each in shown:
                session.echo_json(each.job_json())
            return 0
        if shown:
            echo_table(session, [_HEADING, *map(_row, shown)])
        else:
            older = f"; {len(found)} finished earlier, see --all" if found else ""
            click.echo(f"there are no jobs in the store {changefeeds.store.shown}{older}")
        if runs := changefeeds.runs():
            click.echo(f"run by `cdc run`, and not by nodes: {', '.join(runs)}; see `cdc show`")
    return 0


def _row(report: Report) -> tuple[str, ...]:
    job = report.job
    assert job is not None
    behind = "" if report.behind_s is None else behind_text(report.behind_s)
    finished = moment(job.finished)
    ended = "" if finished is None else f"ended at {shown_moment(finished)}"
    status = report.shown_status or ": ".join(filter(None, (ended, job.reason)))
    retained = "" if report.retained_bytes is None else size_text(report.retained_bytes)
    if retained and (age_s := report.known.stale_age_s(report.now)) is not None:
        retained += f" {behind_text(age_s)} ago"
    return (job.name, marked(report.state), job.node or "", job.owner, behind, retained, status)
