"""A day of what each changefeed had counted, minute by minute while it ran."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import sqlalchemy as sa

from cdc_core.store.database import Aggregate
from cdc_core.store.liveness import lag_s
from cdc_core.store.tables import CHANGEFEEDS, MOMENTS
from cdc_core.store.values import RECORD_COLUMNS, changefeed_record, dump
from cdc_core.telemetry import metrics
from cdc_core.telemetry.stages import STAGES
from cdc_core.telemetry.tally import RETAINED, Tally

MINUTE_S = 60
_MINUTES = 24 * 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """What a changefeed has counted at a moment, in seconds since 1970. `lag_s` and `retained_bytes` are as of then."""

    at: float
    rows: float
    stages: Mapping[str, float]
    latency_counts: Sequence[float]
    lag_s: float | None
    retained_bytes: float | None

    @classmethod
    def of(cls, tally: Tally, *, at: float, lag_s: float | None, retained_bytes: float | None) -> Moment:
        (latency,) = tally.samples(metrics.COMMIT_LATENCY)
        return cls(
            at=at,
            rows=tally.value(metrics.ROWS),
            stages={stage: tally.value(metrics.STAGE_SECONDS, stage) for stage in STAGES},
            latency_counts=tuple(latency.counts),
            lag_s=lag_s,
            retained_bytes=retained_bytes,
        )

    def to_json(self) -> list[float | None]:
        """Return what is kept for a day: all but `stages`."""
        return [self.at, self.rows, self.lag_s, self.retained_bytes, *self.latency_counts]

    @classmethod
    def from_json(cls, kept: Sequence[float]) -> Moment:
        at, rows, lag, retained, *counts = kept
        return cls(at=at, rows=rows, stages={}, latency_counts=counts, lag_s=lag, retained_bytes=retained)


class Moments(Aggregate):
    """The moments that each changefeed has kept."""

    def of(self, name: str) -> list[Moment]:
        """Return those of the last day, the oldest first, at most one a minute. In other minutes it did not run."""
        lately = MOMENTS.c.minute > _minute(time.time()) - _MINUTES
        mine = sa.select(MOMENTS.c.counted).where(MOMENTS.c.name == name, lately).order_by(MOMENTS.c.minute)
        with self._database.transaction(reading=True) as connection:
            found = connection.execute(mine).scalars().all()
        return [Moment.from_json(json.loads(text)) for text in found]


def keep_moment(connection: sa.Connection, name: str, *, state: str) -> None:
    """Keep what changefeed *name* has counted by now, in place of what it kept within this minute or a day ago."""
    now = datetime.now(UTC)
    columns = [CHANGEFEEDS.c[each] for each in RECORD_COLUMNS]
    row = connection.execute(sa.select(*columns).where(CHANGEFEEDS.c.name == name)).one()
    known, at = changefeed_record(row), now.timestamp()
    moment = Moment.of(
        Tally({} if row.counters is None else json.loads(row.counters)),
        at=round(at, 3),
        lag_s=lag_s(known, state, now=now),
        retained_bytes=known.gauges.get(RETAINED),
    )
    minute = _minute(at)
    gone = (MOMENTS.c.minute == minute) | (MOMENTS.c.minute <= minute - _MINUTES)
    connection.execute(sa.delete(MOMENTS).where(MOMENTS.c.name == name, gone))
    connection.execute(sa.insert(MOMENTS).values(name=name, minute=minute, counted=dump(moment.to_json())))


def _minute(at: float) -> int:
    return int(at // MINUTE_S)
