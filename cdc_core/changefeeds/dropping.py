"""Removing changefeeds for good, and what is left of them at sources."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from cdc_core.changefeeds.finding import Finder, stopped
from cdc_core.config.component import Component
from cdc_core.config.identity import same_sources
from cdc_core.config.parts import Parts
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.errors import CdcError, ConfigError
from cdc_core.plugins.host import PluginHost
from cdc_core.rangefeed import Rangefeed
from cdc_core.rangefeed_context import RangefeedContext
from cdc_core.rangefeed_values import SourceObjects
from cdc_core.shards.shard import shard_feed_id
from cdc_core.store.deletion import drop
from cdc_core.store.job_rows import found_job
from cdc_core.store.job_values import JobRecord
from cdc_core.store.progress import ChangefeedRecord
from cdc_core.store.verbs import Verb, require


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedDrop:
    """What a drop removes: *created* at the source, None when the source cannot tell; and all that the store knows.

    `carry_out` does it. Raises: CdcError; the drop is then repeated as a whole.
    """

    known: ChangefeedRecord
    job: JobRecord
    dead_letters: int
    created: Sequence[SourceObjects] | None
    carry_out: Callable[[], None]


class Dropping(Finder):
    """The verbs drop and forget."""

    @contextmanager
    def dropping(
        self, name: str, *, feed: ResolvedChangefeed | None, state_dir: Path, verb: Verb = "drop"
    ) -> Iterator[PlannedDrop]:
        """Yield what a drop removes; no run of the changefeed can begin to deliver during the block.

        With *feed*, what the changefeed created at its source is dropped, and then its data in the store; without
        *feed*, the source is not changed. *verb* is the verb for a job. Raises: ConfigError; errors of the source.
        """
        known, job = self.known(name), self.require_job(name, verb=verb, of_runs=True)
        with ExitStack() as open_:
            if job.is_run:
                open_.enter_context(stopped(self.store, name, state_dir))
            rangefeed = created = None
            if feed is not None:
                _require_source(feed, known)
                rangefeed = open_.enter_context(
                    closing(Parts(feed.for_attempt(feed_id=known.feed_id, epoch=0)).open_rangefeed())
                )
                with _remedied():
                    created = rangefeed.created()

            def carry_out() -> None:
                if rangefeed is not None:
                    # Runs on other hosts end instead of creating again what is dropped.
                    self.store.changefeeds.begin_attempt(name)
                    progress = self.store.progress.load(name)
                    with _remedied():
                        rangefeed.drop(None if progress is None else progress.token)
                self._forget(name, verb)

            yield PlannedDrop(
                known=known,
                job=job,
                dead_letters=len(self.store.dead_letters.of(name)),
                created=None if created is None else [each for each in created if each.feed_id == known.feed_id],
                carry_out=carry_out,
            )

    def _forget(self, name: str, verb: Verb) -> None:
        with self.store.transaction() as connection:
            require(found_job(connection, name, locked=True), verb)
            drop(connection, name)

    def identities(self) -> dict[str, str]:
        """Return the names of changefeeds by the identities that mark their objects at the sources."""
        return {
            feed_id: known.name
            for known in self.store.changefeeds.all()
            for feed_id in (
                [known.feed_id]
                if len(known.sources) == 1
                else [shard_feed_id(known.feed_id, index) for index in range(len(known.sources))]
            )
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphans:
    """What is at a source of changefeeds that no store knows, and which of it is `chosen` to be dropped."""

    found: Sequence[SourceObjects]
    chosen: Sequence[SourceObjects]
    drop: Callable[[SourceObjects], bool]
    """Drops one of them; returns False, and leaves it, when it is in use by now."""


@contextmanager
def orphans_at(
    uri: str, plugins: PluginHost, known: Callable[[], dict[str, str]], only: Collection[str]
) -> Iterator[Orphans]:
    """Yield the orphans at the source *uri*; those named by *only* are chosen, or else all that are surely ours.

    *known* returns the names of all changefeeds that are not orphans by identity. Raises: ConfigError, also when one of
    *only* is not an orphan; what the source raises.
    """
    source = Component(registration=plugins.rangefeed_for(uri))
    context = RangefeedContext(changefeed="", feed_id="", uri=uri, tables=(), options=source.parsed())
    part = source.load("rangefeed", Rangefeed)
    with closing(part(context)) as rangefeed:
        created = rangefeed.created()
        if created is None:
            raise ConfigError(f"{source.owner} cannot list what changefeeds have created; see its documentation")
        names = known()  # after the list: a changefeed is in its store before it creates anything
        found = [entry for entry in created if entry.feed_id not in names]
        for name in only:
            _require_orphan(name, created, names)

        def drop(entry: SourceObjects) -> bool:
            now = {each.name: each for each in rangefeed.created() or ()}.get(entry.name)
            if now is not None and now.active:
                return False
            with closing(part(replace(context, changefeed=entry.changefeed, feed_id=entry.feed_id))) as owner:
                owner.drop(None)
            return True

        chosen = [entry for entry in found if not entry.active and (entry.name in only if only else entry.sure)]
        yield Orphans(found=found, chosen=chosen, drop=drop)


def _require_source(feed: ResolvedChangefeed, known: ChangefeedRecord) -> None:
    """Return when *feed* names the source that the changefeed was started on. Raises: ConfigError."""
    if not same_sources(known.definition, feed.definition()):
        raise ConfigError(
            f"changefeed '{feed.name}' was started on the source {', '.join(known.sources)}, not {feed.shown_source};"
            " restore the source in its definition, or use --forget-only"
        )


@contextmanager
def _remedied() -> Iterator[None]:
    """Say in errors of the source what else can be done about one that cannot be reached."""
    try:
        yield
    except CdcError as error:
        remedy = "repeat the command, or use --forget-only if the source no longer exists"
        raise type(error)(f"{error}; {remedy}") from error


def _require_orphan(name: str, created: Sequence[SourceObjects], known: dict[str, str]) -> None:
    entry = next((entry for entry in created if entry.name == name), None)
    if entry is None:
        raise ConfigError(
            f"--only {name}: no changefeed has created this object at the source; remove --only to list what"
            " changefeeds have created"
        )
    owner = known.get(entry.feed_id)
    if owner is not None:
        raise ConfigError(f"--only {name}: this object belongs to changefeed '{owner}'; use `cdc drop FILE {owner}`")
