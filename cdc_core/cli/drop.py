"""`cdc drop`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import click

from cdc_core.changefeeds.stopped import stopped
from cdc_core.cli.completion import complete_name
from cdc_core.cli.confirm import agreed
from cdc_core.cli.job_commands import find_job
from cdc_core.cli.run import located, name_in, resolved, state_of
from cdc_core.cli.session import FILE, CliSession, debug_option
from cdc_core.cli.stored import require_known, require_one_name, require_store, store_option, store_or_environment
from cdc_core.config.component import Component
from cdc_core.config.identity import same_sources
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.errors import CdcError, ConfigError
from cdc_core.masking import masked_uri, secret_forms, uri_secrets
from cdc_core.plugins.host import PluginHost
from cdc_core.rangefeed import Rangefeed, RangefeedContext
from cdc_core.shards.shard import shard_feed_id
from cdc_core.source_objects import SourceObjects
from cdc_core.store.job_values import REVERTED, JobRecord
from cdc_core.store.progress import ChangefeedRecord, ProgressStore
from cdc_core.telemetry.status import size_text

__all__ = ["drop"]


@click.command
@click.argument("file", metavar="FILE|URI", type=FILE)
@click.argument("name", required=False, shell_complete=complete_name)
@click.option(
    "--state",
    "states",
    metavar="DIR|URL",
    multiple=True,
    help="As --store, also where FILE is the name of a pipeline that an installed package publishes. With --orphans,"
    " every store that may know a changefeed of the source; may be repeated.",
)
@click.option("--forget-only", is_flag=True, help="Leave the source alone, such as one that no longer exists.")
@click.option("--orphans", is_flag=True, help="Drop what is left at the source URI of changefeeds that no store knows.")
@click.option("--only", metavar="NAME", multiple=True, help="With --orphans, drop this one only. May be repeated.")
@click.option("--yes", is_flag=True, help="Do not ask.")
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

    Drops what it created at the source, such as PostgreSQL's slot and publication, so that the source no longer
    retains history for it. Then deletes it from the progress store. What was delivered stays at the sink. A later run
    under the same name starts again, with an initial scan. Stop the changefeed first.

    If this fails half-way, repeat it. A job is ended with `cdc cancel`; of one that has finished, this deletes what
    the progress store knows.

    With --orphans and the URI of a source, finds what changefeeds created there that none of the progress stores knows,
    and drops what is not in use.
    """
    if orphans:
        if name is not None or forget_only or store is not None:
            raise ConfigError("--orphans takes the URI of a source, and neither NAME nor --forget-only nor --store")
        return _drop_orphans(session, file, states, only, yes=yes)
    if only or len(states) > 1:
        raise ConfigError("--only and a second --state belong to --orphans; a changefeed has one progress store")
    state = states[0] if states else None
    store = store_or_environment(file, state, store)
    if store is not None:
        require_one_name(name, state)
        job = _job_to_forget(session, store, file, forget_only=forget_only)
        if job is not None:
            return _drop(session, file, None, *state_of(Path(), store), yes=yes, job=job)
    if not forget_only:
        changefeed, state_dir, url, _ = located(session, file, name, state=state, store=store)
        return _drop(session, changefeed.name, resolved(session, changefeed), state_dir, url, yes=yes)
    if store is None:
        name, beside = name_in(file, name)
    else:
        name, beside, state = file, Path(), store
    return _drop(session, name, None, *state_of(beside, state), yes=yes)


def _drop(
    session: CliSession,
    name: str,
    feed: ResolvedChangefeed | None,
    state_dir: Path,
    url: str,
    *,
    yes: bool,
    job: JobRecord | None = None,
) -> int:
    session.add_secrets(secret_forms(uri_secrets(url)))
    store = ProgressStore(url)
    with ExitStack() as open_:
        open_.callback(store.close)
        known = require_known(store, name)
        find_job(store, name, by_store=job is not None)
        if job is None:
            open_.enter_context(stopped(store, name, state_dir))
        rangefeed, what = None, f"left at the source {', '.join(known.sources)}: whatever it created there"
        if job is not None and job.state in REVERTED:
            done, why = ("changed", job.reason) if job.has_left else ("left", f"the job is {job.state}")
            what = f"nothing is {done} at the source {', '.join(known.sources)}: {why}"
        if feed is not None:
            _require_source(feed, known)
            rangefeed = open_.enter_context(closing(feed.for_attempt(feed_id=known.feed_id, epoch=0).open_rangefeed()))
            try:
                what = f"dropped at the source {feed.shown_source}: {_owned(rangefeed.created(), known)}"
            except CdcError as error:
                raise _gone(error) from error
        click.echo(f"changefeed '{name}' of the progress store {store.shown}")
        click.echo(session.masked(f"  {what}"))
        click.echo(f"  forgotten: {_forgotten(store, known)}")
        if not agreed(f"Remove changefeed '{name}'?", yes=yes):
            return 1
        store.changefeeds.begin_attempt(name)  # runs on other hosts end instead of creating again what is dropped
        if rangefeed is not None:
            progress = store.progress.load(name)
            try:
                rangefeed.drop(None if progress is None else progress.token)
            except CdcError as error:
                raise _gone(error) from error
        store.changefeeds.forget(name)
    click.echo(f"changefeed '{name}' is removed")
    return 0


