"""`cdc drain`."""

from __future__ import annotations

import click

from cdc_core.cli.job_commands import changefeeds_at, job_store_option, json_option, wait_option
from cdc_core.cli.session import CliSession, debug_option

__all__ = ["drain"]


@click.command
@click.argument("node", metavar="NODE")
@wait_option
@job_store_option
@json_option
@debug_option
@click.pass_obj
def drain(session: CliSession, node: str, wait: bool, store: str | None, as_json: bool) -> int:
    """Have NODE, a name that `cdc nodes` lists, finish the running steps of its jobs, hand them over, and end.

    Other nodes adopt the jobs. SIGTERM has the same effect.
    """
    with changefeeds_at(session, store) as changefeeds:
        found = changefeeds.drain(node)
        if wait:
            changefeeds.wait_for_end(found)
        if as_json:
            session.echo_json(changefeeds.node(found))
        else:
            click.echo(f"node '{node}' has ended" if wait else f"node '{node}' drains and ends")
    return 0
