"""Moving a changefeed that is stopped to another position at its source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from cdc_core.changefeeds.finding import Finder, stopped
from cdc_core.config.identity import require_same_source
from cdc_core.config.parts import Parts
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.errors import ConfigError
from cdc_core.rangefeed_values import Move, Token
from cdc_core.shards.token import ShardedToken
from cdc_core.store.job_rows import found_job
from cdc_core.store.progress import ChangefeedRecord, Progress
from cdc_core.store.saved_progress import save_move
from cdc_core.store.verbs import require
from cdc_core.timestamp import Timestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedMove:
    """A move that the source allows. `saved` and `epoch` are those of the changefeed when it was asked."""

    name: str
    move: Move
    saved: Token
    epoch: int

    @property
    def effect(self) -> str:
        """What becomes of the changes between the two positions."""
        if not self.moves:
            return "nothing is skipped or repeated"
        if self.move.forward and self.move.back:
            return (
                "changes in between are NOT delivered by sources that move forward, and are delivered again by"
                " those that move back"
            )
        return "changes in between are delivered again" if self.move.back else "changes in between are NOT delivered"

    @property
    def moves(self) -> bool:
        """Whether the new position is another one."""
        return self.move.token != self.saved


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """How far one source is read: its token, None before it has begun; what is resolved, zero until the first mark."""

    source: str
    resolved: Timestamp
    token: Token | None


class Moving(Finder):
    """The verb move, which is planned first, so that users see its effect, and then carried out."""

    def positions(self, name: str) -> list[Position]:
        """Return how far each source of the changefeed has been read, in order; empty before it has begun."""
        known, progress = self.known(name), self.store.progress.load(name)
        if progress is None:
            return []
        sharded = ShardedToken.found_in(progress.token)
        tokens = [progress.token] if sharded is None else [state.token for state in sharded.shards]
        return [
            Position(source=source, resolved=resolved, token=token)
            for source, resolved, token in zip(known.sources, known.resolved, tokens, strict=False)
        ]

    def plan_move(self, feed: ResolvedChangefeed, to: str | Token) -> PlannedMove:
        """Return the planned move of *feed*, which must not be running, to *to*: see `Rangefeed.move`.

        Changes nothing. Raises: ConfigError; what the source raises.
        """
        name, known = feed.name, self.known(feed.name)
        changes_tables = feed.rangefeed.registration.changes_tables
        require_same_source(name, known.definition, feed.definition(), changes_tables=changes_tables)
        progress = self.store.progress.load(name)
        if progress is None:
            raise ConfigError(
                f"changefeed '{name}' has not started yet; set the option cursor to where it should start"
            )
        if feed.options.initial_scan == "only":
            raise ConfigError(f"changefeed '{name}' only scans its tables, so it has no position to move")
        if self.store.rescans.waiting(name, new_slot=True):
            raise ConfigError(
                f"changefeed '{name}' has a pending rescan with a new slot; start it once before you move it"
            )
        feed = replace(feed.for_attempt(feed_id=known.feed_id, epoch=known.epoch), saved=progress.token)
        with closing(Parts(feed).open_rangefeed()) as rangefeed:
            try:
                move = rangefeed.move(progress.token, to)
            except ConfigError as error:
                raise ConfigError(f"changefeed '{name}' cannot be moved: {error}") from error
        if move.back:
            _require_before_end(feed, progress, move)
        return PlannedMove(name=name, move=move, saved=progress.token, epoch=known.epoch)

    @contextmanager
    def moving(self, feed: ResolvedChangefeed, to: str | Token, *, state_dir: Path) -> Iterator[PlannedMove]:
        """Yield what `plan_move` returns, and let no run begin from *state_dir* during the block."""
        with stopped(self.store, feed.name, state_dir):
            yield self.plan_move(feed, to)

    def move(self, planned: PlannedMove, why: str | None = None) -> None:
        """Let the next run start from the new position. The event log records this, with *why*. Resolved marks stay.

        Raises: FencedError if the changefeed has run, or was moved, since `plan_move`.
        """
        if not planned.moves:
            return
        with self.store.transaction() as connection:
            require(found_job(connection, planned.name, locked=True), "move")
            save_move(connection, planned.name, planned.epoch, planned.move, saved=planned.saved, why=why)


def _require_before_end(feed: ResolvedChangefeed, progress: Progress, move: Move) -> None:
    """Return if sources that *move* concerns were not read up to end_time. Raises: ConfigError.

    Changes that come again are later than everything that was read, so all of them would be left out.
    """
    end = feed.options.end
    if end is None:
        return
    before, after = ShardedToken.found_in(progress.token), ShardedToken.found_in(move.token)
    read = [progress.latest]
    if before is not None and after is not None:
        pairs = zip(before.shards, after.shards, strict=True)
        read = [state.after(progress.latest) for state, moved in pairs if moved.token != state.token]
    if read and max(read) >= end:
        raise ConfigError(
            f"changefeed '{feed.name}' cannot be moved back: it has already read up to end_time, {end}; set a later"
            f" end_time first"
        )


def written_target(text: str) -> str:
    """Return what a person wrote as `Rangefeed.move` takes it: a time in the text form of a timestamp."""
    try:
        return str(Timestamp.read(text))
    except ValueError:
        return text


def target_of(known: ChangefeedRecord, targets: Mapping[int, str | Token]) -> str | Token:
    """Return as one target where the sources with these indexes are to be moved."""
    count = len(known.sources)
    if count == 1:
        return targets[0]
    return ShardedToken.targets([targets.get(index) for index in range(count)])
