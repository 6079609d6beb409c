"""`cdc move`."""

from __future__ import annotations

from collections.abc import Sequence

import click

from cdc_core.changefeeds.moving import target_of, written_target
from cdc_core.cli.completion import complete_name
from cdc_core.cli.job_commands import agreed, by_user, opened
from cdc_core.cli.located import located, resolved
from cdc_core.cli.session import FILE, CliSession, debug_option
from cdc_core.cli.stored import state_option, store_option, store_or_environment
from cdc_core.errors import ConfigError
from cdc_core.rangefeed_values import Token


@click.command
@click.argument("file", metavar="FILE", type=FILE)
@click.argument("name", required=False, shell_complete=complete_name)
@click.option(
    "--to",
    "to",
    metavar="POSITION",
    required=True,
    help="now, a time such as 2026-01-31T12:00:00Z, or a position of the source's own, such as a PostgreSQL LSN.",
)
@click.option("--source", metavar="URI", help="Of several sources, the one to move, as `cdc show` writes it.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@state_option
@store_option
@debug_option
@click.pass_obj
def move(
    session: CliSession,
    file: str,
    name: str | None,
    to: str,
    source: str | None,
    yes: bool,
    state: str | None,
    store: str | None,
) -> int:
    """Have the next run of the changefeed NAME in FILE start from another position of its source's history.

    Changes between a later position and the present one are never delivered. An earlier one delivers changes again, in
    their order, as far as the source retains them. The source says which positions it can read from. Stop the
    changefeed first, or pause the job. `cdc events` keeps both positions.
    """
    store = store_or_environment(file, state, store)
    changefeed, state_dir, url, _ = located(session, file, name, state=state, store=store)
    feed = resolved(session, changefeed)
    with opened(session, url, feed.name, by_name=store is not None) as changefeeds:
        changefeeds.find_job(feed.name, by_file=store is None, verb="move")
        target: str | Token = written_target(to)
        if source is not None:
            known = changefeeds.known(feed.name)
            target = target_of(known, {_index(known.sources, source): target})
        with changefeeds.moving(feed, target, state_dir=state_dir) as planned:
            if not planned.moves:
                click.echo(f"changefeed '{feed.name}' is at {planned.move.before} already")
                return 0
            click.echo(f"changefeed '{feed.name}' of the progress store {changefeeds.store.shown}")
            click.echo(session.masked(f"  from {planned.move.before}"))
            click.echo(session.masked(f"  to   {planned.move.after}"))
            click.echo(f"  {planned.effect}")
            if not agreed(f"Move changefeed '{feed.name}'?", yes=yes, declined="nothing was moved"):
                return 1
            changefeeds.move(planned, by_user())
    click.echo(f"changefeed '{feed.name}': the next run starts from {session.masked(planned.move.after)}")
    return 0


def _index(sources: Sequence[str], source: str) -> int:
    if source not in sources:
        raise ConfigError(f"--source {source}: the changefeed has {', '.join(sources)}; name one of them")
    return sources.index(source)
