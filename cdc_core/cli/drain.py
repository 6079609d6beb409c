"""`cdc drain`."""

from __future__ import annotations

import click

from cdc_core.cli.job_commands import job_store, job_store_option, json_option, poll, wait_option
from cdc_core.cli.session import CliSession, debug_option
from cdc_core.errors import TerminalError
from cdc_core.store.node_reports import node_values

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
    with job_store(session, store) as opened:
        found = opened.nodes.drain(node)

        def is_over() -> bool | None:
            """Return whether its session has expired, once it is over."""
            now, sessions = opened.nodes.all()
            mine = [each for each in sessions if each.node_id == found.node_id]
            if mine and mine[0].expires > now:
                return None
            return bool(mine)

        if wait and poll(is_over):
            raise TerminalError(
                f"node '{node}' has died while it drained; others adopt its jobs, which repeat their last steps"
            )
        if as_json:
            now, _ = opened.nodes.all()
            session.echo_json(node_values(found, opened.jobs.all(), now=now))
        else:
            click.echo(f"node '{node}' has ended" if wait else f"node '{node}' drains and ends")
    return 0
