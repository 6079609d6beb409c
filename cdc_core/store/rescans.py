"""Which tables are to be read again, or read or not when they join a changefeed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from cdc_core.config.listed_tables import namesakes, watches
from cdc_core.schema import TableName
from cdc_core.sql_names import listed
from cdc_core.store.database import Aggregate
from cdc_core.store.events import add_event
from cdc_core.store.tables import CHANGEFEEDS, RESCANS
from cdc_core.store.values import RescanRecord, dump, frontier_of, now_text, rescan_record
from cdc_core.timestamp import Timestamp


class Rescans(Aggregate):
    """The rescans of each changefeed: those that were asked for, and those that have begun.

    A rescan has begun when a saved token holds it. It is complete when the high-water mark has passed `began`.
    """

    def of(self, name: str) -> list[RescanRecord]:
        """Return what is known of rescans, in the order in which they were asked for."""
        return self._rescans(RESCANS.c.name == name)

    def all(self) -> dict[str, list[RescanRecord]]:
        """Return what `of` returns, by changefeed, of those that have any."""
        found: dict[str, list[RescanRecord]] = {}
        with self._database.transaction(reading=True) as connection:
            for row in connection.execute(sa.select(RESCANS).order_by(RESCANS.c.id)):
                found.setdefault(row.name, []).append(rescan_record(row))
        return found

    def waiting(self, name: str, *, new_slot: bool) -> list[RescanRecord]:
        """Return the rescans that have not begun, in the order in which they were asked for."""
        return self._rescans(RESCANS.c.name == name, RESCANS.c.began.is_(None), RESCANS.c.new_slot.is_(new_slot))

    def all_waiting(self) -> dict[str, str]:
        """Return by changefeed what identifies its rescans that have not begun, except those for a new slot."""
        waiting = sa.select(RESCANS.c.name, RESCANS.c.id, RESCANS.c.asked_at).order_by(RESCANS.c.id)
        found: dict[str, str] = {}
        with self._database.transaction(reading=True) as connection:
            for name, number, asked_at in connection.execute(
                waiting.where(RESCANS.c.began.is_(None), RESCANS.c.new_slot.is_(False))
            ):
                found[name] = f"{found.get(name, '')}{number} {asked_at}\n"
        return found

    def begin(self, name: str, epoch: int, numbers: Sequence[int], began: Timestamp) -> None:
        """Save that the rescans with these numbers have begun: their rows are later than *began*. Raises: FencedError.

        Call it when the token that holds them is saved: before that, a crash must leave them waiting.
        """
        with self._database.fenced(name, epoch) as connection:
            connection.execute(sa.update(RESCANS).where(RESCANS.c.id.in_(numbers)).values(began=str(began)))

    def choose_initial_scans(self, name: str, epoch: int, chosen: Mapping[str, bool]) -> None:
        """Save, by table as written, whether it is scanned when it joins the changefeed: see `initial_scans`.

        Raises: FencedError.
        """
        self._database.write(name, epoch, initial_scans=dump(chosen) if chosen else None)

    def initial_scans(self, name: str) -> Mapping[str, bool]:
        """Return what was chosen for tables that have not joined the changefeed yet."""
        with self._database.transaction(reading=True) as connection:
            text = _column(connection, CHANGEFEEDS.c.initial_scans, name)
        return {} if text is None else dict(json.loads(text))

    def _rescans(self, *conditions: sa.ColumnElement[bool]) -> list[RescanRecord]:
        with self._database.transaction(reading=True) as connection:
            rows = connection.execute(sa.select(RESCANS).where(*conditions).order_by(RESCANS.c.id))
            return [rescan_record(row) for row in rows]


def ask_rescan(connection: sa.Connection, name: str, *, table: str | None, where: str | None, new_slot: bool) -> None:
    """Save that *table*, or all tables when it is None, is to be read again. Forgets rescans that are complete."""
    high_water = frontier_of(_column(connection, CHANGEFEEDS.c.frontier, name)).high_water
    begun = sa.select(RESCANS).where(RESCANS.c.name == name, RESCANS.c.began.is_not(None))
    complete = [row.id for row in connection.execute(begun) if Timestamp.parse(row.began) < high_water]
    connection.execute(sa.delete(RESCANS).where(RESCANS.c.id.in_(complete)))
    values = {"table_name": table, "predicate": where, "new_slot": new_slot, "asked_at": now_text()}
    connection.execute(sa.insert(RESCANS).values(name=name, **values))
    add_event(connection, "rescan_requested", name, table=table, where=where, new_slot=new_slot)


def rescan_returning(
    connection: sa.Connection, row: Any, before: Sequence[str], definition: Mapping[str, Any], scans: Mapping[str, bool]
) -> None:
    """Save that tables which were dropped, and are added again before a run has left them, are to be read again.

    The changefeed in *row* had *before* as its tables, and gets *definition*. The source does not notice that they were
    dropped: it scans only tables that join. *scans* is as in `choose_initial_scans`.
    """
    options = (definition.get("written") or {}).get("options", {})
    is_wanted = all(str(text).lower() != "no" for option, text in options.items() if option.lower() == "initial_scan")
    now = definition["tables"]
    changed = [entry.strip().removeprefix("!") for entry in {*before} ^ {*now}]
    for table in {span.table: None for span, _ in frontier_of(row.frontier)} if changed else ():
        found = TableName.parse(table)
        name = listed((found.schema, found.table))
        others = namesakes([*before, *now], name)
        if not watches(changed, name) or watches(before, name, but=others) or not watches(now, name):
            continue
        chosen = [scan for entry, scan in scans.items() if watches([entry], name)]
        if (chosen or [is_wanted])[-1]:
            ask_rescan(connection, row.name, table=table, where=None, new_slot=False)


def _column(connection: sa.Connection, column: sa.Column[str], name: str) -> str | None:
    return connection.execute(sa.select(column).where(CHANGEFEEDS.c.name == name)).scalar_one_or_none()
