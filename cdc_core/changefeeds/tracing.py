"""Following changes of a running changefeed, from their commit to the sink's acknowledgement."""

from __future__ import annotations

import json
import math
import time
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Self

from cdc_core.changefeeds.finding import Finder
from cdc_core.errors import ConfigError
from cdc_core.option_values import read_duration
from cdc_core.options import did_you_mean, format_duration
from cdc_core.schema import TableName
from cdc_core.sql_names import meant_tables
from cdc_core.store.progress import ChangefeedRecord, ProgressStore
from cdc_core.store.reports import report
from cdc_core.store.traced_change import TracedChange
from cdc_core.store.traces import TraceRecord
from cdc_core.store.verbs import UnknownError
from cdc_core.telemetry.status import behind_text, shown_moment


def checked_key(text: str) -> str:
    """Return the key of a row that *text*, a JSON array of its values, stands for, as a `Trace` takes it.

    It is JSON that everybody can read and store, with all digits of its numbers. Raises: ConfigError.
    """
    try:
        return written_key(json.loads(text, parse_float=key_number, parse_constant=key_number))
    except (ValueError, RecursionError):
        raise ConfigError(
            f"the key '{text}' is not a JSON array of key values; write it as messages show it, such as '[42]' or "
            "'[\"eu\", 7]'"
        ) from None


def written_key(values: Any) -> str:
    """Return the key with *values*, whose fractions are of `key_number`, as JSON. Raises: ValueError."""
    if not isinstance(values, list) or not values or any(isinstance(value, list | dict | None) for value in values):
        raise ValueError("it has no key values")
    written = (str(value) if isinstance(value, Decimal) else json.dumps(value, ensure_ascii=False) for value in values)
    text = f"[{', '.join(written)}]"
    text.encode()  # half a surrogate pair is not a character
    return text


def key_number(text: str) -> Decimal:
    """Return a number of JSON with all of its digits. Raises: ValueError for one that is not a finite double."""
    if not math.isfinite(float(text)):
        raise ValueError(f"{text} is too large, or not a number")
    try:
        return Decimal(text)
    except ArithmeticError as error:  # its exponent has too many digits
        raise ValueError(f"{text} is too small") from error


MAX_CHANGES = 100
MAX_TRACE_S = 3600.0
ROWS = 10
TIMEOUT = "2m"


def trace_seconds(timeout: str) -> float:
    """Return how long a trace with this duration lasts. Raises: ValueError, whose text follows its name."""
    seconds = float(read_duration(timeout))
    if not 0 < seconds <= MAX_TRACE_S:
        raise ValueError(f"must be more than 0s and at most {format_duration(MAX_TRACE_S)}")
    return seconds


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


class Tracing(Finder):
    """The verb trace."""

    def ask_trace(
        self, name: str, *, table: str | None, key: str | None, rows: int = ROWS, timeout: str = TIMEOUT
    ) -> TraceRecord:
        """Request that up to *rows* changes of the changefeed be followed, for at most *timeout*, a duration.

        These are the changes of the key *key*, as `checked_key` returns it, in *table*; without a key, the next changes
        of *table*, or of any table. The trace begins within about a second. Raises: UnknownError; BusyError if there
        are too many traces; ConfigError for an unknown table or a value out of bounds.
        """
        if key is not None and table is None:
            raise ConfigError("'key' requires 'table'")
        if type(rows) is not int or not 1 <= rows <= MAX_CHANGES:
            raise ConfigError(f"'rows' must be a whole number from 1 to {MAX_CHANGES}")
        try:
            seconds = trace_seconds(timeout)
        except ValueError as error:
            raise ConfigError(f"'timeout' {error}") from None
        self.known(name)
        found = _traced_table(self.store, name, table)
        number = self.store.traces.ask(name, table=found, key=key, most=rows, seconds=seconds)
        return self.trace(name, number)

    def traces(self, name: str) -> list[TraceRecord]:
        """Return the traces of the changefeed, oldest first."""
        return self.store.traces.of(name)

    def trace(self, name: str, number: int | str) -> TraceRecord:
        """Return the trace with this number. Raises: UnknownError."""
        found = next((each for each in self.traces(name) if str(each.number) == str(number)), None)
        if found is None:
            raise UnknownError(f"'{name}' has no such trace; finished traces are deleted after an hour")
        return found

    def end_trace(self, name: str, number: int | str) -> None:
        """End the trace, and delete what it found. Raises: UnknownError."""
        self.store.traces.end(self.trace(name, number).number)


class Trace:
    """What a trace finds, while this is entered; it ends with that."""

    def __init__(self, store: ProgressStore, record: TraceRecord) -> None:
        self._store = store
        self._most = record.most
        self._until = time.monotonic() + record.expires - time.time()
        self._seen: dict[str, TracedChange] = {}
        self.number = record.number

    def __enter__(self) -> Self:
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
    if found.job is not None and found.job.node is not None:
        parts[0] += f" on node {found.job.node}"
    if mark and found.behind_s is not None:
        moment = shown_moment(mark.to_datetime())
        parts.append(f"has delivered everything committed up to {moment} ({behind_text(found.behind_s)} ago)")
    paused = shown["paused"]
    reason = paused["reason"] if paused else shown["error"]
    waits = "; ".join(filter(None, (shown["waiting_on"], shown["waiting_for"])))
    if reason and not waits:
        parts.append(str(reason))
    if waits:
        parts.append(f"waits for {waits}")
    return ", ".join(parts)


def _traced_table(store: ProgressStore, name: str, table: str | None) -> str | None:
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
