"""Following changes of a running changefeed, from their commit to the sink's acknowledgement."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self

from cdc_core.errors import ConfigError
from cdc_core.options import did_you_mean
from cdc_core.schema import TableName
from cdc_core.sql_names import meant_tables
from cdc_core.store.progress import ChangefeedRecord, ProgressStore
from cdc_core.store.reports import report
from cdc_core.telemetry.status import behind_text, shown_moment
from cdc_core.timestamp import Timestamp

__all__ = [
    "LONGEST_S",
    "MOST_CHANGES",
    "STAGES",
    "Trace",
    "TracedChange",
    "standing_text",
    "traced_table",
]

MOST_CHANGES = 100
LONGEST_S = 3600.0
STAGES = ("planned", "read", "encoded", "emitted", "acknowledged", "saved", "resolved")
"""What a change passes, in this order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedChange:
    """One change on its way. Holds its key and no other value of the row.

    `moments` has when it reached each stage, by the clock of the process that did that; a stage that it has not reached
    is missing. `position` is that of the commit at the source, and `place` where at the destination the change is, as
    far as source and sink know these.
    """

    table: str
    key: str
    op: str
    updated: Timestamp
    position: str | None
    step: int
    moments: Mapping[str, datetime]
    place: Mapping[str, Any]
    dead_letter: str | None
    """What refused the change, if it is among the dead letters."""
    left_out: bool
    """Whether the query, or the section of the table, does not deliver it."""
    complete: bool
    """Whether no stage will follow: `resolved`, or `saved` where there are no resolved marks."""

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        moments = {stage: datetime.fromtimestamp(value[stage], UTC) for stage in STAGES if stage in value}
        return cls(
            **{name: value[name] for name in ("table", "key", "op", "position", "step")},
            updated=Timestamp.parse(value["updated"]),
            moments=moments,
            place=value.get("place", {}),
            dead_letter=value.get("dead_letter"),
            left_out=value.get("left_out", False),
            complete="resolved" in moments or ("saved" in moments and not value["marks"]),
        )

    def after_s(self, stage: str) -> float:
        """Return how long after its commit the change reached *stage*; a scanned row's commit is that of its scan."""
        return self.moments[stage].timestamp() - self.updated.wall / 1e9

    def to_json(self) -> dict[str, Any]:
        """Return the change as JSON values; docs/trace.md explains each."""
        return {
            "table": self.table,
            "key": json.loads(self.key),
            "op": self.op,
            "updated": str(self.updated),
            "committed_at": self.updated.to_datetime().isoformat(timespec="milliseconds"),
            "position": self.position,
            "step": self.step,
            "stages": {stage: round(self.after_s(stage), 6) for stage in self.moments},
            "place": dict(self.place),
            "dead_letter": self.dead_letter,
            "left_out": self.left_out,
            "complete": self.complete,
        }


class Trace:
    """A trace of the changefeed *known*, while this is entered: at most *most* changes within *seconds*.

    Of the key *key*, as `checked_key` returns it, in *table*; without a key, of the next changes of *table*, or of any.
    Whatever runs the changefeed takes it up within about a second. Raises: ConfigError for an unknown table, and when
    there are too many traces already.
    """

    def __init__(
        self,
        store: ProgressStore,
        known: ChangefeedRecord,
        *,
        table: str | None,
        key: str | None,
        most: int,
        seconds: float,
    ) -> None:
        if key is not None and table is None:
            raise ConfigError("--key is a key of one table; name it with --table")
        self._store = store
        self._name = known.name
        self._most = most
        self._asked = {"table": traced_table(store, known.name, table), "key": key, "most": most, "seconds": seconds}
        self._until = 0.0
        self._seen: dict[str, TracedChange] = {}
        self.number = 0

    def __enter__(self) -> Self:
        self.number = self._store.ask_trace(self._name, **self._asked)  # type: ignore[arg-type]
        self._until = time.monotonic() + float(self._asked["seconds"])  # type: ignore[arg-type]
        return self

    def __exit__(self, *_: object) -> None:
        self._store.end_trace(self.number)

    @property
    def over(self) -> bool:
        """Whether there is nothing more to wait for: the time is over, or all that was wanted is complete."""
        complete = sum(change.complete for change in self._seen.values())
        return complete >= self._most or time.monotonic() >= self._until

    def look(self) -> list[TracedChange]:
        """Return the changes that are new, or have got further, since the last look."""
        found = self._store.traced(self.number)
        if found is None:
            return []
        changes = {identity: TracedChange.from_json(value) for identity, value in found.items()}
        new = [change for identity, change in changes.items() if self._seen.get(identity) != change]
        self._seen = changes
        return new

    @property
    def missed(self) -> int:
        """How many reports of changes the store did not take in time. What they said may be missing."""
        return self._store.missed_reports(self.number)

    @property
    def changes(self) -> list[TracedChange]:
        """All that was found until the last look."""
        return list(self._seen.values())


def standing_text(store: ProgressStore, known: ChangefeedRecord) -> str:
    """Return what the changefeed does, how far it is, and what it waits for, in one sentence."""
    found = report(store, known, now=datetime.now(UTC))
    shown, mark = found.to_json(), found.known.high_water
    parts = [f"changefeed '{known.name}' is {found.state}"]
    if found.job is not None and found.job.job.node is not None:
        parts[0] += f" on node {found.job.job.node}"
    if mark and found.behind_s is not None:
        moment = shown_moment(mark.to_datetime())
        parts.append(f"has delivered what was committed until {moment} ({behind_text(found.behind_s)} ago)")
    paused = shown["paused"]
    reason = paused["reason"] if paused else shown["error"]
    waits = "; ".join(filter(None, (shown["waiting_on"], shown["waiting_for"])))
    if reason and not waits:
        parts.append(str(reason))
    if waits:
        parts.append(f"waits for {waits}")
    return ", ".join(parts)


def traced_table(store: ProgressStore, name: str, table: str | None) -> str | None:
    """Return *table* as a trace takes it, if changefeed *name* watches it or has not begun. Raises: ConfigError."""
    progress = store.load(name)
    if table is None or progress is None:
        return table
    watched = [TableName.parse(full) for full in {span.table for span, _ in progress.frontier}]
    found = meant_tables(table, watched)
    if watched and not found:
        known = [form for each in watched for form in (each.full, each.qualified, each.table)]
        raise ConfigError(f"changefeed '{name}' has no table '{table}'{did_you_mean(table, known)}")
    return found[0].full if len(found) == 1 else table
