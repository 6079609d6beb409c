"""`cdc owner`."""

from __future__ import annotations

import click

from cdc_core.cli.completion import complete_name
from cdc_core.cli.job_commands import changefeeds_at, echo_job, job_store_option, json_option, require_owner
from cdc_core.cli.session import CliSession, debug_option

__all__ = ["owner"]


@click.command
@click.argument("name", metavar="NAME", shell_complete=complete_name)
@click.argument("user", metavar="USER")
@job_store_option
@json_option
@debug_option
@click.pass_obj
def owner(session: CliSession, name: str, user: str, store: str | None, as_json: bool) -> int:
    """Make USER the owner of the job NAME. A node may run only the jobs of some owners."""
    with changefeeds_at(session, store) as changefeeds:
        job = changefeeds.set_owner(name, require_owner(user))
        echo_job(session, changefeeds.store, job, f"job '{name}' belongs to {user}", as_json=as_json)
    return 0
