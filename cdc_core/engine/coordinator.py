"""The coordinator: what happens after each step.

The order is the at-least-once rule and never changes: every slice has flushed and reported, then progress is saved
together with the index of the dead letters, then the resolved mark is emitted, then the source may release history.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from cdc_core.delivery.bad_rows import too_many
from cdc_core.engine.attempt_channel import Saved
from cdc_core.engine.reports import SliceReport, complete_step
from cdc_core.engine.resolved_marks import ResolvedMarks
from cdc_core.engine.slow_log import slow_slices
from cdc_core.engine.traced_changes import TracedChanges
from cdc_core.errors import ContractError, RetryableError
from cdc_core.options import counted
from cdc_core.shards.marks import token_with_marks
from cdc_core.source_history import SourceHistory
from cdc_core.store.values import DeadLetter, Progress
from cdc_core.telemetry import metrics
from cdc_core.telemetry.source_gauges import keep_gauges
from cdc_core.telemetry.stages import ENCODE, SINK, SOURCE, Stages, stage
from cdc_core.telemetry.tally import Tally
from cdc_core.timestamp import Timestamp

if TYPE_CHECKING:
    from cdc_core.store.progress import ProgressStore

__all__ = ["Coordinator"]

log = logging.getLogger(__name__)

_BUDGET_PERIOD = timedelta(hours=1)
_METRICS_SAVED_S = 30.0
"""The source's gauges after a step are saved with the next step, and at once when they were not saved for so long."""
_LONGEST_APART_S = 10.0
"""After so long a mark is emitted although less of the source's time has passed than marks are to be apart."""
_LONG_BETWEEN_STEPS_S = 5.0
"""When steps are so far apart, the connection to the store is given back between them."""


