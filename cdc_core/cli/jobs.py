"""`cdc jobs` and `cdc nodes`."""

from __future__ import annotations

from typing import Any

import click

from cdc_core.changefeeds.reading import recent
from cdc_core.cli.job_commands import changefeeds_at, job_store_option
from cdc_core.cli.session import CliSession, debug_option
from cdc_core.cli.tables import echo_table, marked
from cdc_core.options import counted
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
    """List the jobs in the store, each with its state, its lag, and the node that runs it.

    `cdc show NAME` shows everything about one job.
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


_NODE_HEADING = ("name", "state", "locality", "host", "process", "jobs", "version", "started", "expires")
_IN_CLUSTER = ("leads", "cores", "aggregates")


@click.command
@click.option("--json", "as_json", is_flag=True, help="Print each node as one line of JSON.")
@job_store_option
@debug_option
@click.pass_obj
def nodes(session: CliSession, as_json: bool, store: str | None) -> int:
    """List the nodes of the store: where each one is, how many jobs it runs, and which jobs it cannot run. If any node
    has cores, also shows which node leads the cluster, and how many jobs each node takes part in.

    A node whose session has expired is listed as dead for a day.
    """
    with changefeeds_at(session, store) as changefeeds:
        found = changefeeds.nodes()
        listed = [report.to_json() for report in found]
        if as_json:
            for each in listed:
                session.echo_json(each)
            return 0
        if not listed:
            click.echo(f"no node has joined the store {changefeeds.store.shown}; start one with `cdc node`")
            return 0
        if any(each["cores"] for each in listed):
            echo_table(
                session, [(*_NODE_HEADING, *_IN_CLUSTER), *((*_node_row(each), *_part(each)) for each in listed)]
            )
        else:
            echo_table(session, [_NODE_HEADING, *map(_node_row, listed)])
        for node in (report.node for report in found):
            for job in node.problems:
                click.echo(session.masked(f"{node.name} {node.problem_with(job)}"))
    return 0


def _node_row(shown: dict[str, Any]) -> tuple[str, ...]:
    jobs = f"{len(shown['jobs'])} of {shown['max_jobs']}"
    times = [shown[name].replace("T", " ").replace("+00:00", "Z") for name in ("started", "expires")]
    texts = [str(shown[name] or "") for name in ("locality", "host", "pid")]
    return (shown["name"], marked(shown["state"]), *texts, jobs, shown["version"], *times)


def _part(shown: dict[str, Any]) -> tuple[str, ...]:
    cores = f"{shown['cores']}, {shown['cores_used']} used" if shown["cores"] else "none"
    return ("yes" if shown["leads"] else "no", cores, counted(len(shown["aggregates"]), "job"))
