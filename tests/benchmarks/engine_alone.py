"""The engine with nothing on either side: a rangefeed of ready-made batches, and a sink that throws them away.

Run as a program it is one changefeed to its end: `engine_alone.py STATE_DIR STEPS SLICES BATCHES`.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from benchmarks.feed import NAME
from benchmarks.rows import SCHEMA, row_batch
from cdc_testing.engine import run_feed

from cdc_core import (
    Flushed,
    Rangefeed,
    RangefeedContext,
    RangefeedRegistration,
    RowBatch,
    Sink,
    SinkContext,
    Slice,
    SliceReader,
    Span,
    SpanMark,
    StepLimit,
    StepPlanner,
    TableSchema,
    Timestamp,
    Token,
    option,
)
from cdc_core.config.changefeed_options import ChangefeedOptions
from cdc_core.config.component import Component
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.plugins.host import PluginHost
from cdc_core.store.progress import ProgressStore, store_url

BATCH_ROWS = 16_384


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyOptions:
    steps: int = option(doc="Steps until the end.")
    slices: int = option(doc="Slices of a step.")
    batches: int = option(doc="Batches of a slice.")


class ReadyRangefeed(Rangefeed):
    """Step n is at wall time n and yields the same batch, committed then, again and again."""

    def check(self) -> None:
        pass

    def schemas(self) -> Sequence[TableSchema]:
        return [SCHEMA]

    def start(self, saved: Token | None, save: Callable[[Token], None]) -> Token:
        return {"n": 0} if saved is None else saved


class ReadyPlanner(StepPlanner):
    def now(self) -> Timestamp:
        return Timestamp(self.context.options.steps)

    def advance(self, start: Token, *, after: Timestamp, limit: StepLimit) -> Token:
        return {"n": min(start["n"] + 1, self.context.options.steps)}

    def slices(self, start: Token, end: Token, *, after: Timestamp) -> Sequence[Slice]:
        return [Slice(lower=after.next(), payload=(end["n"], index)) for index in range(self.context.options.slices)]


class ReadyReader(SliceReader):
    def __init__(self, context: RangefeedContext) -> None:
        super().__init__(context)
        self._batch: RowBatch | None = None

    def read(self, slice_: Slice) -> Iterator[RowBatch | SpanMark]:
        if self._batch is None:
            self._batch = row_batch(BATCH_ROWS)
        step, _ = slice_.payload
        now = RowBatch.timestamps(
            pa.array(np.full(BATCH_ROWS, step), pa.int64()), pa.array(np.zeros(BATCH_ROWS), pa.int32())
        )
        columns = {name: self._batch.column(name) for name in self._batch.batch.schema.names}
        rows = RowBatch.of(SCHEMA, **{**columns, "updated": now})
        for _ in range(self.context.options.batches):
            yield rows
        yield SpanMark(span=Span(SCHEMA.name.full), timestamp=Timestamp(step), resolved=True)


class DiscardingSink(Sink):
    """Counts messages, and unlike the null sink encodes none."""

    def __init__(self, context: SinkContext) -> None:
        super().__init__(context)
        self._messages = 0

    def emit(self, rows: RowBatch) -> None:
        self._messages += len(rows)

    def flush(self) -> Flushed:
        messages, self._messages = self._messages, 0
        return Flushed(messages=messages)


def _feed(steps: int, slices: int, batches: int) -> ResolvedChangefeed:
    here = "benchmarks.engine_alone"
    source = RangefeedRegistration(
        name="ready",
        schemes=("ready",),
        rangefeed=f"{here}:ReadyRangefeed",
        planner=f"{here}:ReadyPlanner",
        reader=f"{here}:ReadyReader",
        options=f"{here}:ReadyOptions",
        summary="Ready-made batches",
    )
    host = PluginHost.load()
    destination = "null://"
    sink = replace(host.sink_for(destination), sink=f"{here}:DiscardingSink")
    return ResolvedChangefeed(
        name=NAME,
        tables=("public.orders",),
        sources=("ready://",),
        destination=destination,
        rangefeed=Component(registration=source, values={"steps": steps, "slices": slices, "batches": batches}),
        encoder=Component(registration=host.encoder("json")),
        sink=Component(registration=sink),
        options=ChangefeedOptions(),
    )


def main() -> int:
    logging.basicConfig(level=logging.INFO)
    state_dir = Path(sys.argv[1])
    steps, slices, batches = map(int, sys.argv[2:])
    store = ProgressStore(store_url(state_dir))
    store.open()
    return run_feed(_feed(steps, slices, batches), store=store, state_dir=state_dir, once=True)


if __name__ == "__main__":
    sys.exit(main())
