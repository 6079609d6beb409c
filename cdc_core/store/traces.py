"""Which changes are to be traced on their way, and what became of those that were."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa

from cdc_core.store.database import Aggregate
from cdc_core.store.events import add_event
from cdc_core.store.tables import TRACES
from cdc_core.store.traced_change import TracedChange
from cdc_core.store.values import dump, record_of
from cdc_core.store.verbs import BusyError

MAX_TRACES = 10
"""How many traces of one changefeed may be active at the same time."""

_KEPT_S = 3600.0
_MISSED = "missed"
"""No id of a change: what an earlier version kept beside them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRecord:
    """One trace: what was asked for, as in `Traces.ask`, and what was found until now, by ids of changes."""

    number: int
    table: str | None
    key: str | None
    most: int
    expires: float
    """When it is over at the latest, or was, in seconds since 1970."""
    found: Mapping[str, TracedChange]

    @property
    def is_active(self) -> bool:
        """Whether more changes are looked for."""
        return self.expires > time.time() and _saved(self.found) < self.most


class Traces(Aggregate):
    """The traces of each changefeed. One that is over, by the clocks of the hosts, costs nothing.

    A trace is over when its time is, or when it has found enough. Anybody may end it before, and that removes its row.
    Otherwise the row stays until another trace is asked for, an hour or more after it was over: clocks differ.
    """

    def ask(self, name: str, *, table: str | None, key: str | None, most: int, seconds: float) -> int:
        """Have at most *most* changes traced for so many *seconds*, and return the number of the trace.

        Of the key *key*, as `key_json` gives it, in *table*, of any of that table's, or of any table's. Forgets traces
        that have been over for long. Raises: BusyError when there are too many.
        """
        values = {"name": name, "table_name": table, "key": key, "most": most, "found": "{}"}
        now = time.time()
        with self._database.transaction() as connection:
            connection.execute(sa.delete(TRACES).where(TRACES.c.expires < now - _KEPT_S))
            active = sa.select(sa.func.count()).where(TRACES.c.name == name, TRACES.c.expires > now)
            if connection.execute(active).scalar_one() >= MAX_TRACES:
                raise BusyError(f"changefeed '{name}' already has {MAX_TRACES} traces; wait until one ends, or end one")
            added = connection.execute(sa.insert(TRACES).values(**values, expires=now + seconds))
            add_event(connection, "trace_requested", name, table=table, one_key=key is not None, most=most)
            assert added.inserted_primary_key is not None
            return int(added.inserted_primary_key[0])

    def active(self) -> dict[str, str]:
        """Return by changefeed what is to be traced now, as JSON: a list of objects `number`, `table`, `key`, `most`.

        `most` is how many more changes are wanted.
        """
        asked = sa.select(TRACES).where(TRACES.c.expires > time.time()).order_by(TRACES.c.id)
        with self._database.transaction(reading=True) as connection:
            rows = connection.execute(asked).all()
        wanted: dict[str, list[dict[str, Any]]] = {}
        for row in rows:
            if (most := row.most - sum("saved" in change for change in _texts(row.found).values())) > 0:
                request = {"number": row.id, "table": row.table_name, "key": row.key, "most": most}
                wanted.setdefault(row.name, []).append(request)
        return {name: dump(requests) for name, requests in wanted.items()}

    def put(self, number: int, changes: Sequence[TracedChange]) -> None:
        """Save what became of *changes*; those beyond the most that were wanted are left out, first those whose
        progress is not saved.

        A state that is older than the saved one, of the same reading of a change, changes nothing. The trace is over
        when it has found enough; what follows of these changes is saved all the same. Does nothing when the trace was
        ended.
        """
        mine = sa.select(TRACES).where(TRACES.c.id == number).with_for_update()
        with self._database.transaction() as connection:
            row = connection.execute(mine).one_or_none()
            if row is None:
                return
            found = _changes(row.found)
            for change in changes:
                found[change.identity] = _newer(found.get(change.identity), replace(change, traces=()))
            best = sorted(found, key=lambda identity: "saved" not in found[identity].moments)[: row.most]
            kept = {identity: change for identity, change in found.items() if identity in best}
            texts = {identity: change.to_json() for identity, change in kept.items()}  # in the order of their arrival
            values: dict[str, Any] = {"found": json.dumps(texts, separators=(",", ":"))}
            if _saved(kept) >= row.most:
                values["expires"] = min(row.expires, time.time())
            connection.execute(sa.update(TRACES).where(TRACES.c.id == number).values(**values))

    def load(self, number: int) -> dict[str, TracedChange] | None:
        """Return what became of the changes that were traced, by their identities; None when the trace was ended."""
        with self._database.transaction(reading=True) as connection:
            text = connection.execute(sa.select(TRACES.c.found).where(TRACES.c.id == number)).scalar_one_or_none()
        return None if text is None else _changes(text)

    def of(self, name: str) -> list[TraceRecord]:
        """Return the traces of changefeed *name*, the first one first: those that are over for at most an hour too."""
        recent = (TRACES.c.name == name, TRACES.c.expires > time.time() - _KEPT_S)
        with self._database.transaction(reading=True) as connection:
            rows = connection.execute(sa.select(TRACES).where(*recent).order_by(TRACES.c.id)).all()
        return [
            record_of(TraceRecord, row, number=row.id, table=row.table_name, found=_changes(row.found)) for row in rows
        ]

    def end(self, number: int) -> None:
        """Forget the trace."""
        with self._database.transaction() as connection:
            connection.execute(sa.delete(TRACES).where(TRACES.c.id == number))


def _changes(found: str) -> dict[str, TracedChange]:
    return {identity: TracedChange.from_json(change) for identity, change in _texts(found).items()}


def _texts(found: str) -> dict[str, dict[str, Any]]:
    return {identity: change for identity, change in json.loads(found).items() if identity != _MISSED}


def _saved(found: Mapping[str, TracedChange]) -> int:
    return sum("saved" in change.moments for change in found.values())


def _newer(known: TracedChange | None, change: TracedChange) -> TracedChange:
    """Return the later of two states of a change. What is known of it only grows, until it is read again."""
    if known is None or known.moments.get("read") != change.moments.get("read"):
        return change
    return max(change, known, key=lambda state: len(state.to_json()))
