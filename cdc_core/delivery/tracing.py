"""Traced changes in a slice: what is asked for, how it is found when the slice is read, and what becomes of it.

The reader looks for them, because only it knows what was asked. A note that travels before their rows tells the writer,
which follows them.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from cdc_core.delivery.dead_letters import BlockedKeys
from cdc_core.delivery.row_json import key_column, key_json
from cdc_core.errors import ContractError, FencedError
from cdc_core.rows import Op, RowBatch
from cdc_core.schema import TableName, TableSchema
from cdc_core.sink_calls import TracedRow
from cdc_core.store.traced_change import TracedChange
from cdc_core.store.values import DeadLetter
from cdc_core.timestamp import Timestamp

if TYPE_CHECKING:
    from cdc_core.store.progress import ProgressStore

log = logging.getLogger(__name__)

_ONLY_TEXTS = ("infinity", "-infinity", "24:00:00")
"""Moments that Arrow does not read."""
_STAGES_IN_SINK = ("encoded", "emitted", "acknowledged")


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRequest:
    """What one trace looks for: *most* changes of *key* in *table*, of any key, or of any table."""

    number: int
    table: str | None
    key: str | None
    most: int

    def is_about(self, table: TableName) -> bool:
        return self.table is None or self.table in (table.full, table.qualified, table.table)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTrace:
    """The traces that are active while a step runs, and when it was planned, in seconds since 1970. Picklable."""

    requests: tuple[TraceRequest, ...]
    planned: float


def key_text(schema: TableSchema, asked: str) -> str | None:
    """Return the key *asked*, a JSON array, as `key_json` gives it; None when no row of *schema* can have it.

    Moments may be written in any form that Arrow reads, and numbers that are text there as numbers.
    """
    values = json.loads(asked, parse_float=Decimal)
    if len(values) != len(schema.key_columns):
        return None
    values = [_fitting(value, field.type) for value, field in zip(values, schema.key_type, strict=True)]
    columns = [key_column([value], field.type) for value, field in zip(values, schema.key_type, strict=True)]
    if not all(map(_fits, values, columns, (field.type for field in schema.key_type))):
        return None
    known = [column for column in columns if column is not None]
    if len(known) == len(columns):
        return key_json(schema, RowBatch.struct(schema.key_type, known)[0])
    return "[" + ", ".join(json.dumps(value, ensure_ascii=False, default=str) for value in values) + "]"


def _fitting(value: Any, type_: pa.DataType) -> Any:
    if not isinstance(value, int | Decimal) or isinstance(value, bool) or pa.types.is_integer(type_):
        return value
    if pa.types.is_floating(type_):
        return float(value) if -sys.float_info.max <= value <= sys.float_info.max else None
    return str(value)


def _fits(value: Any, column: pa.Array | None, type_: pa.DataType) -> bool:
    """Return whether a key can have *value*, which Arrow reads as *column*, if it can."""
    if column is None:
        only_text = pa.types.is_string(type_) or (pa.types.is_temporal(type_) and value in _ONLY_TEXTS)
        return isinstance(value, str) and only_text
    if isinstance(value, bool):
        return bool(pa.types.is_boolean(type_))
    return isinstance(value, int) or not bool(pa.types.is_integer(type_))  # Arrow makes 4 of 4.5


class WantedChanges:
    """Finds the changes of a slice that are to be traced, in the batches as they are read."""

    def __init__(self, trace: StepTrace, *, step: int, position_of: Callable[[Timestamp], str | None]) -> None:
        self._trace = trace
        self._step = step
        self._position_of = position_of
        self._left = {request.number: request.most for request in trace.requests}
        self._changes_of: Counter[tuple[str, str, str | None]] = Counter()

    def found_in(self, rows: RowBatch, shown: Callable[[RowBatch], RowBatch]) -> list[TracedChange]:
        """Return the traced changes among *rows*, as *shown* shows them to people; none after an error."""
        with suppress_and_log(self._left.clear):
            return self._found_in(shown(rows))
        return []

    def _found_in(self, rows: RowBatch) -> list[TracedChange]:
        found: dict[int, list[int]] = {}
        for request in self._trace.requests:
            left = self._left.get(request.number)
            if left and len(rows) and request.is_about(rows.schema.name):
                indices = self._indices(rows, request)[:left]
                self._left[request.number] -= len(indices)
                for index in indices:
                    found.setdefault(index, []).append(request.number)
        return [self._change(rows, index, found[index]) for index in sorted(found)]

    def _indices(self, rows: RowBatch, request: TraceRequest) -> Sequence[int]:
        if request.key is None:
            return range(len(rows))
        text = key_text(rows.schema, request.key)
        return () if text is None else BlockedKeys([(rows.schema.name.full, text)]).find(rows)

    def _change(self, rows: RowBatch, index: int, traces: Sequence[int]) -> TracedChange:
        updated = Timestamp(**rows.column("updated")[index].as_py())
        position = self._position_of(updated)
        if not isinstance(position, str | None):
            raise ContractError(f"rangefeed broke its contract: position_of() returned {type(position).__name__}")
        table, key = rows.schema.name.full, key_json(rows.schema, rows.column("key")[index])
        nth = self._changes_of[table, key, position]  # a huge transaction may have several changes of a key
        self._changes_of[table, key, position] += 0 if position is None else 1
        return TracedChange(
            traces=tuple(traces),
            table=table,
            key=key,
            nth=nth,
            op=Op(rows.column("op")[index].as_py()).name.lower(),
            updated=updated,
            position=position,
            step=self._step,
            moments={"planned": self._trace.planned, "read": time.time()},
        )


class FollowedChanges:
    """Follows traced changes of a slice through its sink: a `SliceTrace`. After an error it follows none."""

    def __init__(self) -> None:
        self._changes: list[tuple[TracedChange, TracedRow]] = []
        self._by_row: dict[tuple[str, str, Timestamp], TracedRow] = {}
        self._keys = BlockedKeys()

    def add(self, changes: Iterable[TracedChange]) -> None:
        """Follow *changes*, whose rows come later."""
        for change in changes:
            row = TracedRow()
            self._changes.append((change, row))
            self._by_row[change.table, change.key, change.updated] = row
            self._keys.add(change.table, change.key)

    def rows_in(self, rows: RowBatch) -> Sequence[tuple[int, TracedRow]]:
        table, updated, keys = rows.schema.name.full, rows.column("updated"), rows.column("key")
        found = []
        with suppress_and_log(self._drop):
            for index in self._keys.find(rows):
                at = Timestamp(**updated[index].as_py())
                row = self._by_row.get((table, key_json(rows.schema, keys[index]), at))
                if row is not None:
                    found.append((index, row))
        return found

    def reached(self, stage: str, rows: RowBatch) -> None:
        """Note that *rows* are at *stage* now: "emitted" when the sink has taken them; they may wait in it."""
        for _, row in self.rows_in(rows):
            row.reached(stage)

    def so_far(self) -> list[TracedChange]:
        """Return what is known of each change."""
        changes: list[TracedChange] = []
        with suppress_and_log(self._drop):
            for change, row in self._changes:
                moments = {stage: row.moments[stage] for stage in _STAGES_IN_SINK if stage in row.moments}
                place = json.loads(json.dumps(dict(row.place)))  # a sink may have said what is not JSON
                changes.append(replace(change.reached(moments), place=place))
        return changes

    def flushed(self, dead_letters: Sequence[DeadLetter]) -> tuple[TracedChange, ...]:
        """Return what became of each change, now that all rows of the slice are durable or among *dead_letters*."""
        refused = {(letter.table, letter.key, letter.updated): letter.stage for letter in dead_letters}
        for identity, row in self._by_row.items():
            if identity not in refused and "emitted" in row.moments and "acknowledged" not in row.moments:
                row.reached("acknowledged")
        changes = []
        for change in self.so_far():
            stage = refused.get((change.table, change.key, change.updated))
            left_out = stage is None and "emitted" not in change.moments
            changes.append(replace(change, dead_letter=stage, left_out=left_out))
        return tuple(changes)

    def _drop(self) -> None:
        self._changes.clear()
        self._by_row.clear()
        self._keys = BlockedKeys()


@contextmanager
def suppress_and_log(drop: Callable[[], object] = lambda: None) -> Iterator[None]:
    """End the block, which only a trace needs, at an error: log it, once in this process, and *drop* what is traced.

    A FencedError passes.
    """
    try:
        yield
    except FencedError:
        raise
    except Exception as error:
        drop()
        _log_once(f"{type(error).__name__}: {error}")


@lru_cache(maxsize=100)
def _log_once(text: str) -> None:
    log.warning("trace failed; the changefeed continues without it: %s", text)


_MAX_WAITING = 1000
_MAX_WAIT_S = 3600.0


class TraceWriter:
    """Saves what became of traced changes. A trace fails no slice and no step: whatever goes wrong here is logged.

    The coordinator's keeps those that wait for a resolved mark. *marks* says whether there will be any.
    """

    def __init__(self, store: ProgressStore, *, marks: bool = False) -> None:
        self._store = store
        self._marks = marks
        self._waiting: list[TracedChange] = []

    def write(self, changes: Sequence[TracedChange]) -> None:
        """Return when the traces that look for *changes* have them."""
        for number in sorted({number for change in changes for number in change.traces}):
            with suppress_and_log():
                self._store.traces.put(number, [change for change in changes if number in change.traces])

    def saved(self, changes: Sequence[TracedChange]) -> None:
        """Note that the progress after *changes* is saved."""
        now = time.time()
        saved = [replace(change.reached({"saved": now}), marks=self._marks) for change in changes]
        self.write(saved)
        if self._marks:
            self._waiting = [*self._waiting, *saved][-_MAX_WAITING:]

    def resolved(self, mark: Timestamp) -> None:
        """Note that *mark* was emitted, by now."""
        now = time.time()
        self.write([change.reached({"resolved": now}) for change in self._waiting if change.updated <= mark])
        self._waiting = [
            change for change in self._waiting if change.updated > mark and now - change.moments["saved"] < _MAX_WAIT_S
        ]
