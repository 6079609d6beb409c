"""What was delivered and has no record at the sink yet, in the transaction of the caller."""

from __future__ import annotations

import json
from collections.abc import Sequence

import sqlalchemy as sa

from cdc_core.store.tables import CHANGEFEEDS, UNRECORDED, update
from cdc_core.store.values import Delivered, dump
from cdc_core.timestamp import Timestamp

__all__ = ["keep_delivered", "turn_away"]


def keep_delivered(connection: sa.Connection, name: str, delivered: Sequence[Delivered] | None) -> None:
    """Save what is to be recorded, or mark the history as incomplete when *delivered* is None."""
    if delivered:
        connection.execute(sa.insert(UNRECORDED), [{"name": name, "entry": dump(entry)} for entry in delivered])
    elif delivered is None:
        _note_gap(connection, name)


def _note_gap(connection: sa.Connection, name: str) -> None:
    """Mark the history as incomplete: rows after the last mark were delivered without a record.

    `unrecorded` is the list of such marks: the record of the mark that follows one of them must not name it.
    """
    mine = CHANGEFEEDS.c.name == name
    row = connection.execute(sa.select(CHANGEFEEDS.c.recorded, CHANGEFEEDS.c.unrecorded).where(mine)).one()
    given = sa.select(UNRECORDED.c.mark).distinct().where(UNRECORDED.c.name == name, UNRECORDED.c.mark.is_not(None))
    marks = [row.recorded or str(Timestamp()), *connection.execute(given).scalars()]
    gap = str(max(map(Timestamp.parse, marks)))
    gaps = (row.unrecorded or "").split()
    if gap not in gaps:
        connection.execute(update(name).values(unrecorded=" ".join([*gaps, gap])))


def turn_away(connection: sa.Connection, name: str, *, counters: str | None) -> None:
    """Delete what was delivered to the previous sink: no record at another sink may mention it."""
    if counters is not None and json.loads(counters):  # some step is saved
        _note_gap(connection, name)
    connection.execute(update(name).values(emitted=None))
    connection.execute(sa.delete(UNRECORDED).where(UNRECORDED.c.name == name))
