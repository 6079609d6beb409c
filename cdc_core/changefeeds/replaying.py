"""Sending dead letters to their sink again."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cdc_core.changefeeds.finding import Finder
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.delivery.dead_letters import BadRow
from cdc_core.delivery.replay import WaitingRow, waiting_rows
from cdc_core.engine.replay import replay
from cdc_core.private_files import make_state_directory
from cdc_core.store.progress import DeadLetter


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """The outcome of a replay: the rows that were sent, remain dead letters, were not found, or were discarded."""

    sent: int = 0
    kept: Sequence[BadRow] = ()
    missing: int = 0
    given_up: int = 0


class Replaying(Finder):
    """The verb replay."""

    def dead_letters(self, name: str, *, after: int = 0, limit: int | None = None) -> list[DeadLetter]:
        """Return the dead letters of the changefeed that were not replayed, in the order in which they were refused.

        Returns only those with a number above *after*, and at most *limit*.
        """
        return self.store.dead_letters.of(name, after=after, limit=limit)

    def replay(
        self, name: str, *, state_dir: Path, give_up: Collection[int] = (), feed: ResolvedChangefeed | None = None
    ) -> Replayed:
        """Send the dead letters of the changefeed to its sink again, in order per key; see `engine.replay`.

        Rows with the numbers *give_up* are discarded instead. *feed* is the changefeed, unless the store defines it. It
        must not be running, from *state_dir* or elsewhere; a job must be paused or have stopped. Raises: ConfigError;
        FencedError; errors of the sink. After an error, the dead letters remain.
        """
        job = self.find_job(name, verb="replay")
        if not give_up and not self.dead_letters(name, limit=1):
            return Replayed()
        if feed is None:
            feed = self.feed(name, self.known(name).definition)
        make_state_directory(state_dir)
        result, missing = replay(
            feed,
            store=self.store,
            state_dir=state_dir,
            find=partial(waiting_rows, feed),
            give_up=give_up,
            job_epoch=None if job is None else job.epoch,
        )
        return Replayed(sent=len(result.sent), kept=result.kept, missing=missing, given_up=len(set(give_up)))

    def dead_letter_rows(self, name: str, letter: DeadLetter) -> Sequence[WaitingRow]:
        """Return the row of *letter*; nothing if it is not in the dead-letter sink. Raises: as the sink's reader."""
        return waiting_rows(self.feed(name, self.known(name).definition), [letter])
