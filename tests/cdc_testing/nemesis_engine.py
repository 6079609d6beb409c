"""The real engine with faults and bugs that can be ordered from outside, in each of its processes.

Spark is given data sources under the engine's own names. They are the engine's, but for what they build their parts
from: a feed and a store of `cdc_testing.nemesis_faults`, and the bug whose name stands in the run's control directory.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from cdc_testing.engine_bugs import installed
from cdc_testing.kept_spark import KeptSpark
from cdc_testing.local_engine import wrapped
from cdc_testing.nemesis_faults import (
    FaultyHistory,
    FaultyPlanner,
    FaultyReader,
    FaultyResolvedSink,
    FaultySink,
    FaultyStore,
)
from pyspark.sql.datasource import DataSourceStreamArrowWriter, DataSourceStreamReader
from pyspark.sql.types import StructType

from cdc_core.engine.attempt import Attempt, Task
from cdc_core.engine.attempt_config import AttemptConfig
from cdc_core.engine.planner import Offset
from cdc_core.engine.slices import TaskMessage
from cdc_core.spark.data_sources import OPTION, AttemptReader, AttemptWriter, ChangefeedSink, RangefeedSource
from cdc_core.store.progress import ProgressStore

BUG = "bug"
"""Name of the file in the control directory that holds a bug's name."""


def control_of(state_dir: Path) -> Path:
    """Return where the orders for a run are."""
    return state_dir / "nemesis"


@contextmanager
def nemesis_spark(spark: KeptSpark, *, bug: str) -> Iterator[None]:
    """Let runs inside the block use *spark* with what this module puts into the engine; *bug* is this process's too."""
    from cdc_core.spark import query

    with ExitStack() as stack:
        stack.enter_context(spark.lent())
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(query, "RangefeedSource", NemesisSource)
        patch.setattr(query, "ChangefeedSink", NemesisSink)
        stack.enter_context(installed(bug))
        yield


class _FaultyConfig(AttemptConfig):
    __slots__ = ()

    def open_store(self, *, alone: bool = False) -> ProgressStore:
        return FaultyStore(self.feed.state, control_of(self.state_dir), alone=alone)


def _faulty(option: str) -> _FaultyConfig:
    config = AttemptConfig.from_option(option)
    feed, control = config.feed, control_of(config.state_dir)
    rangefeed = wrapped(
        feed.rangefeed,
        planner=lambda planner: FaultyPlanner(planner, control),
        reader=lambda reader: FaultyReader(reader, control),
        history=lambda history: FaultyHistory(history, control),
    )
    sink = wrapped(
        feed.sink,
        sink=lambda sink: FaultySink(sink, control),
        resolved_sink=lambda resolved_sink: FaultyResolvedSink(resolved_sink, control),
    )
    fields = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    return _FaultyConfig(**{**fields, "feed": dataclasses.replace(feed, rangefeed=rangefeed, sink=sink)})


def faulty_attempt(option: str) -> Attempt:
    """Return the attempt in *option* with its faults, in a process that has the bug of the run."""
    return Attempt(_faulty(option))


def _with_bug(config: AttemptConfig) -> AbstractContextManager[None]:
    """Let this process, which will serve other runs too, have the bug of this one inside the block."""
    return installed((control_of(config.state_dir) / BUG).read_text())


class NemesisSource(RangefeedSource):
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return _Reader(self.options[OPTION])


class NemesisSink(ChangefeedSink):
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        return _Writer(self.options[OPTION])


class _Reader(AttemptReader):
    @cached_property
    def attempt(self) -> Attempt:
        return _FaultyAttempt(_faulty(self._option))


class _Writer(AttemptWriter):
    @cached_property
    def attempt(self) -> Attempt:
        return _FaultyAttempt(_faulty(self._option))


class _FaultyAttempt(Attempt):
    def next_offset(self, start: Offset) -> Offset:
        with _with_bug(self.config):
            return super().next_offset(start)

    def tasks(self, start: Offset, end: Offset) -> Sequence[Task]:
        with _with_bug(self.config):
            return super().tasks(start, end)

    def read(self, number: int, task: Task, **how: Any) -> Generator[tuple[int, pa.RecordBatch]]:
        with _with_bug(self.config):
            yield from super().read(number, task, **how)

    def write(self, batches: Iterable[Any], *, task_attempt: int = 0) -> TaskMessage:
        with _with_bug(self.config):
            return super().write(batches, task_attempt=task_attempt)

    def commit(self, messages: Sequence[TaskMessage | None]) -> None:
        with _with_bug(self.config):
            super().commit(messages)
