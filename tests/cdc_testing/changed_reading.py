"""Puts something between the reader of a slice and the engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from cdc_testing.local_engine import task_attempt

from cdc_core.engine import attempt
from cdc_core.engine.aggregator import read_slice as honest_read
from cdc_core.engine.slices import PlannedSlice
from cdc_core.rows import RowBatch
from cdc_core.slice_reader import SliceReader, SpanMark
from cdc_core.step_planner import Slice

__all__ = ["Items", "Patch", "Reading", "change_reading"]

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

    def read_slice(reader: SliceReader, planned: PlannedSlice, **step: Any) -> Iterator[pa.RecordBatch]:
        used: Any = Reading(reader, change) if _is_retry() or not retries_only else reader
        return honest_read(used, planned, **step)

    patch(attempt, "read_slice", read_slice)


def _is_retry() -> bool:
    from pyspark import TaskContext

    context = TaskContext.get()
    return (task_attempt.get() if context is None else int(context.attemptNumber())) > 0
