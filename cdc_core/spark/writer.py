"""A sink as a Spark streaming data sink. No rule of the domain lives here.

`write` runs in reused worker processes, one call a slice; `commit` runs in one process that outlives the steps, but
with a new writer each time. So both keep what stays open at module level.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from cdc_core.delivery.bad_rows import bad_rows_of
from cdc_core.delivery.routing import Routing
from cdc_core.engine.aggregator import ReaderDiedError, write_slice
from cdc_core.engine.attempt_channel import COORDINATOR, SLICE
from cdc_core.engine.attempt_config import AttemptConfig, MaskedError
from cdc_core.engine.coordinator import Coordinator
from cdc_core.engine.fencing import EpochCheck, FencedSink
from cdc_core.engine.packing import Arriving
from cdc_core.engine.slices import SliceReport, joined_failures
from cdc_core.engine.topic_admission import TopicAdmission
from cdc_core.engine.trace_writer import TraceWriter
from cdc_core.engine.worker_cache import WorkerCache
from cdc_core.envelope import DeleteForm
from cdc_core.sink import Sink
from cdc_core.spark.evaluated_rows import opened
from cdc_core.telemetry.stages import SINK, STORE

__all__ = ["ReportMessage", "SinkWriter", "open_writer"]

_sinks: WorkerCache[Sink] = WorkerCache()
_dead_letter_sinks: WorkerCache[Sink] = WorkerCache()
_epoch_checks: WorkerCache[EpochCheck] = WorkerCache()
_admissions: WorkerCache[TopicAdmission] = WorkerCache()
_coordinators: WorkerCache[Coordinator] = WorkerCache()


@dataclass
class ReportMessage(WriterCommitMessage):
    """What became of a slice, on its way to the coordinator: its report, or the text of a MaskedError.

    Raising the error would cost one of several task attempts, repeated at once. As a message it fails the step, and the
    driver waits as long as the error asks for. A batch that was `idle`, and a warm-up, have neither.
    """

    report: SliceReport | None = None
    failure: str | None = None
    idle: bool = False


def _task_attempt() -> int:
    """Return how often Spark began this task before; 0 outside of Spark."""
    task = TaskContext.get()
    return 0 if task is None else int(task.attemptNumber())


def open_writer(option: str) -> SinkWriter:
    """Return the writer of the attempt in *option*."""
    return SinkWriter(AttemptConfig.from_option(option))


class SinkWriter(DataSourceStreamArrowWriter):
    """Writes slices on executors; `commit` is the coordinator's turn."""

    def __init__(self, config: AttemptConfig) -> None:
        self._config = config

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        config = self._config
        with config.guarded():
            if config.warm_up:
                config.load()
                for _ in iterator:
                    pass
                return ReportMessage()
        try:
            with (
                config.guarded(),
                config.at_work(),
                config.channel.at_stages(SLICE, first=SINK) as stages,
                _epoch_checks.use(config.key, config.open_epoch_check) as check,
                _sinks.use(config.key, config.open_sink) as sink,
                ExitStack() as opened,
            ):

                def open_dead_letter_sink() -> Sink:
                    return FencedSink(opened.enter_context(self._dead_letter_sink()), check.require_newest, stages)

                fenced = FencedSink(sink, check.require_newest, stages)
                routing = None
                if config.feed.routes:
                    admission = opened.enter_context(_admissions.use(config.key, config.open_topic_admission))
                    routing = Routing(partial(admission.admit, sink=sink, fenced=fenced))
                report = write_slice(
                    fenced,
                    self._arriving(iterator),
                    refuses_rows=config.feed.sink.registration.refuses_rows,
                    bad_rows=bad_rows_of(config.feed, open_sink=open_dead_letter_sink),
                    stages=stages,
                    task_attempt=_task_attempt(),
                    routing=routing,
                    write_traced=TraceWriter(check.store).write,
                )
                return ReportMessage(report=report, idle=report is None)
        except ReaderDiedError:
            raise
        except MaskedError as error:
            return ReportMessage(failure=str(error))

    def _arriving(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Arriving]:
        """Return what arrived, opened if it has the columns layout."""
        plans = self._config.plans
        if not plans:
            return batches
        as_rows = self._config.feed.envelope().delete is DeleteForm.KEY_AND_NULLS
        return opened(batches, plans, deletes_as_rows=as_rows)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        if self._config.warm_up:
            return
        with self._config.guarded():
            sent = [message for message in messages if isinstance(message, ReportMessage)]
            if messages and len(sent) == len(messages) and all(message.idle for message in sent):
                return
            failures = [message.failure for message in sent if message.failure is not None]
            if failures:
                raise MaskedError(joined_failures(failures))
            reports = [message.report for message in sent]
            with (
                self._config.at_work(),  # or one that is stuck could emit its mark after those of a newer run
                self._config.channel.at_stages(COORDINATOR, first=STORE) as stages,
                _coordinators.use(self._config.key, self._open_coordinator) as coordinator,
            ):
                coordinator.step_done(reports, stages=stages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Undo nothing: siblings may still write, and flushed rows may be there twice."""

    def _dead_letter_sink(self) -> AbstractContextManager[Sink]:
        return _dead_letter_sinks.use(self._config.key, self._config.open_dead_letter_sink)

    def _open_coordinator(self) -> Coordinator:
        config = self._config
        return Coordinator(config.feed, config.open_store(alone=True), config.channel)
