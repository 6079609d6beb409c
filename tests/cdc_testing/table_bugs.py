"""Mistakes that an engine could make when tables change or are read again, see `cdc_testing.engine_bugs`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from cdc_testing.local_engine import task_attempt
from cdc_testing.nemesis_script import GUESTS

from cdc_core.engine import attempt
from cdc_core.engine.aggregator import read_slice as honest_read
from cdc_core.engine.planner import Planner, Rescans
from cdc_core.engine.slices import PlannedSlice
from cdc_core.rows import Op, RowBatch
from cdc_core.slice_reader import SliceReader, SpanMark
from cdc_core.step_planner import Slice

_KNOWN = [("known", "")]
"""Stands in a slice's `blocked` when something is resolved."""


def keeps_the_first_key(patch: Patch) -> None:
    def under_id(items: Items) -> Items:
        for item in items:
            if isinstance(item, RowBatch) and item.schema.primary_key != ("id",):
                schema = replace(item.schema, primary_key=("id",))
                key = pa.StructArray.from_arrays([item.column("key").field("id")], fields=list(schema.key_type))
                names = item.batch.schema.names
                columns = {name: key if name == "key" else item.column(name) for name in names}
                yield RowBatch.of(schema, **columns)
            else:
                yield item

    change_reading(patch, under_id, retries_only=False)


def scans_once(patch: Patch) -> None:
    honest = Planner.slices

    def slices(self: Planner) -> Sequence[PlannedSlice]:
        planned = honest(self)
        return [replace(one, blocked=_KNOWN) for one in planned] if self._machine.reached.high_water else planned

    def without_scans(items: Items) -> Items:
        for item in items:
            if not isinstance(item, RowBatch) or item.column("op")[0].as_py() != Op.SCAN:
                yield item

    def read_slice(reader: SliceReader, planned: PlannedSlice, **step: Any) -> Iterator[tuple[int, pa.RecordBatch]]:
        used: Any = Reading(reader, without_scans) if list(planned.blocked) == _KNOWN else reader
        return honest_read(used, planned, **step)

    patch(Planner, "slices", slices)
    patch(attempt, "read_slice", read_slice)


def joins_without_rows(patch: Patch) -> None:
    def known(items: Items) -> Items:
        for item in items:
            joined = isinstance(item, RowBatch) and item.schema.name.table in GUESTS
            if not joined or item.column("op")[0].as_py() != Op.SCAN:
                yield item

    change_reading(patch, known, retries_only=False)


def rescan_begun_before_saved(patch: Patch) -> None:
    honest = Rescans._take

    def take(self: Rescans, *arguments: Any) -> Any:
        taken = honest(self, *arguments)
        if taken is not None:
            self._store.rescans.begin(self._name, self._epoch, taken.numbers, taken.began)
        return taken

    patch(Rescans, "_take", take)


Items = Iterator[RowBatch | SpanMark]
Patch = Callable[[Any, str, Any], None]
"""Sets an attribute until the block ends."""


class Reading:
    """A reader whose rows *change* changes."""

    unchecked_texts = False

    def __init__(self, inner: SliceReader, change: Callable[[Items], Items]) -> None:
        self._inner = inner
        self._change = change

    def read(self, slice_: Slice) -> Items:
        return self._change(self._inner.read(slice_))


def change_reading(patch: Patch, change: Callable[[Items], Items], *, retries_only: bool) -> None:
    """Let *change* change what executors read, or only what they read again."""

    def read_slice(reader: SliceReader, planned: PlannedSlice, **step: Any) -> Iterator[tuple[int, pa.RecordBatch]]:
        used: Any = Reading(reader, change) if _is_retry() or not retries_only else reader
        return honest_read(used, planned, **step)

    patch(attempt, "read_slice", read_slice)


def _is_retry() -> bool:
    from pyspark import TaskContext

    context = TaskContext.get()
    return (task_attempt.get() if context is None else int(context.attemptNumber())) > 0
