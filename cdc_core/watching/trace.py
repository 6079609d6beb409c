"""Following changes of a running changefeed, from their commit to the sink's acknowledgement."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import Any, Self

from cdc_core.errors import ConfigError
from cdc_core.options import did_you_mean
from cdc_core.schema import TableName
from cdc_core.sql_names import meant_tables
from cdc_core.store.progress import ChangefeedRecord, ProgressStore
from cdc_core.store.reports import report
from cdc_core.store.traced_change import TracedChange
from cdc_core.telemetry.status import behind_text, shown_moment

__all__ = [
    "MAX_CHANGES",
    "MAX_TRACE_S",
    "Trace",
    "shown_change",
    "standing_text",
    "traced_table",
]

MAX_CHANGES = 100
MAX_TRACE_S = 3600.0


def shown_change(change: TracedChange) -> dict[str, Any]:
    """Return *change* as the JSON values that docs/trace.md explains."""
    return {
        "table": change.table,
        "key": json.loads(change.key),
        "op": change.op,
        "updated": str(change.updated),
        "committed_at": change.updated.to_datetime().isoformat(timespec="milliseconds"),
        "position": change.position,
        "step": change.step,
        "stages": {stage: round(change.after_s(stage), 6) for stage in change.moments},
        "place": dict(change.place),
        "dead_letter": change.dead_letter,
        "left_out": change.left_out,
        "complete": change.complete,
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
        self.number = self._store.traces.ask(self._name, **self._asked)  # type: ignore[arg-type]
        self._until = time.monotonic() + float(self._asked["seconds"])  # type: ignore[arg-type]
        return self

    def __exit__(self, *_: object) -> None:
        self._store.traces.end(self.number)

    @property
    def over(self) -> bool:
        """Whether there is nothing more to wait for: the time is over, or all that was wanted is complete."""
        complete = sum(change.complete for change in self._seen.values())
        return complete >= self._most or time.monotonic() >= self._until

    def poll(self) -> list[TracedChange]:
        """Return the changes that are new, or have got further, since the last poll."""
        found = self._store.traces.load(self.number)
        if found is None:
            return []
        new = [change for identity, change in found.items() if self._seen.get(identity) != change]
        self._seen = found
        return new

    @property
    def changes(self) -> list[TracedChange]:
        """All that was found until the last poll."""
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
    progress = store.progress.load(name)
    if table is None or progress is None:
        return table
    watched = [TableName.parse(full) for full in {span.table for span, _ in progress.frontier}]
    found = meant_tables(table, watched)
    if watched and not found:
        known = [form for each in watched for form in (each.full, each.qualified, each.table)]
        raise ConfigError(f"changefeed '{name}' has no table '{table}'{did_you_mean(table, known)}")
    return found[0].full if len(found) == 1 else table
