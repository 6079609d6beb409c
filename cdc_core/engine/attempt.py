"""What a host calls of an attempt, and in which process: the planner's, a task's on an executor, the coordinator's.

Spark (`cdc_core.spark.data_sources`), and hosts that run tasks in threads, call the same methods in the same order: for
each step `next_offset` and `tasks`, for each task `read` and `write`, then `commit`. Each process makes an `Attempt` of
its own; values that pass between them are picklable. Every error that leaves is a MaskedError.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from cdc_core.config.parts import Parts
from cdc_core.delivery.bad_rows import bad_rows_of
from cdc_core.delivery.delivery import Delivery
from cdc_core.delivery.routing import Routing, TopicAdmission
from cdc_core.delivery.tracing import TraceWriter
from cdc_core.engine.aggregator import ReaderDiedError, read_slice, write_slice
from cdc_core.engine.attempt_channel import COORDINATOR, PLANNER, SLICE
from cdc_core.engine.attempt_config import AttemptConfig, MaskedError
from cdc_core.engine.coordinator import Coordinator
from cdc_core.engine.fencing import EpochCheck, FencedSink
from cdc_core.engine.packing import BEGIN, FAILED, IDLE, Arriving, note, pack, unpack
from cdc_core.engine.planner import Offset, Planner
from cdc_core.engine.slices import PlannedSlice, SliceReport, TaskMessage, claim, joined_failures, offers
from cdc_core.engine.time_range import TimeRange
from cdc_core.engine.worker_cache import WorkerCache
from cdc_core.placement import executor_locality
from cdc_core.rows import RowBatch
from cdc_core.sink import Sink, SliceInfo
from cdc_core.slice_reader import SliceReader
from cdc_core.telemetry.stages import SINK, SOURCE, STORE, waited_for
from cdc_core.timestamp import Timestamp

if TYPE_CHECKING:
    from cdc_core.store.progress import ProgressStore

_readers: WorkerCache[SliceReader] = WorkerCache()
_stores: WorkerCache[ProgressStore] = WorkerCache()
_sinks: WorkerCache[Sink] = WorkerCache()
_dead_letter_sinks: WorkerCache[Sink] = WorkerCache()
_epoch_checks: WorkerCache[EpochCheck] = WorkerCache()
_admissions: WorkerCache[TopicAdmission] = WorkerCache()
_coordinators: WorkerCache[Coordinator] = WorkerCache()

_MAX_WAIT_S = 0.5
"""How long the planner may keep its host waiting for an answer."""

Task = tuple[PlannedSlice, ...]
"""The slices of a step from which a task takes one: see `cdc_core.engine.slices`."""


def open_attempt(option: str) -> Attempt | WarmUp:
    """Return the attempt in *option*, for this process."""
    config = AttemptConfig.from_option(option)
    return WarmUp(config) if config.warm_up else Attempt(config)


class Attempt:
    """One attempt in one process. See the module."""

    def __init__(self, config: AttemptConfig) -> None:
        self.config = config
        self._channel = config.channel
        self._planner: Planner | None = None

    # The planner's process.

    @property
    def first_offset(self) -> Offset:
        """Where the attempt starts, however often one asks: in a value that moved, a step would be lost."""
        return {"step": -1, "token": self.config.start}

    def next_offset(self, start: Offset) -> Offset:
        """Return where the step after *start* ends: *start* itself, perhaps after a moment, while there is none."""
        with self.config.guarded():
            if self._channel.stop_requested:
                self._channel.acknowledge_stop()
                return start
            with self._planning():
                planner = self._open_planner()
                end = planner.next_step(start)
            if end == start:  # each question costs the host more than the answer costs us
                planner.release_connections()
                self._channel.wait_for_stop(min(planner.wait_s, _MAX_WAIT_S))
            return end

    def tasks(self, start: Offset, end: Offset) -> Sequence[Task]:
        """Return the tasks of the step from *start* to *end*, which `next_offset` returned last.

        There is one where there is nothing to do: without it `commit` would see what readers that died leave.
        """
        with self.config.guarded():
            if start == end:
                return [(_nothing(),)]
            with self._planning():
                planner = self._open_planner()
                offered = offers(self.config, planner.slices())
                if len(offered[0]) > 1:
                    planner.forget_claims(end)
                return offered

    def close(self) -> None:
        """Release what the planner holds."""
        with self.config.guarded():
            if self._planner is not None:
                self._planner.close()

    # Tasks.

    def read(
        self,
        number: int,
        task: Task,
        *,
        pack: Callable[[RowBatch], Iterator[pa.RecordBatch]] = pack,
        shown: Callable[[RowBatch], RowBatch] = lambda rows: rows,
    ) -> Generator[tuple[int, pa.RecordBatch]]:
        """Yield the slice that *task* with this *number* takes, as `read_slice` does, each with its writing task.

        A writing task must get what several reading tasks have for it from one after the other, and in order. An error
        is yielded as a note: raising it would cost one of several attempts at the task, repeated at once.
        """
        config, exchanged = self.config, self.config.exchanges
        writers = config.writers if exchanged else 1
        try:
            with ExitStack() as opened:
                opened.enter_context(config.guarded())
                if number == 0:
                    for idle in range(task[0].slices, writers):
                        yield idle, note(IDLE, {})
                if task[0].slice is None:
                    return
                opened.enter_context(config.at_work())
                if exchanged:  # otherwise the writer does, which waits for the rows
                    opened.enter_context(self._channel.at_stages(SLICE, first=SINK))
                reader = opened.enter_context(_readers.use(config.key, config.open_reader))
                planned = self._claimed(number, task)
                parts = read_slice(
                    reader,
                    planned,
                    within=TimeRange.of(config.feed.options),
                    max_row_bytes=config.feed.options.max_row_bytes,
                    pack=pack,
                    shown=shown,
                    exchanged=exchanged,
                )
                for part, batch in waited_for(parts):
                    yield (planned.info.index + part) % writers, batch
        except MaskedError as error:
            for writer in range(writers):
                yield writer, note(FAILED, {"error": str(error)})

    def write(self, batches: Iterable[Arriving], *, task_attempt: int = 0) -> TaskMessage:
        """Write slices, and return what became of them. *task_attempt* counts how often the task was begun before.

        Raises: MaskedError only when the reader has died, and another attempt at the task repairs that.
        """
        exchanged = self.config.exchanges
        try:
            with self.config.guarded():
                slices = _by_slice(unpack(batches)) if exchanged else [batches]
                written = [self._write_slice(each, task_attempt=task_attempt) for each in slices]
        except MaskedError as error:
            if isinstance(error, ReaderDiedError) and not exchanged:
                raise
            return TaskMessage(failure=str(error))
        reports = tuple(report for report in written if report is not None)
        return TaskMessage(reports=reports, idle=not reports)

    def _write_slice(self, batches: Iterable[Arriving], *, task_attempt: int) -> SliceReport | None:
        config = self.config
        with (
            config.at_work(),
            self._channel.at_stages(SLICE, first=SINK) as stages,
            _epoch_checks.use(config.key, config.open_epoch_check) as check,
            _sinks.use(config.key, config.open_sink) as sink,
            ExitStack() as opened,
        ):

            def open_dead_letter_sink() -> Sink:
                letters = _dead_letter_sinks.use(config.key, config.open_dead_letter_sink)
                return FencedSink(opened.enter_context(letters), check.require_newest, stages)

            fenced = FencedSink(sink, check.require_newest, stages)
            routing = None
            if config.feed.routes:
                admission = opened.enter_context(_admissions.use(config.key, config.open_topic_admission))
                routing = Routing(partial(admission.admit, sink=sink, fenced=fenced))
            bad_rows, target = bad_rows_of(config.feed, open_sink=open_dead_letter_sink), config.feed.sink
            refuses_rows = target.registration.refuses_rows
            return write_slice(
                Delivery(fenced, bad_rows, owner=target.owner, refuses_rows=refuses_rows, tally=stages.tally),
                bad_rows,
                batches,
                stages=stages,
                task_attempt=task_attempt,
                routing=routing,
                write_traced=TraceWriter(check.store).write,
            )

    # The coordinator's process.

    def commit(self, messages: Sequence[TaskMessage | None]) -> None:
        """Make the step count whose tasks have sent *messages*; do nothing if there was nothing to do."""
        with self.config.guarded():
            sent = [message for message in messages if message is not None]
            if messages and len(sent) == len(messages) and all(message.idle for message in sent):
                return
            failures = [message.failure for message in sent if message.failure is not None]
            if failures:
                raise MaskedError(joined_failures(failures))
            with (
                self.config.at_work(),  # or one that is stuck could emit its mark after those of a newer run
                self._channel.at_stages(COORDINATOR, first=STORE) as stages,
                _coordinators.use(self.config.key, self._open_coordinator) as coordinator,
            ):
                coordinator.step_done([report for message in sent for report in message.reports], stages=stages)

    @contextmanager
    def _planning(self) -> Iterator[None]:
        with self._channel.collected_warnings(), self._channel.at_stages(PLANNER, first=SOURCE):
            yield

    def _open_planner(self) -> Planner:
        if self._planner is None:
            self._planner = Planner(self.config, Parts(self.config.feed).open_planner())
        return self._planner

    def _claimed(self, number: int, task: Task) -> PlannedSlice:
        """Return the slice that the task reads: without asking the store where it has no choice."""
        if len(task) == 1:
            return task[0]
        with _stores.use(self.config.key, self.config.open_store_of_host) as store:
            return claim(store, self.config, number, task, executor_locality())

    def _open_coordinator(self) -> Coordinator:
        return Coordinator(self.config.feed, self.config.open_store(alone=True), self._channel)


class WarmUp(Attempt):
    """One step without rows, to start the processes and load what they will need before the first row matters."""

    @property
    def first_offset(self) -> Offset:
        return {"step": -1}

    def next_offset(self, start: Offset) -> Offset:  # noqa: ARG002
        return {"step": 0}

    def tasks(self, start: Offset, end: Offset) -> Sequence[Task]:
        return [] if start == end else [(_nothing(),)] * self.config.feed.parallelism

    def read(self, number: int, task: Task, **how: object) -> Generator[tuple[int, pa.RecordBatch]]:  # noqa: ARG002
        with self.config.guarded():
            self.config.load()
            yield number, note(IDLE, {})

    def write(self, batches: Iterable[Arriving], *, task_attempt: int = 0) -> TaskMessage:  # noqa: ARG002
        with self.config.guarded():
            self.config.load()
            for _ in batches:
                pass
            return TaskMessage(idle=True)

    def commit(self, messages: Sequence[TaskMessage | None]) -> None:
        """There is nothing to save."""


def _by_slice(values: Iterator[tuple[str, Any]]) -> Iterator[Iterator[tuple[str, Any]]]:
    """Yield the *values* of each slice and each `idle`, nothing if there are none. Take all of one before the next."""
    ahead = list(islice(values, 1))

    def one() -> Iterator[tuple[str, Any]]:
        if ahead:
            yield ahead.pop()
        for value in values:
            if value[0] in (BEGIN, IDLE):
                ahead.append(value)
                return
            yield value
            del value  # a large one would stay while the next one arrives

    while True:
        yield one()
        ahead.extend(() if ahead else islice(values, 1))  # the reader of an `idle` stops without reading ahead
        if not ahead:
            return


def _nothing() -> PlannedSlice:
    """Return what stands for a step in which there is nothing to read."""
    return PlannedSlice(slice=None, info=SliceInfo(step=0, index=0, lower=Timestamp()), slices=0, end={})
