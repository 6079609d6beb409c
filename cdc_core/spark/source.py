"""A rangefeed as a Spark streaming data source. No rule of the domain lives here.

Spark builds the reader anew in each process: in the planner's for offsets and partitions, once more to pickle `read`,
and in each executor's worker. An offset is `{"step": n, "token": …}`; with `planned_by` it ends a step that an earlier
run has planned.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from cdc_core.engine.aggregator import read_slice
from cdc_core.engine.attempt_config import MaskedError, RunConfig
from cdc_core.engine.fencing import StopFlag
from cdc_core.engine.packing import BEGIN, END, FAILED, IDLE, SPARK_SCHEMA, note
from cdc_core.engine.plans import Plans
from cdc_core.engine.worker_cache import Kept
from cdc_core.errors import ContractError
from cdc_core.rangefeed import Rangefeed, Slice, StepLimit, Token
from cdc_core.sink import SliceInfo
from cdc_core.telemetry.activity import PLANNER, at_stages
from cdc_core.telemetry.stages import SOURCE
from cdc_core.timestamp import Timestamp

__all__ = ["RangefeedSource"]

Offset = dict[str, Any]

_kept: Kept[Rangefeed] = Kept()


class SlicePartition(InputPartition):
    """One slice of a step, on its way to an executor; None where there is nothing to do."""

    def __init__(
        self,
        slice_: Slice | None,
        info: SliceInfo,
        *,
        slices: int,
        end: Token,
        blocked: Sequence[tuple[str, str]] = (),
    ) -> None:
        super().__init__(info.index)
        self.slice_ = slice_
        self.info = info
        self.slices = slices
        self.end = end
        self.blocked = blocked


class RangefeedSource(DataSource):
    """Format `cdc_rangefeed`. Its one option is a RunConfig."""

    @classmethod
    def name(cls) -> str:
        return "cdc_rangefeed"

    def schema(self) -> str:
        return SPARK_SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802
        config = RunConfig.from_options(self.options)
        return WarmUpReader(config) if config.warm_up else RangefeedReader(config)


class RangefeedReader(DataSourceStreamReader):
    """Plans steps in the planner process and reads slices on executors."""

    def __init__(self, config: RunConfig) -> None:
        self._config = config
        self._stop = StopFlag(config.run_dir)
        self._planner: Planner | None = None

    def initialOffset(self) -> Offset:  # noqa: N802
        # Called twice by Spark: a value that moved in between would lose the slice between the two.
        return {"step": -1, "token": self._config.start}

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: ARG002, N802
        with self._config.guarded():
            if self._stop.requested:
                self._stop.acknowledge()
                return start
            with at_stages(PLANNER, run_dir=self._config.run_dir, first=SOURCE):
                return self._plan().next_step(start)

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        with self._config.guarded():
            if start == end:
                # The first batch of a query runs even when there is nothing to do, and without a partition the writer
                # would be given what a reader that died leaves.
                return [SlicePartition(None, SliceInfo(step=0, index=0, lower=Timestamp()), slices=0, end={})]
            with at_stages(PLANNER, run_dir=self._config.run_dir, first=SOURCE):
                return self._plan().partitions(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, SlicePartition)
        if partition.slice_ is None:
            yield note(IDLE, {})
            return
        config = self._config
        try:
            with config.guarded(), config.at_work(), _kept.use(config.key, self._open) as rangefeed:
                yield from read_slice(
                    rangefeed,
                    partition.slice_,
                    partition.info,
                    slices=partition.slices,
                    end=partition.end,
                    blocked=partition.blocked,
                )
        except MaskedError as error:
            # Raised, it would cost a task attempt and be tried again at once. The writer passes it to the coordinator.
            yield note(FAILED, {"error": str(error)})

    def stop(self) -> None:
        with self._config.guarded():
            if self._planner is not None:
                self._planner.close()

    def _open(self) -> Rangefeed:
        return self._config.job.open_rangefeed(parallelism=self._config.parallelism)

    def _plan(self) -> Planner:
        if self._planner is None:
            self._planner = Planner(self._config, self._open())
        return self._planner


class Planner:
    """When the next step begins, and what it holds."""

    def __init__(self, config: RunConfig, rangefeed: Rangefeed) -> None:
        options = config.job.options
        self._name = config.job.name
        self._owner = config.job.rangefeed.owner
        self._rangefeed = rangefeed
        self._store = config.open_store()
        self._limit = StepLimit(rows=options.max_step_rows, bytes=options.max_step_bytes)
        self._frequency_s = config.job.min_checkpoint_frequency_s
        self._scans_only = options.initial_scan == "only"
        self._blocks_keys = config.job.dead_letter is not None and options.dead_letter_order == "block_key"
        self._plans = Plans(config.job, rangefeed, self._store)
        self._repeated: Sequence[Slice] | None = None
        self._begun = False
        self._latest = Timestamp()
        self._resolved = Timestamp()
        self._latest_of: int | None = None
        self._not_before = 0.0

    def next_step(self, start: Offset) -> Offset:
        """Return the offset at which the step after *start* ends; *start* while it is not time for one.

        A changefeed that only scans has none behind the scan: the driver sees later that it is complete.
        """
        after = self._after(start)
        if time.monotonic() < self._not_before or (self._scans_only and self._resolved):
            return start
        if not self._begun:
            self._begun = True
            found = self._plans.repeat(start["token"], after=after, blocked=self._blocked())
            if found is not None:
                plan, self._repeated = found
                return {"step": plan.step, "token": plan.end, "planned_by": plan.epoch}
        end = self._rangefeed.advance(start["token"], after=after, limit=self._limit)
        if end == start["token"]:
            return start
        self._not_before = 0.0
        return {"step": start["step"] + 1, "token": end}

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        after, planned_by, blocked = self._after(start), end.get("planned_by"), self._blocked()
        if planned_by is None:
            slices = self._rangefeed.slices(start["token"], end["token"], after=after)
        else:
            assert self._repeated is not None
            slices = self._repeated
        if not slices:
            raise ContractError(f"{self._owner} broke its contract: slices() must return at least one slice")
        for slice_ in slices:
            if self._resolved and slice_.lower <= self._resolved:
                raise ContractError(
                    f"{self._owner} broke its contract: a slice begins at {slice_.lower}, but {self._resolved} is"
                    " resolved already"
                )
        if planned_by is None:
            self._plans.save(
                end["step"], start=start["token"], end=end["token"], after=after, slices=slices, blocked=blocked
            )
        return [
            SlicePartition(
                slice_,
                SliceInfo(step=end["step"], index=index, lower=slice_.lower, planned_by=planned_by),
                slices=len(slices),
                end=end["token"],
                blocked=blocked,
            )
            for index, slice_ in enumerate(slices)
        ]

    def close(self) -> None:
        self._rangefeed.close()
        self._store.close()

    def _blocked(self) -> Sequence[Any]:
        return self._store.blocked_keys(self._name) if self._blocks_keys else ()

    def _after(self, start: Offset) -> Timestamp:
        """Return how far time got with the step that ended at *start*, and set when the next one may begin.

        The coordinator has saved it: Spark plans a step only after the one before was committed.
        """
        if self._latest_of != start["step"]:
            progress = self._store.load(self._name)
            assert progress is not None
            self._latest, self._latest_of = progress.latest, start["step"]
            self._resolved = progress.frontier.high_water
            self._not_before = time.monotonic() + self._wait_s(start["token"])
        return self._latest

    def _wait_s(self, token: Token) -> float:
        """Return how long the next step must wait so that steps are min_checkpoint_frequency apart.

        Counted in the source's time, from where the last step ended: a feed that is behind does not wait at all.
        """
        if not self._frequency_s or not self._latest or self._rangefeed.scan_progress(token) is not None:
            return 0.0
        return self._frequency_s - (self._rangefeed.now().wall - self._latest.wall) / 1e9


class WarmUpReader(DataSourceStreamReader):
    """One step without rows, to start the processes and load what they will need before the first row matters."""

    def __init__(self, config: RunConfig) -> None:
        self._config = config

    def initialOffset(self) -> Offset:  # noqa: N802
        return {"step": -1}

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: ARG002, N802
        return {"step": 0}

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        if start == end:
            return []
        info = SliceInfo(step=0, index=0, lower=Timestamp())
        return [SlicePartition(None, info, slices=1, end={})] * self._config.parallelism

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        with self._config.guarded():
            self._config.load()
            yield note(BEGIN, {"step": 0, "index": 0, "lower": str(Timestamp())})
            yield note(END, {})
