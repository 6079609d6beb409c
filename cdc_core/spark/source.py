"""A rangefeed as a Spark streaming data source. No rule of the domain lives here.

Spark builds the reader anew in each process: in the planner's for offsets and partitions, once more to pickle `read`,
and in each executor's worker. Offsets are those of `cdc_core.engine.planner`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit

from cdc_core.engine.aggregator import read_slice
from cdc_core.engine.attempt_channel import PLANNER
from cdc_core.engine.attempt_config import AttemptConfig, MaskedError
from cdc_core.engine.claims import claim, offers
from cdc_core.engine.packing import BEGIN, END, FAILED, IDLE, note, pack
from cdc_core.engine.planner import Offset, Planner
from cdc_core.engine.slices import PlannedSlice
from cdc_core.engine.time_range import TimeRange
from cdc_core.engine.worker_cache import WorkerCache
from cdc_core.placement import executor_locality
from cdc_core.queries.outputs import delivered_rows
from cdc_core.rows import RowBatch
from cdc_core.sink import SliceInfo
from cdc_core.slice_reader import SliceReader
from cdc_core.spark.columns import columns_schema, noted, packed_columns, query_for
from cdc_core.telemetry.stages import SOURCE
from cdc_core.timestamp import Timestamp

if TYPE_CHECKING:
    from cdc_core.store.progress import ProgressStore

__all__ = ["RangefeedReader", "SlicePartition", "WarmUpReader", "open_reader"]

_readers: WorkerCache[SliceReader] = WorkerCache()
_stores: WorkerCache[ProgressStore] = WorkerCache()

_MAX_WAIT_S = 0.5
"""How long the planner may keep Spark waiting for an answer."""


class SlicePartition(InputPartition):
    """The slices of a step from which task *task* reads one, on their way to an executor."""

    def __init__(self, task: int, offered: tuple[PlannedSlice, ...]) -> None:
        super().__init__(task)
        self.task = task
        self.offered = offered


def open_reader(option: str) -> RangefeedReader | WarmUpReader:
    """Return the reader of the attempt in *option*."""
    config = AttemptConfig.from_option(option)
    return WarmUpReader(config) if config.warm_up else RangefeedReader(config)


class RangefeedReader(DataSourceStreamReader):
    """Plans steps in the planner's process and reads slices on executors."""

    def __init__(self, config: AttemptConfig) -> None:
        self._config = config
        self._channel = config.channel
        self._planner: Planner | None = None

    def initialOffset(self) -> Offset:  # noqa: N802
        # Spark calls this twice: a value that moved in between would lose the slice between the two.
        return {"step": -1, "token": self._config.start}

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: ARG002, N802
        with self._config.guarded():
            if self._channel.stop_requested:
                self._channel.acknowledge_stop()
                return start
            with self._planning():
                planner = self._open_planner()
                end = planner.next_step(start)
            if end == start:  # each question costs Spark more than the answer costs us
                planner.rest()
                self._channel.wait_for_stop(min(planner.wait_s, _MAX_WAIT_S))
            return end

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        with self._config.guarded():
            if start == end:
                # The first batch of a query runs even when there is nothing to do. Without a partition the writer would
                # see what a reader that died leaves.
                return [SlicePartition(0, (_nothing(slices=0),))]
            with self._planning():
                planner = self._open_planner()
                offered = offers(self._config, planner.slices())
                if len(offered[0]) > 1:
                    planner.forget_claims(end)
                return [SlicePartition(task, choice) for task, choice in enumerate(offered)]

    def read(self, partition: InputPartition) -> Generator[pa.RecordBatch]:
        if not self._config.plans:
            yield from self._read(partition, pack)
            return
        queries = [plan.query for plan in self._config.plans]
        schema = columns_schema(queries)
        selects, key = self._config.feed.queries().selects, self._config.feed.mask_key

        def shown(rows: RowBatch) -> RowBatch:
            query = query_for(rows, queries) if selects(rows.schema.name) else None
            return delivered_rows(rows, query, key=key) if query is not None and query.section else rows

        packed = partial(packed_columns, queries=queries, schema=schema, selects=selects, mask_key=key)
        for batch in self._read(partition, packed, shown):
            yield noted(batch, schema)

    def _read(
        self,
        partition: InputPartition,
        packed: Callable[[RowBatch], Iterator[pa.RecordBatch]],
        shown: Callable[[RowBatch], RowBatch] = lambda rows: rows,
    ) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, SlicePartition)
        config = self._config
        if partition.offered[0].slice is None:
            yield note(IDLE, {})
            return
        try:
            with (
                config.guarded(),
                config.at_work(),
                _readers.use(config.key, config.open_reader) as reader,
            ):
                yield from read_slice(
                    reader,
                    self._claimed(partition),
                    within=TimeRange.of(config.feed.options),
                    max_row_bytes=config.feed.options.max_row_bytes,
                    pack=packed,
                    shown=shown,
                )
        except MaskedError as error:
            # Raising here would cost a task attempt, repeated at once. The writer passes it to the coordinator.
            yield note(FAILED, {"error": str(error)})

    def _claimed(self, partition: SlicePartition) -> PlannedSlice:
        """Return the slice that the task reads: without asking the store where it has no choice."""
        if len(partition.offered) == 1:
            return partition.offered[0]
        with _stores.use(self._config.key, self._config.open_store_of_host) as store:
            return claim(store, self._config, partition.task, partition.offered, executor_locality())

    def stop(self) -> None:
        with self._config.guarded():
            if self._planner is not None:
                self._planner.close()

    @contextmanager
    def _planning(self) -> Iterator[None]:
        with self._channel.collected_warnings(), self._channel.at_stages(PLANNER, first=SOURCE):
            yield

    def _open_planner(self) -> Planner:
        if self._planner is None:
            self._planner = Planner(self._config, self._config.feed.open_planner())
        return self._planner


class WarmUpReader(DataSourceStreamReader):
    """One step without rows, to start the processes and load what they will need before the first row matters."""

    def __init__(self, config: AttemptConfig) -> None:
        self._config = config

    def initialOffset(self) -> Offset:  # noqa: N802
        return {"step": -1}

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: ARG002, N802
        return {"step": 0}

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        if start == end:
            return []
        return [SlicePartition(0, (_nothing(slices=1),))] * self._config.feed.parallelism

    def read(self, partition: InputPartition) -> Generator[pa.RecordBatch]:  # noqa: ARG002
        with self._config.guarded():
            self._config.load()
            yield note(BEGIN, _nothing(slices=1))
            yield note(END, [])


def _nothing(*, slices: int) -> PlannedSlice:
    """Return what stands for a step in which there is nothing to read."""
    return PlannedSlice(slice=None, info=SliceInfo(step=0, index=0, lower=Timestamp()), slices=slices, end={})
