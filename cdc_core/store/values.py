"""The values of the progress store, and their form in its tables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Any, TypeVar

from cdc_core.frontier import Frontier
from cdc_core.rangefeed_values import Token
from cdc_core.shards.marks import resolved_by_shard
from cdc_core.shards.token import ShardedToken
from cdc_core.telemetry.tally import Tally, gauges_of, measured_at
from cdc_core.timestamp import Timestamp

_STALE_S = 150.0
"""What is measured once a minute is older when it cannot be measured."""
Delivered = Mapping[str, Any]
"""An entry of `Flushed.delivered`: the sink's own."""
R = TypeVar("R")


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a changefeed has come: everything up to here is durable at its sink.

    `latest` is the greatest timestamp of any span mark so far. `counters` are totals over all runs. `emitted` is the
    last mark that this sink was told, as far as it was known when this was saved. The store sets `saved_at`. Before the
    first step only `token` has a meaning (see `Rangefeed.start`).
    """

    token: Token
    frontier: Frontier = field(default_factory=lambda: Frontier(()))
    latest: Timestamp = Timestamp()
    counters: Mapping[str, float] = field(default_factory=dict)
    saved_at: datetime | None = None
    emitted: Timestamp = Timestamp()

    @property
    def tally(self) -> Tally:
        """A copy of `counters`, by metric."""
        return Tally(self.counters)

    @property
    def resolved(self) -> Timestamp:
        """The greatest mark that consumers may be told while rows follow: see `ShardedToken.settled`."""
        found = ShardedToken.found_in(self.token)
        return self.frontier.high_water if found is None else found.settled

    def last_mark(self, *, scans_only: bool) -> Timestamp:
        """Return the mark that consumers may be told last. After scans alone no row follows: it stands for them all."""
        return self.frontier.high_water if scans_only else self.resolved


@dataclass(frozen=True, kw_only=True)
class Pause:
    """Why and since when a changefeed of `cdc run` is paused, or is to be. Holds no secret."""

    reason: str
    since: datetime


@dataclass(frozen=True, kw_only=True)
class SavedStatus:
    """The status that a run of a changefeed saved last, when by this host's clock, and of which attempt.

    Holds no secret.
    """

    values: Mapping[str, Any]
    written_at: datetime
    epoch: int | None = None


@dataclass(frozen=True, kw_only=True)
class ChangefeedRecord:
    """A changefeed as the store knows it. Holds no secret.

    `feed_id` is 12 hexadecimal digits, chosen once. `epoch` rises with each attempt and each takeover. `high_water` is
    zero before the first resolved step.
    """

    name: str
    feed_id: str
    epoch: int
    definition: Mapping[str, Any]
    high_water: Timestamp = Timestamp()
    saved_at: datetime | None = None
    paused: Pause | None = None
    pause_requested: Pause | None = None
    """A pause that has not taken effect yet."""
    created: datetime | None = None
    resolved: Sequence[Timestamp] = ()
    """What is resolved by source, in their order."""
    gauges: Mapping[str, float] = field(default_factory=dict)
    """What the source said of its history last, at `measured_at`."""
    measured_at: datetime | None = None

    @property
    def sources(self) -> Sequence[str]:
        return _sources(self.definition)

    def stale_age_s(self, now: datetime) -> float | None:
        """Return the age of `gauges` if that is to be shown: they could not be measured now."""
        age_s = 0.0 if self.measured_at is None else (now - self.measured_at).total_seconds()
        return age_s if self.gauges and age_s >= _STALE_S else None


@dataclass(frozen=True, kw_only=True)
class PendingRecord:
    """What is to be recorded with a mark: `previous` and `delivered` as in `cdc_core.Covered`."""

    mark: Timestamp
    previous: Timestamp | None
    delivered: tuple[Delivered, ...]


@dataclass(frozen=True, kw_only=True)
class DeadLetter:
    """A dead letter in the store's index; the row itself is in the dead-letter sink.

    `table` is the full name and `key` JSON text, as in the dead letter. `stage` is what refused the row: encode or
    sink, or blocked for a later row of such a key. The store sets `refused_at` and `number`.
    """

    table: str
    key: str
    updated: Timestamp
    stage: str
    error: str
    refused_at: datetime | None = None
    number: int = 0


@dataclass(frozen=True, kw_only=True)
class RescanRecord:
    """A rescan of `table`, its full name, or of all tables when that is None; with `where`, of what that selects.

    `new_slot`: the source drops the history that it keeps for the changefeed, and starts a new one. `began` is None
    until the rescan has begun; rows that were delivered before are at or below it, and later rows are above.
    """

    number: int
    table: str | None
    where: str | None
    new_slot: bool
    asked_at: datetime
    began: Timestamp | None


RECORD_COLUMNS = ("name", "feed_id", "epoch", "definition", "frontier", "counters", "saved_at", "created_at")
"""What `changefeed_record` needs of a row. Tokens and plans, which grow with the tables, are not among it."""


def changefeed_record(row: Any) -> ChangefeedRecord:
    """Return a row of the changefeeds' table as a value, without its pause."""
    definition, frontier = json.loads(row.definition), frontier_of(row.frontier)
    tally = Tally({} if row.counters is None else json.loads(row.counters))
    measured = measured_at(tally)
    return ChangefeedRecord(
        name=row.name,
        feed_id=row.feed_id,
        epoch=row.epoch,
        definition=definition,
        high_water=frontier.high_water,
        resolved=resolved_by_shard(frontier, len(_sources(definition))),
        saved_at=moment_of(row.saved_at),
        created=moment_of(row.created_at),
        gauges=gauges_of(tally),
        measured_at=None if measured is None else datetime.fromtimestamp(measured, UTC),
    )


