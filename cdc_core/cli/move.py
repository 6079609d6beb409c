"""`cdc move`."""

from __future__ import annotations

from collections.abc import Sequence

import click

from cdc_core.changefeeds.moving import target_of, written_target
from cdc_core.cli.job_commands import agreed, by_user
from cdc_core.cli.located import Named, changefeed_command
from cdc_core.errors import ConfigError
from cdc_core.rangefeed_values import Token


@changefeed_command()
@click.option(
    "--to",
    "to",
    metavar="POSITION",
    required=True,
    help="now, a time such as 2026-01-31T12:00:00Z, or a position of the source's own, such as a PostgreSQL LSN.",
)
@click.option("--source", metavar="URI", help="Of several sources, the one to move, as `cdc show` writes it.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def move(named: Named, to: str, source: str | None, yes: bool) -> int:
    """Have the next run of the changefeed NAME in FILE start from another position of its source's history.

    Changes between a later position and the present one are never delivered. An earlier one delivers changes again, in
    their order, as far as the source retains them. The source says which positions it can read from. Stop the
    changefeed first, or pause the job. `cdc events` keeps both positions.
    """
    session = named.session
    with named.opened(verb="move") as (changefeeds, feed, state_dir):
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
