"""One slice of the packed layout, read from a rangefeed or written to a sink."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from cdc_core import Sink, SliceReader
from cdc_core.delivery.bad_rows import SliceBadRows, StopAtBadRow
from cdc_core.delivery.delivery import Delivery
from cdc_core.engine.aggregator import read_slice, write_slice
from cdc_core.engine.packing import Arriving
from cdc_core.engine.slices import PlannedSlice, SliceReport
from cdc_core.telemetry.stages import ENCODE, QUERY, SINK, SOURCE


def read(reader: SliceReader, planned: PlannedSlice, **how: Any) -> Iterator[pa.RecordBatch]:
    """See `read_slice`, of a slice that is not divided."""
    return (batch for _, batch in read_slice(reader, planned, **how))


def written(
    sink: Sink, batches: Iterable[Arriving], *, bad_rows: SliceBadRows | None = None, task_attempt: int = 0
) -> SliceReport | None:
    """See `write_slice`. Without *bad_rows* the first one ends the slice."""
    bad_rows = bad_rows or StopAtBadRow({SOURCE: "rangefeed", QUERY: "query", ENCODE: "encoder", SINK: "sink"})
    return write_slice(
        Delivery(sink, bad_rows, owner="sink", refuses_rows=True), bad_rows, batches, task_attempt=task_attempt
    )
