"""Moving a changefeed that is stopped to another position at its source."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace

from cdc_core.config.identity import require_same_source
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.errors import ConfigError
from cdc_core.move import Move, Token
from cdc_core.shards.token import ShardedToken
from cdc_core.store.progress import ChangefeedRecord, Progress, ProgressStore
from cdc_core.timestamp import Timestamp

__all__ = ["PlannedMove", "plan_move", "target_of", "written_target"]


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
            return "nothing is left out, and nothing comes again"
        if self.move.forward and self.move.back:
            return (
                "changes in between are NOT delivered from sources that go forward, and are delivered again from those"
                " that go back"
            )
        return "changes in between are delivered again" if self.move.back else "changes in between are NOT delivered"

    @property
    def moves(self) -> bool:
        """Whether the new position is another one."""
        return self.move.token != self.saved

    def carry_out(self, store: ProgressStore, *, why: str | None = None) -> None:
        """Have the next run start from the new position. Raises: FencedError when a run has begun since `plan_move`."""
        if self.moves:
            store.progress.move(self.name, self.epoch, self.move, saved=self.saved, why=why)


def plan_move(store: ProgressStore, feed: ResolvedChangefeed, known: ChangefeedRecord, to: str | Token) -> PlannedMove:
    """Return the move of *feed* to *to*, see `Rangefeed.move`; *known* was read before. It must not run.

    Changes nothing. Raises: ConfigError; what the source raises.
    """
    changes_tables = feed.rangefeed.registration.changes_tables
    require_same_source(feed.name, known.definition, feed.definition(), changes_tables=changes_tables)
    progress = store.progress.load(feed.name)
    if progress is None:
        raise ConfigError(f"changefeed '{feed.name}' has not begun yet; the option cursor says where it begins")
    if feed.options.initial_scan == "only":
        raise ConfigError(f"changefeed '{feed.name}' only scans, and follows no history that has positions")
    if store.rescans.waiting(feed.name, new_slot=True):
        raise ConfigError(f"changefeed '{feed.name}' begins a new history with its next run, which has one beginning")
    feed = replace(feed.for_attempt(feed_id=known.feed_id, epoch=known.epoch), saved=progress.token)
    with closing(feed.open_rangefeed()) as rangefeed:
        try:
            move = rangefeed.move(progress.token, to)
        except ConfigError as error:
            raise ConfigError(f"changefeed '{feed.name}' cannot be moved: {error}") from error
    if move.back:
        _require_before_end(feed, progress, move)
    return PlannedMove(name=feed.name, move=move, saved=progress.token, epoch=known.epoch)


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
            f"changefeed '{feed.name}' cannot be moved back: it was read up to end_time, {end}, and what came again"
            " would be later; set a later end_time first"
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
