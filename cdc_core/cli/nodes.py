"""`cdc nodes`."""

from __future__ import annotations

from typing import Any

import click

from cdc_core.cli.job_commands import changefeeds_at, job_store_option
from cdc_core.cli.session import CliSession, debug_option
from cdc_core.cli.tables import echo_table, marked
from cdc_core.options import counted

_HEADING = ("name", "state", "locality", "host", "process", "jobs", "version", "started", "expires")
_IN_CLUSTER = ("leads", "cores", "aggregates")


@click.command
@click.option("--json", "as_json", is_flag=True, help="Print each node as one line of JSON.")
@job_store_option
@debug_option
@click.pass_obj
def nodes(session: CliSession, as_json: bool, store: str | None) -> int:
    """List the nodes of the store: where each one is, how many jobs it runs, and which jobs it cannot run. Of nodes
    with cores, which one leads the cluster, and in how many jobs each has a part.

    A node whose session has expired is listed for a day as dead.
    """
    with changefeeds_at(session, store) as changefeeds:
        listed = [node.to_json() for node in changefeeds.nodes()]
        if as_json:
            for each in listed:
                session.echo_json(each)
            return 0
        if not listed:
            click.echo(f"no node has joined the store {changefeeds.store.shown}; start one with `cdc node`")
            return 0
        if any(each["cores"] for each in listed):
            echo_table(session, [(*_HEADING, *_IN_CLUSTER), *((*_row(each), *_part(each)) for each in listed)])
        else:
            echo_table(session, [_HEADING, *map(_row, listed)])
        for each in listed:
            for job, problem in each["problems"].items():
                click.echo(session.masked(f"{each['name']} cannot run job '{job}': {problem}"))
    return 0


def _row(shown: dict[str, Any]) -> tuple[str, ...]:
    jobs = f"{len(shown['jobs'])} of {shown['max_jobs']}"
    times = [shown[name].replace("T", " ").replace("+00:00", "Z") for name in ("started", "expires")]
    texts = [str(shown[name] or "") for name in ("locality", "host", "pid")]
    return (shown["name"], marked(shown["state"]), *texts, jobs, shown["version"], *times)


def _part(shown: dict[str, Any]) -> tuple[str, ...]:
    cores = f"{shown['cores']}, {shown['cores_used']} used" if shown["cores"] else "none"
    return ("yes" if shown["leads"] else "no", cores, counted(len(shown["aggregates"]), "job"))