class Coordinator:
    """Folds the reports of each step into the saved progress of one attempt.

    Lives in a commit process of Spark. Several of these serve all changefeeds of a driver and end after an idle minute,
    so an attempt may have several instances: what must outlive a step is in the store. *saved* tells driver and planner
    of each saved step, *noticed* what the source says. *resolved_interval_s* is the least distance between two emitted
    resolved marks, None for none at all. *open_marks* and *open_history* are called when first needed. *warn* gets a
    line about each slice that took longer than *log_slow_s*.
    """

    def __init__(
        self,
        *,
        name: str,
        epoch: int,
        store: ProgressStore,
        open_marks: Callable[[], ResolvedMarks],
        open_history: Callable[[], SourceHistory],
        saved: Callable[[Saved], object],
        noticed: Callable[[str | None], object],
        resolved_interval_s: float | None,
        dead_letter_max: int = 0,
        log_slow_s: float | None = None,
        warn: Callable[[str], object] = log.warning,
    ) -> None:
        self._name = name
        self._epoch = epoch
        self._store = store
        self._open_marks = open_marks
        self._open_history = open_history
        self._saved = saved
        self._noticed = noticed
        self._resolved_interval_s = resolved_interval_s
        self._dead_letter_max = dead_letter_max
        self._log_slow_s = log_slow_s
        self._warn = warn
        self._marks: ResolvedMarks | None = None
        self._history: SourceHistory | None = None
        self._traced = TracedChanges(store, marks=resolved_interval_s is not None)
        self._metrics_saved_at = float("-inf")
        self._committed_at = time.monotonic()
        self._uncounted = Tally()
        """What the next saved step counts beside its own: of the call before it."""
        self._step: int | None = None
        self._progress = Progress(token={})
        self._emitted, self._emitted_at = Timestamp(), time.monotonic()

    def step_done(self, reports: Sequence[SliceReport | None], *, stages: Stages | None = None) -> None:
        """Make a finished step count. *stages* are those of this call.

        Raises: ContractError, and saves nothing, when a slice has not reported; FencedError when a newer attempt took
        over; whatever the sink raises for a resolved mark. After an exception the attempt must start again from the
        store.
        """
        step = complete_step(reports)
        if self._step is None or step[0].step != self._step + 1:
            self._load()
        self._fold(step)
        delivered = [entry for report in step for entry in report.flushed.delivered]
        unrecorded = delivered and self._resolved_interval_s is None
        letters = [letter for report in step for letter in report.dead_letters]
        begun = time.monotonic()
        self._store.save(
            self._name,
            self._epoch,
            self._progress,
            delivered=None if unrecorded else delivered,
            dead_letters=letters,
        )
        self._uncounted.observe(metrics.CHECKPOINT_SECONDS, time.monotonic() - begun)
        if self._log_slow_s is not None:
            for line in slow_slices(step, self._log_slow_s):
                self._warn(line)
        self._step = step[0].step
        self._saved(Saved(self._step, self._progress.frontier.high_water, self._progress.latest))
        if traced := [change for report in step for change in report.traced]:
            self._traced.saved(traced)
        if letters:
            self._keep_budget(letters[-1])
        with stage(SINK):
            self._emit_resolved(stages)
        self._traced.resolved(self._emitted)
        with stage(SOURCE):
            # It may have been moved back while this process was stopped. Then the source is to keep what comes again.
            self._store.require_newest(self._name, self._epoch)
            self._release()
        self._save_metrics()
        now = time.monotonic()
        if now - self._committed_at >= _LONG_BETWEEN_STEPS_S:
            self._store.rest()  # there may be one coordinator for each changefeed
        self._committed_at = now
        if stages is not None:
            _add_seconds(self._uncounted, stages.seconds)

    def close(self) -> None:
        for component in (self._marks, self._history):
            if component is not None:
                component.close()
        self._traced.close()
        self._store.close()

    def _load(self) -> None:
        """Continue from the store: another instance, or an earlier attempt, has taken the steps before this one."""
        progress = self._store.load(self._name)
        if progress is None:
            raise ContractError(f"engine: changefeed '{self._name}' runs without saved progress")
        if progress.emitted != self._emitted:
            self._emitted_at = time.monotonic()
        self._progress, self._emitted = progress, progress.emitted

    def _fold(self, step: Sequence[SliceReport]) -> None:
        progress = self._progress
        frontier, latest = progress.frontier, progress.latest
        marks = [mark for report in step for mark in report.marks]
        for mark in marks:
            if mark.resolved and mark.timestamp < (reached := frontier.of(mark.span)):
                raise ContractError(
                    f"rangefeed broke its contract: span {mark.span} is resolved at {mark.timestamp}, below {reached},"
                    " which an earlier step reached"
                )
        for mark in marks:
            if mark.resolved:
                frontier.forward(mark.span, mark.timestamp)
            latest = max(latest, mark.timestamp)
        tally = progress.tally
        tally.merge(self._uncounted.saved())
        self._uncounted = Tally()
        tally.add(metrics.STEPS)
        for metric, amount in (
            (metrics.ROWS, sum(report.rows for report in step)),
            (metrics.ROWS_REPEATED, sum(report.repeated for report in step)),
            (metrics.MESSAGES, sum(report.flushed.messages for report in step)),
            (metrics.BYTES, sum(report.flushed.bytes for report in step)),
            (metrics.FILES, sum(report.flushed.files for report in step)),
            (metrics.DEAD_LETTERS, sum(len(report.dead_letters) for report in step)),
        ):
            tally.add(metric, amount)
        tally.observe(metrics.STEP_SECONDS, max(report.seconds for report in step))
        for report in step:
            tally.merge(report.counted)
            _add_seconds(tally, report.stages)
        token = token_with_marks(step[0].end, marks, frontier=frontier, before=progress.latest)
        self._progress = Progress(token=token, frontier=frontier, latest=latest, counters=tally.saved())

    def _keep_budget(self, last: DeadLetter) -> None:
        """Raise a TerminalError when more than dead_letter_max rows were refused within the last hour.

        They are durable and their step is saved: the next run continues after them, until the next bad row.
        """
        count = self._store.count_dead_letters(self._name, since=datetime.now(UTC) - _BUDGET_PERIOD)
        if count > self._dead_letter_max:
            what = f"{counted(count, 'row')} refused within an hour, dead_letter_max is {self._dead_letter_max}"
            raise too_many(self._name, what, last)

    def _emit_resolved(self, stages: Stages | None) -> None:
        high_water = self._progress.resolved
        if self._resolved_interval_s is None or high_water <= self._emitted:
            return
        apart_s = (high_water.wall - self._emitted.wall) / 1e9
        if time.monotonic() - self._emitted_at >= max(self._resolved_interval_s, _LONGEST_APART_S):
            apart_s = self._resolved_interval_s  # the source's clock went back, or the changefeed is slow
        if self._emitted and apart_s < self._resolved_interval_s:
            return
        if self._marks is None:
            self._marks = self._open_marks()
        self._marks.emit(high_water, latest=self._progress.latest, stages=stages)
        self._emitted, self._emitted_at = high_water, time.monotonic()

    def _release(self) -> None:
        if self._history is None:
            self._history = self._open_history()
        tally = self._progress.tally
        try:
            self._history.release(self._progress.token)
            keep_gauges(tally, self._history.metrics(), at=time.time())
            self._noticed(self._history.notice())
            if tally.clear(metrics.UNRELEASED_STEPS):
                self._metrics_saved_at = float("-inf")
        except RetryableError as error:
            self._metrics_saved_at = float("-inf")  # another instance may take the next step
            # History kept longer than needed is harmless, and the next step's release covers this one.
            tally.add(metrics.RELEASE_FAILURES)
            tally.set(metrics.UNRELEASED_STEPS, tally.value(metrics.UNRELEASED_STEPS) + 1)
            log.warning("the source did not release its history; the next step tries again: %s", error)
        self._progress = replace(self._progress, counters=tally.saved())

    def _save_metrics(self) -> None:
        now = time.monotonic()
        if now - self._metrics_saved_at >= _METRICS_SAVED_S:
            self._store.save_counters(self._name, self._epoch, self._progress.counters)
            self._metrics_saved_at = now


def _add_seconds(tally: Tally, seconds: Mapping[str, float]) -> None:
    for name in (SOURCE, ENCODE, SINK):
        tally.add(metrics.STAGE_SECONDS, seconds.get(name, 0.0), name)