def _sources(definition: Mapping[str, Any]) -> Sequence[str]:
    source = definition.get("source", "")
    return [source] if isinstance(source, str) else source


def dead_letter_values(name: str, letter: DeadLetter, now: str) -> dict[str, str]:
    """Return *letter* of changefeed *name*, refused *now*, as a row of its table."""
    return {
        "name": name,
        "table_name": letter.table,
        "key": letter.key,
        "updated": str(letter.updated),
        "stage": letter.stage,
        "error": letter.error,
        "put_aside_at": now,
    }


def dead_letter(row: Any) -> DeadLetter:
    """Return a row of the dead letters' table as a value."""
    return DeadLetter(
        table=row.table_name,
        key=row.key,
        updated=Timestamp.parse(row.updated),
        stage=row.stage,
        error=row.error,
        refused_at=moment_of(row.put_aside_at),
        number=row.id,
    )


def rescan_record(row: Any) -> RescanRecord:
    """Return a row of the rescans' table as a value."""
    return RescanRecord(
        number=row.id,
        table=row.table_name,
        where=row.predicate,
        new_slot=row.new_slot,
        asked_at=datetime.fromisoformat(row.asked_at),
        began=None if row.began is None else Timestamp.parse(row.began),
    )


def record_of(cls: type[R], row: Any, **given: Any) -> R:
    """Return *row* as a value of the dataclass *cls*: of each field that is not *given*, the column of its name."""
    names = [each.name for each in fields(cls) if each.name in row._fields and each.name not in given]  # type: ignore[arg-type]
    return cls(**{name: getattr(row, name) for name in names}, **given)


def frontier_of(text: str | None) -> Frontier:
    """Return the frontier that was saved as *text*."""
    return Frontier(()) if text is None else Frontier.from_json(json.loads(text))


def timestamp_of(text: str | None) -> Timestamp:
    """Return the timestamp that was saved as *text*, zero for None."""
    return Timestamp() if text is None else Timestamp.parse(text)


def dump(value: Any) -> str:
    """Return *value* as JSON, the same text for the same value."""
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


def now_text() -> str:
    """Return the current time as the store saves it."""
    return moment_text(datetime.now(UTC))


def moment_text(moment: datetime) -> str:
    """Return *moment* as the store saves it: the texts sort as the moments do."""
    return moment.isoformat(timespec="milliseconds")


def moment_of(text: str | None) -> datetime | None:
    """Return the moment that was saved as *text*."""
    return None if text is None else datetime.fromisoformat(text)