def _job_to_forget(session: CliSession, store: str, name: str, *, forget_only: bool) -> JobRecord | None:
    """Return the job; None when the changefeed is not one. Raises: ConfigError when its state refuses that."""
    url = state_of(Path(), store)[1]
    session.add_secrets(secret_forms(uri_secrets(url)))
    with closing(ProgressStore(url)) as progress:
        require_known(progress, name, option="--store")
        return find_job(progress, name, by_store=True, verb="forget" if forget_only else "drop")


def _require_source(feed: ResolvedChangefeed, known: ChangefeedRecord) -> None:
    """Return when *feed* names the source that the changefeed was started on. Raises: ConfigError."""
    if not same_sources(known.definition, feed.definition()):
        raise ConfigError(
            f"changefeed '{feed.name}' was started on the source {', '.join(known.sources)}, not {feed.shown_source};"
            " restore the source in its definition, or use --forget-only"
        )


def _gone(error: CdcError) -> CdcError:
    """Return *error* with what else can be done about a source that cannot be reached."""
    return type(error)(f"{error}; repeat the command, or use --forget-only if the source no longer exists")


def _owned(created: Sequence[SourceObjects] | None, known: ChangefeedRecord) -> str:
    if created is None:
        return "whatever the changefeed created there"
    mine = [_text(entry) for entry in created if entry.feed_id == known.feed_id]
    return "; ".join(mine) or "nothing, it has nothing there"


def _forgotten(store: ProgressStore, known: ChangefeedRecord) -> str:
    letters = len(store.dead_letters.of(known.name))
    position = f"the position {known.high_water}" if known.high_water else "no position yet"
    if not letters:
        return position
    return f"{position}, and {letters:,} dead {'letter that was' if letters == 1 else 'letters that were'} not replayed"


def _drop_orphans(session: CliSession, uri: str, states: Sequence[str], only: Sequence[str], *, yes: bool) -> int:
    session.add_secrets(secret_forms(uri_secrets(uri)))
    if yes and not (states or only):
        raise ConfigError(
            "without --state, every changefeed of the source looks like an orphan; name its progress stores, or what to"
            " drop with --only"
        )
    source = Component(registration=PluginHost.load().rangefeed_for(uri))
    context = RangefeedContext(changefeed="", feed_id="", uri=uri, tables=(), options=source.parsed())
    part = source.load("rangefeed", Rangefeed)
    with closing(part(context)) as rangefeed:
        created = rangefeed.created()
        if created is None:
            raise ConfigError(f"{source.owner} cannot tell what changefeeds have created there; see its documentation")
        # Read after the list: a changefeed is in its store before it creates anything.
        known = {feed_id: name for state in states for feed_id, name in _known(session, state).items()}
        orphans = [entry for entry in created if entry.feed_id not in known]
        for name in only:
            _require_orphan(name, created, known)
        chosen = [entry for entry in orphans if not entry.active and (entry.name in only if only else entry.sure)]
        if not orphans:
            click.echo(f"there are no orphans at {masked_uri(uri)}")
            return 0
        whose = "of changefeeds that none of the named progress stores knows" if states else "of any changefeed"
        click.echo(f"at {masked_uri(uri)}, {whose}:")
        for entry in orphans:
            fate = "in use, stays" if entry.active else "dropped" if entry in chosen else "stays"
            if fate == "stays" and not entry.sure:
                fate = f"perhaps of another program, stays without --only {entry.name}"
            click.echo(session.masked(f"  {fate}: {_text(entry)}"))
        if not chosen:
            return 0
        click.echo("A changefeed whose progress is in another store loses its history, and must scan its tables again.")
        if not agreed(f"Drop {len(chosen)} of {len(orphans)}?", yes=yes):
            return 1
        for entry in chosen:
            now = {each.name: each for each in rangefeed.created() or ()}.get(entry.name)
            if now is not None and now.active:
                click.echo(f"{entry.name} is in use now and stays")
                continue
            with closing(part(replace(context, changefeed=entry.changefeed, feed_id=entry.feed_id))) as owner:
                owner.drop(None)
            click.echo(f"{entry.name} is dropped")
    return 0


def _known(session: CliSession, state: str) -> dict[str, str]:
    """Return the changefeeds of a progress store, names by identity."""
    url = state_of(Path(), state)[1]
    session.add_secrets(secret_forms(uri_secrets(url)))
    with closing(ProgressStore(url)) as store:
        require_store(store)
        return {feed_id: feed.name for feed in store.changefeeds.all() for feed_id in _identities(feed)}


def _identities(feed: ChangefeedRecord) -> list[str]:
    """Return the identities under which a changefeed creates things at its sources."""
    count = len(feed.sources)
    return [feed.feed_id] if count == 1 else [shard_feed_id(feed.feed_id, index) for index in range(count)]


def _require_orphan(name: str, created: Sequence[SourceObjects], known: dict[str, str]) -> None:
    entry = next((entry for entry in created if entry.name == name), None)
    if entry is None:
        raise ConfigError(f"--only {name}: no changefeed has created it at this source; leave out --only to list them")
    owner = known.get(entry.feed_id)
    if owner is not None:
        raise ConfigError(f"--only {name}: it belongs to changefeed '{owner}'; use `cdc drop FILE {owner}`")


def _text(entry: SourceObjects) -> str:
    retained = "" if entry.retained_bytes is None else f", retains {size_text(entry.retained_bytes)} of history"
    owner = f" of changefeed '{entry.changefeed}'" if entry.changefeed else ""
    return f"{entry.name} ({' and '.join(entry.kinds)}{owner}{retained})"
