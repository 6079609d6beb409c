"""Traced changes in a slice: what is asked for, and how it is found when the slice is read.

The reader looks for them, because only it knows what was asked. A note that travels before their rows tells the writer,
which follows them: see `followed_changes`.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from cdc_core.delivery.blocked_keys import BlockedKeys
from cdc_core.delivery.harmless import harmless
from cdc_core.delivery.row_json import key_column, key_json
from cdc_core.errors import ContractError
from cdc_core.rows import Op, RowBatch
from cdc_core.schema import TableName, TableSchema
from cdc_core.timestamp import Timestamp

__all__ = ["StepTrace", "TraceRequest", "TracedChange", "WantedChanges", "change_id", "key_text"]

TracedChange = dict[str, Any]
"""What became of a change, as JSON: see docs/trace.md. Holds its key and no other value of the row."""

_ONLY_TEXTS = ("infinity", "-infinity", "24:00:00")
"""Moments that Arrow does not read."""


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


def change_id(change: Mapping[str, Any]) -> str:
    """Return what identifies the change of a row, also when its step is repeated."""
    of_commit = " ".join((change["table"], change["key"], change["position"] or change["updated"]))
    return f"{of_commit} {change['nth']}" if change["nth"] else of_commit


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
        with harmless(self._left.clear):
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
        return {
            "traces": list(traces),
            "table": table,
            "key": key,
            "nth": nth,
            "op": Op(rows.column("op")[index].as_py()).name.lower(),
            "updated": str(updated),
            "position": position,
            "step": self._step,
            "planned": self._trace.planned,
            "read": time.time(),
        }
