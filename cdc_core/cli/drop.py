"""`cdc drop`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import click

from cdc_core.changefeeds.dropping import PlannedDrop, orphans_at
from cdc_core.cli.completion import complete_name
from cdc_core.cli.job_commands import agreed
from cdc_core.cli.located import Named, opened, require_store, state_of, store_option
from cdc_core.cli.session import FILE, CliSession, debug_option
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.errors import ConfigError
from cdc_core.masking import masked_uri
from cdc_core.plugins.host import PluginHost
from cdc_core.rangefeed_values import SourceObjects
from cdc_core.store.job_values import REVERTED
from cdc_core.store.verbs import Verb
from cdc_core.telemetry.status import size_text


@click.command
@click.argument("file", metavar="FILE|URI", type=FILE)
@click.argument("name", required=False, shell_complete=complete_name)
@click.option(
    "--state",
    "states",
    metavar="DIR|URL",
    multiple=True,
    help="Same as --store, but FILE may also name a pipeline that an installed package publishes. With --orphans,"
    " repeat this option for each store that may contain changefeeds of the source.",
)
@click.option(
    "--forget-only",
    is_flag=True,
    help="Only delete the changefeed from the progress store, for example if the source no longer exists.",
)
@click.option(
    "--orphans",
    is_flag=True,
    help="Drop objects at the source URI that belong to changefeeds in none of the progress stores.",
)
@click.option("--only", metavar="NAME", multiple=True, help="With --orphans, drop only this object. May be repeated.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@store_option
@debug_option
@click.pass_obj
def drop(
    session: CliSession,
    file: str,
    name: str | None,
    states: tuple[str, ...],
    forget_only: bool,
    orphans: bool,
    only: tuple[str, ...],
    yes: bool,
    store: str | None,
) -> int:
    """Remove the changefeed NAME in FILE for good.

    Drops what the changefeed created at the source, such as PostgreSQL's slot and publication, so that the source no
    longer retains history for it. Then deletes the changefeed from the progress store. What was delivered stays at the
    sink. A later run under the same name starts over with an initial scan. Stop the changefeed first.

    If the command fails halfway, repeat it. If the changefeed is a job, end it with `cdc cancel` first; then `cdc drop`
    deletes it from the progress store.

    With --orphans and the URI of a source, drops unused objects there that belong to changefeeds in none of the
    progress stores.
    """
    if orphans:
        if name is not None or forget_only or store is not None:
            raise ConfigError("--orphans takes the URI of a source; remove NAME, --forget-only and --store")
        return _drop_orphans(session, file, states, only, yes=yes)
    if only or len(states) > 1:
        raise ConfigError("--only and a second --state require --orphans; a changefeed has one progress store")
    named = Named.of(session, file, name, state=states[0] if states else None, store=store)
    verb: Verb = "forget" if forget_only else "drop"
    is_job = named.store is not None and _is_job(named, verb)
    feed: ResolvedChangefeed | None = None
    if is_job or forget_only:
        name, state_dir, url = named.place()
    else:
        feed, state_dir, url = named.resolved()
        name = feed.name
    with ExitStack() as open_:
        changefeeds = open_.enter_context(opened(session, url, name))
        changefeeds.find_job(name, by_file=not is_job)
        planned = open_.enter_context(changefeeds.dropping(name, feed=feed, state_dir=state_dir, verb=verb))
        click.echo(f"changefeed '{name}' of the progress store {changefeeds.store.shown}")
        click.echo(session.masked(f"  {_at_source(planned, feed)}"))
        click.echo(f"  forgotten: {_forgotten(planned)}")
        if not agreed(f"Remove changefeed '{name}'?", yes=yes):
            return 1
        planned.carry_out()
    click.echo(f"changefeed '{name}' is removed")
    return 0


def _is_job(named: Named, verb: Verb) -> bool:
    """Return whether the changefeed is a job. Raises: ConfigError when its state refuses *verb*."""
    name, _, url = named.place()
    with opened(named.session, url, name, by_name=True) as changefeeds:
        return changefeeds.find_job(name, verb=verb) is not None


def _at_source(planned: PlannedDrop, feed: ResolvedChangefeed | None) -> str:
    sources, job = ", ".join(planned.known.sources), planned.job
    if feed is not None:
        what = "whatever the changefeed created there"
        if planned.created is not None:
            what = "; ".join(map(_text, planned.created)) or "nothing, because it has created nothing there"
        return f"dropped at the source {feed.shown_source}: {what}"
    if job.state not in REVERTED:
        return f"left at the source {sources}: whatever it created there"
    done, why = ("changed", job.reason) if job.has_left else ("left", f"the job is {job.state}")
    return f"nothing is {done} at the source {sources}: {why}"


def _forgotten(planned: PlannedDrop) -> str:
    mark, letters = planned.known.high_water, planned.dead_letters
    position = f"the position {mark}" if mark else "no position yet"
    if not letters:
        return position
    return f"{position}, and {letters:,} dead {'letter that was' if letters == 1 else 'letters that were'} not replayed"


def _drop_orphans(session: CliSession, uri: str, states: Sequence[str], only: Sequence[str], *, yes: bool) -> int:
    session.mask_uri(uri)
    if yes and not (states or only):
        raise ConfigError(
            "without --state, every changefeed of the source looks like an orphan; use --state to name the progress"
            " stores of the source's changefeeds, or --only to name what to drop"
        )

    def known() -> dict[str, str]:
        return {feed_id: name for state in states for feed_id, name in _identities(session, state).items()}

    with orphans_at(uri, PluginHost.load(), known, only) as orphans:
        if not orphans.found:
            click.echo(f"there are no orphans at {masked_uri(uri)}")
            return 0
        whose = "of changefeeds that none of the named progress stores knows" if states else "of any changefeed"
        click.echo(f"at {masked_uri(uri)}, {whose}:")
        for entry in orphans.found:
            fate = "in use, kept" if entry.active else "dropped" if entry in orphans.chosen else "kept"
            if fate == "kept" and not entry.sure:
                fate = f"may belong to another program, kept unless you add --only {entry.name}"
            click.echo(session.masked(f"  {fate}: {_text(entry)}"))
        if not orphans.chosen:
            return 0
        click.echo("A changefeed whose progress is in another store loses its history, and must scan its tables again.")
        if not agreed(f"Drop {len(orphans.chosen)} of {len(orphans.found)}?", yes=yes):
            return 1
        for entry in orphans.chosen:
            dropped = orphans.drop(entry)
            click.echo(f"{entry.name} is dropped" if dropped else f"{entry.name} is in use and is kept")
    return 0


def _identities(session: CliSession, state: str) -> dict[str, str]:
    with opened(session, state_of(Path(), state)[1]) as changefeeds:
        require_store(changefeeds.store)
        return changefeeds.identities()


def _text(entry: SourceObjects) -> str:
    retained = "" if entry.retained_bytes is None else f", retains {size_text(entry.retained_bytes)} of history"
    owner = f" of changefeed '{entry.changefeed}'" if entry.changefeed else ""
    return f"{entry.name} ({' and '.join(entry.kinds)}{owner}{retained})"
