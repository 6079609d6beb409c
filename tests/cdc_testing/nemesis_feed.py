"""A changefeed that runs in this process while a script acts on it: starts it, stops it, abandons it."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from cdc_testing import nemesis_faults as faults
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
from cdc_testing.stored import ask_rescan
from cdc_testing.thread_host import ThreadHost
from pyspark.sql.datasource import DataSourceStreamArrowWriter, DataSourceStreamReader
from pyspark.sql.types import StructType

from cdc_core.config.changefeed import Changefeed
from cdc_core.config.parts import Parts
from cdc_core.config.resolve import resolve
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.engine.attempt import Attempt, Task
from cdc_core.engine.attempt_config import AttemptConfig
from cdc_core.engine.planner import Offset
from cdc_core.engine.query_host import QueryHost
from cdc_core.engine.slices import TaskMessage
from cdc_core.engine.supervisor import Supervisor
from cdc_core.frontier import Frontier
from cdc_core.plugins.host import PluginHost
from cdc_core.rangefeed_values import Rescan
from cdc_core.spark.data_sources import OPTION, AttemptReader, AttemptWriter, ChangefeedSink, RangefeedSource
from cdc_core.spark.host import SparkHost
from cdc_core.step_planner import StepPlanner
from cdc_core.store.progress import ProgressStore, store_url
from cdc_core.timestamp import Timestamp

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


_LIMIT_S = 400.0
_POLL_S = 0.02


class TroubleError(AssertionError):
    """The changefeed did what it must never do: ended, or did not come to an end or to something in time."""


class NemesisFeed:
    """One changefeed, used by one thread."""

    def __init__(
        self, directory: Path, changefeed: Changefeed, host: PluginHost, *, bug: str = "", threads: bool
    ) -> None:
        self.state_dir = directory / "state"
        self.control = control_of(self.state_dir)
        self.control.mkdir(parents=True)
        (self.control / BUG).write_text(bug)
        self._changefeed = changefeed
        self._host = host
        self._threads = threads
        self._supervisor: Supervisor | None = None
        self._planner: StepPlanner | None = None
        self._store = ProgressStore(store_url(self.state_dir))

    def feed(self, options: Mapping[str, Any] | None = None) -> ResolvedChangefeed:
        """Return the changefeed with *options* over its own, ready to run, with the names of its tables."""
        changed = replace(self._changefeed, options={**self._changefeed.options, **(options or {})})
        feed = resolve(changed, self._host)
        with closing(Parts(feed).open_rangefeed()) as rangefeed:
            names = [schema.name for schema in rangefeed.schemas()]
        return feed.for_attempt(feed_id="", epoch=0, table_names=names)

    @contextmanager
    def serve(self) -> Iterator[None]:
        """End what runs at the end of the block, or when it fails."""
        try:
            yield
        finally:
            if self._supervisor is not None:
                self._supervisor.abandon()
                self._supervisor.wait(_LIMIT_S)
            if self._planner is not None:
                self._planner.close()
            self._store.close()

    def resume(self, options: Mapping[str, Any]) -> None:
        """Start a run with *options* over the changefeed's own."""
        feed = self.feed(options)
        host: QueryHost = SparkHost(feed.name, feed.spark, state_dir=self.state_dir)
        if self._threads:
            host = ThreadHost(open_attempt=faulty_attempt)
        self._supervisor = Supervisor(feed, store=ProgressStore(self._store.url), state_dir=self.state_dir, host=host)
        self._supervisor.start()

    def order(self, point: str, *, killed: bool) -> None:
        faults.order(self.control, point, killed=killed, threads=self._threads)

    def pause(self, *, abandoned: bool = False) -> None:
        """Return when the run has ended. Raises: TroubleError when it ended with an error, or does not end."""
        assert self._supervisor is not None, "nothing was started"
        if abandoned:
            self._supervisor.abandon()
        self._supervisor.stop()
        if self._supervisor.wait(_LIMIT_S) is None:
            raise TroubleError(f"the run did not stop in {_LIMIT_S:.0f} s")
        self._raise_error()

    @property
    def is_running(self) -> bool:
        return self._supervisor is not None and self._supervisor.outcome is None

    @property
    def phase(self) -> str:
        return "" if self._supervisor is None else self._supervisor.status.phase

    def until(self, what: str, condition: Callable[[], bool], *, limit_s: float = _LIMIT_S) -> None:
        """Return as soon as *condition* holds. Raises: TroubleError when the run ends first, or it takes too long."""
        deadline = time.monotonic() + limit_s
        pause = threading.Event()
        while not condition():
            if not self.is_running:
                self._raise_error()
                raise TroubleError(f"the run ended before {what}")
            if time.monotonic() > deadline:
                raise TroubleError(f"waited {limit_s:.0f} s for {what}")
            pause.wait(_POLL_S)

    def now(self) -> Timestamp:
        """Return the source's clock."""
        if self._planner is None:
            self._planner = Parts(self.feed()).open_planner()
        return self._planner.now()

    def frontier(self) -> Frontier:
        """Return up to where what is saved, by span."""
        progress = self._store.progress.load(self._changefeed.name)
        return Frontier(()) if progress is None else progress.frontier

    def high_water(self) -> Timestamp:
        """Return up to where all is saved."""
        return self.frontier().high_water

    def rescan(self, table: str, *, where: str | None) -> None:
        """Ask that *table*, which `schemas` of the rangefeed know by this name, is emitted again."""
        feed = self.feed()
        with closing(Parts(feed).open_rangefeed()) as rangefeed:
            full = next(schema.name.full for schema in rangefeed.schemas() if schema.name.table == table)
        wanted = Rescan(table=full, where=where)
        with closing(Parts(feed).open_planner()) as planner:
            planner.check_rescan(wanted)
        ask_rescan(self._store, feed.name, table=wanted.table, where=wanted.where)

    def rescan_began(self) -> Timestamp | None:
        """Return when the last rescan that was asked for began, once it is complete."""
        began = self._store.rescans.of(self._changefeed.name)[-1].began
        return began if began is not None and self.high_water() > began else None

    def drop(self) -> None:
        """Remove what the changefeed made at the source, once no run is there."""
        progress = self._store.progress.load(self._changefeed.name)
        feeds = [feed for feed in self._store.changefeeds.all() if feed.name == self._changefeed.name]
        if feeds:
            feed = self.feed().for_attempt(feed_id=feeds[0].feed_id, epoch=feeds[0].epoch)
            with closing(Parts(feed).open_rangefeed()) as rangefeed:
                rangefeed.drop(None if progress is None else progress.token)

    def _raise_error(self) -> None:
        outcome = None if self._supervisor is None else self._supervisor.outcome
        if outcome is not None and outcome.error is not None:
            error = outcome.error
            raise TroubleError(f"the changefeed ended: {type(error).__name__}: {error}") from error
