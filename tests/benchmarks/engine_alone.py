"""The engine with nothing on either side: a rangefeed of ready-made batches, and a sink that throws them away.

Run as a program it is one changefeed to its end: `engine_alone.py STATE_DIR STEPS SLICES BATCHES`.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from benchmarks.feed import NAME
from benchmarks.rows import SCHEMA, row_batch

from cdc_core import (
    Flushed,
    Mark,
    Rangefeed,
    RangefeedContext,
    RowBatch,
    ScanProgress,
    Sink,
    SinkContext,
    Slice,
    SliceInfo,
    Span,
    StepLimit,
    TableName,
    Timestamp,
    Token,
)
from cdc_core.config.changefeed import ChangefeedOptions
from cdc_core.config.resolved import Component, Job
from cdc_core.options import option
from cdc_core.store.progress import ProgressStore, store_url
from cdc_core.telemetry.status import Status

__all__ = ["BATCH_ROWS", "DiscardingSink", "NoOptions", "ReadyOptions", "ReadyRangefeed"]

BATCH_ROWS = 16_384


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyOptions:
    steps: int = option(doc="Steps until the end.")
    slices: int = option(doc="Slices of a step.")
    batches: int = option(doc="Batches of a slice.")


class ReadyRangefeed(Rangefeed):
    """Step n is at wall time n and yields the same batch, committed then, again and again."""

    def __init__(self, context: RangefeedContext) -> None:
        super().__init__(context)
        self._options: ReadyOptions = context.options
        self._batch: RowBatch | None = None

    def check(self) -> None:
        pass

    def schemas(self) -> Sequence:  # type: ignore[type-arg]
        return [SCHEMA]

    def start(self, saved: Token | None, save: Callable[[Token], None]) -> Token:
        return {"n": 0} if saved is None else saved

    def now(self) -> Timestamp:
        return Timestamp(self._options.steps)

    def advance(self, start: Token, *, after: Timestamp, limit: StepLimit) -> Token:
        return {"n": min(start["n"] + 1, self._options.steps)}

    def slices(self, start: Token, end: Token, *, after: Timestamp) -> Sequence[Slice]:
        return [Slice(lower=after.next(), payload=(end["n"], index)) for index in range(self._options.slices)]

    def read(self, slice_: Slice) -> Iterator[RowBatch | Mark]:
        if self._batch is None:
            self._batch = row_batch(BATCH_ROWS)
        step, _ = slice_.payload
        now = RowBatch.timestamps(
            pa.array(np.full(BATCH_ROWS, step), pa.int64()), pa.array(np.zeros(BATCH_ROWS), pa.int32())
        )
        columns = {name: self._batch.column(name) for name in self._batch.batch.schema.names}
        rows = RowBatch.of(SCHEMA, **{**columns, "updated": now})
        for _ in range(self._options.batches):
            yield rows
        yield Mark(span=Span(SCHEMA.name.full), timestamp=Timestamp(step), resolved=True)

    def release(self, token: Token) -> None:
        pass

    def scan_progress(self, token: Token) -> ScanProgress | None:
        return None

    def metrics(self) -> Mapping[str, float]:
        return {}

    def drop(self, saved: Token | None) -> None:
        pass

    def close(self) -> None:
        pass


@dataclass(frozen=True, slots=True, kw_only=True)
class NoOptions:
    pass


class DiscardingSink(Sink):
    """Counts messages."""

    def __init__(self, context: SinkContext) -> None:
        super().__init__(context)
        self._messages = 0

    def check(self) -> None:
        pass

    def topic(self, table: TableName) -> str:
        return table.table

    def prepare(self) -> None:
        pass

    def begin(self, slice_: SliceInfo) -> None:
        self._messages = 0

    def emit(self, rows: RowBatch) -> None:
        self._messages += len(rows)

    def flush(self) -> Flushed:
        return Flushed(messages=self._messages)

    def emit_resolved(self, timestamp: Timestamp) -> None:
        pass

    def close(self) -> None:
        pass


def _job(steps: int, slices: int, batches: int) -> Job:
    here = "benchmarks.engine_alone"
    return Job(
        name=NAME,
        tables=("public.orders",),
        source="ready://",
        destination="nowhere://",
        rangefeed=Component(
            kind="source",
            name="ready",
            target=f"{here}:ReadyRangefeed",
            options=f"{here}:ReadyOptions",
            values={"steps": steps, "slices": slices, "batches": batches},
        ),
        encoder=Component(
            kind="encoder",
            name="json",
            target="cdc_encoder_json.encoder:JsonEncoder",
            options="cdc_encoder_json.options:JsonOptions",
        ),
        sink=Component(kind="sink", name="nowhere", target=f"{here}:DiscardingSink", options=f"{here}:NoOptions"),
        options=ChangefeedOptions(),
    )


def _ignored(status: Status) -> None:
    """Show nothing."""


def main() -> int:
    from cdc_core.spark import runner

    logging.basicConfig(level=logging.INFO)
    state_dir = Path(sys.argv[1])
    steps, slices, batches = map(int, sys.argv[2:])
    store = ProgressStore(store_url(state_dir))
    store.open()
    return runner.run(_job(steps, slices, batches), store=store, state_dir=state_dir, once=True, status=_ignored)


if __name__ == "__main__":
    sys.exit(main())
