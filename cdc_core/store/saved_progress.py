"""How far each changefeed has come."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from cdc_core.rangefeed_values import Move, Token
from cdc_core.store.database import Aggregate, overtaken
from cdc_core.store.dead_letters import count_refused, keep_refused
from cdc_core.store.events import add_event
from cdc_core.store.marks import keep_delivered
from cdc_core.store.planned_steps import MOVED
from cdc_core.store.tables import CHANGEFEEDS, update
from cdc_core.store.values import DeadLetter, Delivered, Progress, dump, frontier_of, moment_of, now_text, timestamp_of
from cdc_core.telemetry.tally import Tally, keep_gauges, measure_once

_COLUMNS = ("name", "token", "frontier", "latest", "counters", "saved_at", "emitted")
_SELECT = sa.select(*(CHANGEFEEDS.c[name] for name in _COLUMNS))
"""Without the plan, which has two more tokens."""


class SavedProgress(Aggregate):
    """The progress that each changefeed saved last."""

    def load(self, name: str) -> Progress | None:
        """Return what was saved last, or None when nothing was."""
        with self._database.transaction(reading=True) as connection:
            row = connection.execute(_SELECT.where(CHANGEFEEDS.c.name == name)).one_or_none()
        return None if row is None else _progress(row)

    def load_all(self) -> dict[str, Progress]:
        """Return what each changefeed saved last, by name, of those that have saved anything."""
        with self._database.transaction(reading=True) as connection:
            rows = connection.execute(_SELECT).all()
        return {row.name: progress for row in rows if (progress := _progress(row)) is not None}

    def save(
        self,
        name: str,
        epoch: int,
        progress: Progress,
        *,
        delivered: Sequence[Delivered] | None = (),
        dead_letters: Sequence[DeadLetter] = (),
        refused_since: datetime | None = None,
    ) -> int:
        """Save *progress*, together with what its last step delivered and its dead letters.

        Return how many rows were refused at *refused_since* or later, with these, including those that were replayed; 0
        without it. *delivered* is None for a step whose rows no record will mention. Raises: FencedError, and changes
        nothing, unless *epoch* is the newest.
        """
        now = now_text()
        values = {
            "token": dump(progress.token),
            "frontier": dump(progress.frontier.to_json()),
            "latest": str(progress.latest),
            "counters": dump(progress.counters),
            "saved_at": now,
        }
        if progress.emitted:
            values["emitted"] = str(progress.emitted)
        with self._database.fenced(name, epoch, **values) as connection:
            keep_delivered(connection, name, delivered)
            keep_refused(connection, name, dead_letters, now=now)
            return 0 if refused_since is None else count_refused(connection, name, since=refused_since)

    def save_counters(self, name: str, epoch: int, counters: Mapping[str, float]) -> None:
        """Save *counters* alone. Raises: FencedError."""
        self._database.write(name, epoch, counters=dump(counters))

    def claim_gauges(self, name: str, epoch: int, *, every_s: float) -> bool:
        """Return whether the caller is to measure the source's history now: nobody has begun to within *every_s*.

        Raises: FencedError.
        """
        with self._counted(name, epoch) as tally:
            return measure_once(tally, at=time.time(), every_s=every_s)

    def save_gauges(self, name: str, epoch: int, gauges: Mapping[str, float]) -> None:
        """Save what the source says of its history now. Raises: FencedError."""
        with self._counted(name, epoch) as tally:
            keep_gauges(tally, gauges, at=time.time())

    def places(self, name: str) -> dict[str, str]:
        """Return what each place at the destination was when that was saved last, by its name in messages."""
        with self._database.transaction(reading=True) as connection:
            saved = connection.execute(sa.select(CHANGEFEEDS.c.places).where(CHANGEFEEDS.c.name == name)).scalar()
        found: dict[str, str] = {} if saved is None else json.loads(saved)
        return found

    def save_places(self, name: str, epoch: int, places: Mapping[str, str]) -> None:
        """Save what each place at the destination is, for `places`. Raises: FencedError."""
        self._database.write(name, epoch, places=dump(places))

    def save_intent(self, name: str, epoch: int, token: Token) -> None:
        """Save *token* alone. Raises: FencedError, as `save` does."""
        self._database.write(name, epoch, token=dump(token))

    @contextmanager
    def _counted(self, name: str, epoch: int) -> Iterator[Tally]:
        """Yield the counters, and save what the block has made of them, while nobody else can."""
        with self._database.fenced(name, epoch) as connection:
            mine = sa.select(CHANGEFEEDS.c.counters).where(CHANGEFEEDS.c.name == name)
            saved = connection.execute(mine).scalar_one()
            tally = Tally({} if saved is None else json.loads(saved))
            yield tally
            connection.execute(update(name).values(counters=dump(tally.saved())))


def _progress(row: Any) -> Progress | None:
    if row.token is None:
        return None
    return Progress(
        token=json.loads(row.token),
        frontier=frontier_of(row.frontier),
        latest=timestamp_of(row.latest),
        counters={} if row.counters is None else json.loads(row.counters),
        saved_at=moment_of(row.saved_at),
        emitted=timestamp_of(row.emitted),
    )


def save_move(
    connection: sa.Connection, name: str, epoch: int, move: Move, *, saved: Token, why: str | None = None
) -> None:
    """Save the token of *move* in place of *saved*, as an attempt of its own; the event log says so, and *why*.

    Runs that have begun are fenced. What is resolved stays so. Raises: FencedError, and changes nothing, unless *epoch*
    is the newest and *saved* what was saved last: nothing has run since they were read.
    """
    mine = update(name).where(CHANGEFEEDS.c.epoch == epoch, CHANGEFEEDS.c.token == dump(saved))
    if not connection.execute(mine.values(token=dump(move.token), plan=dump(MOVED), epoch=epoch + 1)).rowcount:
        raise overtaken(name, epoch)
    told: dict[str, Any] = {"from": move.before, "to": move.after, "forward": move.forward, "back": move.back}
    add_event(connection, "changefeed_moved", name, message=why, **told)
