"""The event log: what happened to changefeeds and nodes, for some weeks."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from cdc_core.store.database import Aggregate, Database
from cdc_core.store.event_values import Event, event_of
from cdc_core.store.tables import EVENTS
from cdc_core.store.values import dump, moment_text

KEPT_FOR = timedelta(days=30)
MAX_EVENTS_OF_ONE = 1000
"""How many events of one changefeed are kept, and how many of nodes."""
_MESSAGE_LENGTH = 2000
_OVERLAP = 100
"""So many numbers a transaction may commit later than another one that began after it."""


class Events(Aggregate):
    """Events of all changefeeds and nodes, those of changefeeds that are forgotten too, until they are pruned."""

    def note(
        self, kind: str, name: str | None = None, *, node: str | None = None, message: str | None = None, **details: Any
    ) -> None:
        """Keep an event that is about nothing else in the store. *message* and *details* hold no secret."""
        with self._database.transaction() as connection:
            add_event(connection, kind, name, node=node, message=message, **details)

    def note_repeated(self, kind: str, name: str, *, cause: str, message: str, **details: Any) -> None:
        """Keep an event that may come again and again: if it is also the last one of the changefeed, count it there."""
        last = sa.select(EVENTS).where(EVENTS.c.name == name).order_by(EVENTS.c.id.desc()).limit(1)
        with self._database.transaction() as connection:
            row = connection.execute(last).one_or_none()
            known = None if row is None else event_of(row)
            if known is None or known.kind != kind or known.details.get("cause") != cause:
                add_event(connection, kind, name, message=message, cause=cause, **details)
                return
            event = _made(kind, name, node=None, message=message, details={"cause": cause, **details})
            values = {"message": event.message, "details": dump(event.details), "last_at": moment_text(event.at)}
            again = sa.update(EVENTS).where(EVENTS.c.id == known.number)
            connection.execute(again.values(times=known.times + 1, **values))
            connection.info[self._database.RECORDED].append(event)

    def read(
        self,
        name: str | None = None,
        *,
        since: datetime | None = None,
        after: int | None = None,
        until: int | None = None,
        kinds: Sequence[str] = (),
        limit: int | None = None,
    ) -> list[Event]:
        """Return the events, the first one first; with *limit*, only so many of the latest, or the next after *after*.

        Of the changefeed *name*, otherwise of all changefeeds and nodes; that happened *since* then; with numbers
        greater than *after* and not greater than *until*; of these *kinds*.
        """
        wanted, order = sa.select(EVENTS), EVENTS.c.id.desc()
        if after is not None:
            wanted, order = wanted.where(EVENTS.c.id > after), EVENTS.c.id.asc()
        if until is not None:
            wanted = wanted.where(EVENTS.c.id <= until)
        if name is not None:
            wanted = wanted.where(EVENTS.c.name == name)
        if since is not None:
            wanted = wanted.where(EVENTS.c.last_at >= moment_text(since))
        if kinds:
            wanted = wanted.where(EVENTS.c.kind.in_(kinds))
        with self._database.transaction(reading=True) as connection:
            rows = connection.execute(wanted.order_by(order).limit(limit)).all()
        return sorted(map(event_of, rows), key=lambda event: event.number)

    def last_number(self) -> int:
        """Return the greatest number of an event, 0 when there is none."""
        with self._database.transaction(reading=True) as connection:
            return connection.execute(sa.select(sa.func.max(EVENTS.c.id))).scalar_one() or 0

    def prune(self) -> None:
        """Forget events that are older than KEPT_FOR, and of each changefeed all but the latest MAX_EVENTS_OF_ONE.

        Nothing is done while another process does that.
        """
        place = sa.func.row_number().over(partition_by=EVENTS.c.name, order_by=EVENTS.c.id.desc()).label("place")
        placed = sa.select(EVENTS.c.id, place).subquery()
        surplus = sa.select(placed.c.id).where(placed.c.place > MAX_EVENTS_OF_ONE)
        old = EVENTS.c.last_at < moment_text(datetime.now(UTC) - KEPT_FOR)
        with self._database.transaction(reading=True) as connection:
            if not _prunes_alone(connection):
                return
            found = sa.select(EVENTS.c.id).where(old | EVENTS.c.id.in_(surplus)).order_by(EVENTS.c.id)
            numbers = list(connection.execute(found).scalars())
        if numbers:
            with self._database.transaction() as connection:
                if _prunes_alone(connection):
                    one = sa.delete(EVENTS).where(EVENTS.c.id == sa.bindparam("number"))
                    connection.execute(one, [{"number": number} for number in numbers])


def _prunes_alone(connection: sa.Connection) -> bool:
    """Return whether this transaction alone may prune: many may try at the same time."""
    if connection.dialect.name != "postgresql":
        return True
    return bool(connection.scalar(sa.text("SELECT pg_try_advisory_xact_lock(hashtext('cdc_prune_events'))")))


class EventTail:
    """The events of *store* that are new at each poll, of *name* and *kinds* as in `Events.read`.

    An event that was begun earlier may become visible later than others: none is left out, and none comes twice.
    """

    def __init__(self, store: Events, name: str | None = None, *, after: int = 0, kinds: Sequence[str] = ()) -> None:
        self._store = store
        self._name = name
        self._kinds = kinds
        self._after = self._newest = after
        self._seen: set[int] = set()

    def poll(self) -> list[Event]:
        """Return what is new since the last poll, by number. Raises: RetryableError."""
        begin = max(self._after, self._newest - _OVERLAP)
        found = self._store.read(self._name, after=begin, kinds=self._kinds)
        new = [event for event in found if event.number not in self._seen]
        self._seen = {event.number for event in found}
        self._newest = max([self._newest, *self._seen])
        return new


def add_event(
    connection: sa.Connection,
    kind: str,
    name: str | None = None,
    *,
    node: str | None = None,
    message: str | None = None,
    **details: Any,
) -> None:
    """Keep an event in the transaction of *connection*; it is logged when that is durable."""
    event = _made(kind, name, node=node, message=message, details=details)
    at = moment_text(event.at)
    connection.execute(
        sa.insert(EVENTS).values(
            at=at,
            kind=kind,
            name=name,
            node=node,
            message=event.message,
            details=dump(event.details),
            times=1,
            last_at=at,
        )
    )
    connection.info[Database.RECORDED].append(event)


def _made(kind: str, name: str | None, *, node: str | None, message: str | None, details: dict[str, Any]) -> Event:
    text = None if message is None else " ".join(message.split())[:_MESSAGE_LENGTH]
    known = {detail: value for detail, value in details.items() if value is not None}
    return Event(kind=kind, at=datetime.now(UTC), changefeed=name, node=node, message=text, details=known)
