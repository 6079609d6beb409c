"""What was delivered and has no record at the sink yet."""

from __future__ import annotations

import json
from collections.abc import Sequence

import sqlalchemy as sa

from cdc_core.store.database import Aggregate
from cdc_core.store.tables import CHANGEFEEDS, GAPS, UNRECORDED, update
from cdc_core.store.topics import topics_of
from cdc_core.store.values import Delivered, PendingRecord, dump
from cdc_core.telemetry import metrics
from cdc_core.telemetry.tally import Tally
from cdc_core.timestamp import Timestamp


class Marks(Aggregate):
    """The marks of each changefeed, and what is to be recorded with each of them."""

    def prepare(
        self, name: str, epoch: int, mark: Timestamp, *, records: bool, topics: bool = False
    ) -> tuple[list[PendingRecord], Sequence[str]]:
        """Return what is still to be recorded before *mark* is emitted, by mark, and with *topics* those of the rows.

        With *records*, every delivered entry that has no mark yet gets *mark*, and keeps it, in later attempts too,
        until `save_emitted`. The last one returned is *mark*, even when nothing was delivered; none is returned when
        *mark* is recorded already. Raises: FencedError.
        """
        begun = self._database.fenced(name, epoch) if records else self._database.fenced_reading(name, epoch)
        with begun as connection:
            waiting = _assigned(connection, name, mark) if records else []
            return waiting, topics_of(connection, name) if topics else ()

    def save_emitted(self, name: str, epoch: int, mark: Timestamp, *, recorded: bool = False) -> None:
        """Save *mark* as the last one that was emitted to this sink.

        When it is *recorded* too, delete the entries that have a mark: consumers can learn of all up to *mark*. Raises:
        FencedError.
        """
        values = {"emitted": str(mark)} | ({"recorded": str(mark)} if recorded else {})
        with self._database.fenced(name, epoch, **values) as connection:
            if recorded:
                given = UNRECORDED.c.name == name, UNRECORDED.c.mark.is_not(None)
                connection.execute(sa.delete(GAPS).where(GAPS.c.name == name))
                connection.execute(sa.delete(UNRECORDED).where(*given))


def keep_delivered(connection: sa.Connection, name: str, delivered: Sequence[Delivered] | None) -> None:
    """Save what is to be recorded, or mark the history as incomplete when *delivered* is None."""
    if delivered:
        connection.execute(sa.insert(UNRECORDED), [{"name": name, "entry": dump(entry)} for entry in delivered])
    elif delivered is None:
        _note_gap(connection, name)


def _assigned(connection: sa.Connection, name: str, mark: Timestamp) -> list[PendingRecord]:
    """Give *mark* to the entries without one, and return what is to be recorded: see `prepare`."""
    mine, previous = UNRECORDED.c.name == name, _recorded(connection, name)
    if previous is not None and mark <= previous:
        return []
    connection.execute(sa.update(UNRECORDED).where(mine, UNRECORDED.c.mark.is_(None)).values(mark=str(mark)))
    rows = connection.execute(sa.select(UNRECORDED).where(mine).order_by(UNRECORDED.c.id)).all()
    gaps = _gaps(connection, name)
    found: dict[Timestamp, list[Delivered]] = {mark: []}
    for entry in rows:
        found.setdefault(Timestamp.parse(entry.mark), []).append(json.loads(entry.entry))
    waiting = []
    for each, delivered in sorted(found.items()):
        known = None if previous is None or any(previous <= gap < each for gap in gaps) else previous
        waiting.append(PendingRecord(mark=each, previous=known, delivered=tuple(delivered)))
        previous = each
    return waiting


def _note_gap(connection: sa.Connection, name: str) -> None:
    """Mark the history as incomplete: rows after the last mark were delivered without a record."""
    given = sa.select(UNRECORDED.c.mark).distinct().where(UNRECORDED.c.name == name, UNRECORDED.c.mark.is_not(None))
    marks = [Timestamp.parse(mark) for mark in connection.execute(given).scalars()]
    gap = max([_recorded(connection, name) or Timestamp(), *marks])
    if gap not in _gaps(connection, name):
        connection.execute(sa.insert(GAPS).values(name=name, mark=str(gap)))


def _recorded(connection: sa.Connection, name: str) -> Timestamp | None:
    text = connection.execute(sa.select(CHANGEFEEDS.c.recorded).where(CHANGEFEEDS.c.name == name)).scalar_one()
    return None if text is None else Timestamp.parse(text)


def _gaps(connection: sa.Connection, name: str) -> list[Timestamp]:
    found = connection.execute(sa.select(GAPS.c.mark).where(GAPS.c.name == name)).scalars()
    return [Timestamp.parse(mark) for mark in found]


def turn_away(connection: sa.Connection, name: str, *, counters: str | None) -> None:
    """Delete what was delivered to the previous sink: no record at another sink may mention it."""
    if counters is not None and Tally(json.loads(counters)).value(metrics.STEPS):
        _note_gap(connection, name)
    connection.execute(update(name).values(emitted=None, places=None))
    connection.execute(sa.delete(UNRECORDED).where(UNRECORDED.c.name == name))
