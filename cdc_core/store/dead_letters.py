"""The index of dead letters: which rows were refused, and which of them were replayed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta

import sqlalchemy as sa

from cdc_core.store.database import Aggregate
from cdc_core.store.events import add_event
from cdc_core.store.marks import keep_delivered
from cdc_core.store.tables import DEAD_LETTERS
from cdc_core.store.values import DeadLetter, Delivered, dead_letter, dead_letter_values, moment_text, now_text

_SENT_KEPT = timedelta(days=1)
"""How long a dead letter is counted at least, even after it was replayed. The budget needs an hour."""


class DeadLetters(Aggregate):
    """The dead letters of each changefeed."""

    def of(self, name: str, *, after: int = 0, limit: int | None = None) -> list[DeadLetter]:
        """Return the dead letters that were not replayed, in the order in which they were refused.

        Those with numbers greater than *after*; with *limit*, only so many of the first.
        """
        waiting = sa.select(DEAD_LETTERS).where(DEAD_LETTERS.c.name == name, DEAD_LETTERS.c.replayed_at.is_(None))
        first = waiting.where(DEAD_LETTERS.c.id > after).order_by(DEAD_LETTERS.c.id).limit(limit)
        with self._database.transaction(reading=True) as connection:
            return [dead_letter(row) for row in connection.execute(first)]

    def waiting(self, name: str | None = None) -> dict[str, int]:
        """Return how many dead letters were not replayed, by changefeed, of those that have any; or only of *name*."""
        counted = sa.select(DEAD_LETTERS.c.name, sa.func.count()).where(DEAD_LETTERS.c.replayed_at.is_(None))
        if name is not None:
            counted = counted.where(DEAD_LETTERS.c.name == name)
        with self._database.transaction(reading=True) as connection:
            return {name: int(count) for name, count in connection.execute(counted.group_by(DEAD_LETTERS.c.name))}

    def blocked_keys(self, name: str) -> list[tuple[str, str]]:
        """Return table and key, each pair once, of the dead letters that were not replayed."""
        keys = sa.select(DEAD_LETTERS.c.table_name, DEAD_LETTERS.c.key).distinct()
        waiting = keys.where(DEAD_LETTERS.c.name == name, DEAD_LETTERS.c.replayed_at.is_(None))
        with self._database.transaction(reading=True) as connection:
            return [(row.table_name, row.key) for row in connection.execute(waiting)]

    def mark_replayed(
        self,
        name: str,
        epoch: int,
        numbers: Sequence[int],
        *,
        discarded: Collection[int] = (),
        delivered: Sequence[Delivered] | None = (),
    ) -> None:
        """Save that the dead letters with these numbers were replayed, and what that delivered, as `save` does.

        Those with numbers in *discarded* are no longer dead letters either.

        Replayed letters that are older than a day are deleted. Raises: FencedError.
        """
        mine = DEAD_LETTERS.c.name == name, DEAD_LETTERS.c.id == sa.bindparam("number")
        with self._database.fenced(name, epoch) as connection:
            keep_delivered(connection, name, delivered)
            if numbers or discarded:
                done = sa.update(DEAD_LETTERS).where(*mine).values(replayed_at=now_text())
                connection.execute(done, [{"number": number} for number in (*numbers, *discarded)])
                add_event(connection, "dead_letters_replayed", name, count=len(numbers), discarded=len(discarded))
            old = DEAD_LETTERS.c.put_aside_at < moment_text(datetime.now(UTC) - _SENT_KEPT)
            newest = sa.select(sa.func.max(DEAD_LETTERS.c.id)).scalar_subquery()  # SQLite would use its number again
            replayed = DEAD_LETTERS.c.name == name, DEAD_LETTERS.c.replayed_at.is_not(None), DEAD_LETTERS.c.id < newest
            connection.execute(sa.delete(DEAD_LETTERS).where(*replayed, old))


def keep_refused(connection: sa.Connection, name: str, letters: Sequence[DeadLetter], *, now: str) -> None:
    """Save *letters*, refused *now*, in the transaction of the caller."""
    if letters:
        connection.execute(sa.insert(DEAD_LETTERS), [dead_letter_values(name, letter, now) for letter in letters])


def count_refused(connection: sa.Connection, name: str, *, since: datetime) -> int:
    """Return how many rows were refused at *since* or later, including those that were replayed."""
    mine = DEAD_LETTERS.c.name == name, DEAD_LETTERS.c.put_aside_at >= moment_text(since)
    return int(connection.execute(sa.select(sa.func.count()).where(*mine)).scalar_one())
