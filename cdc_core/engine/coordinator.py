"""The coordinator: carries out what the step machine wants of a step whose slices have reported.

The order is the at-least-once rule: every slice has flushed and reported, then progress is saved together with the
index of the dead letters, then the resolved mark is emitted, then the source may release history.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from cdc_core.config.parts import Parts
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.delivery.bad_rows import too_many
from cdc_core.delivery.tracing import TraceWriter
from cdc_core.engine.attempt_channel import AttemptChannel, Saved
from cdc_core.engine.driver_log import slow_slices
from cdc_core.engine.resolved_marks import ResolvedMarks, open_resolved_marks
from cdc_core.engine.slices import SliceReport
from cdc_core.engine.step_actions import Completing, EmitResolved, Release, Save
from cdc_core.engine.step_machine import StepMachine, StepRules, perform
from cdc_core.errors import ContractError, RetryableError
from cdc_core.options import counted
from cdc_core.source_history import SourceHistory
from cdc_core.store.values import DeadLetter
from cdc_core.telemetry import metrics
from cdc_core.telemetry.stages import ENCODE, SINK, SOURCE, Stages, stage
from cdc_core.telemetry.tally import Tally, keep_gauges
from cdc_core.timestamp import Timestamp

if TYPE_CHECKING:
    from cdc_core.store.progress import ProgressStore

log = logging.getLogger(__name__)

_BUDGET_PERIOD = timedelta(hours=1)
_METRICS_SAVED_S = 30.0
"""The source's gauges after a step are saved with the next step, and at once when they were not saved for so long."""
_HOSTS_TOLD_S = 10.0
"""How often a status changes that says where slices ran: no oftener than one that is as before is saved anyway."""
_LAST_SLICES = 100
_LONG_BETWEEN_STEPS_S = 5.0
"""When steps are so far apart, the connection to the store is given back between them."""


class Coordinator:
    """Makes the steps of attempt `feed.epoch` count.

    Lives in a commit process of Spark. Several of these serve all changefeeds of a driver and end after an idle minute,
    so an attempt may have several instances: what must outlive a step is in the store. Driver and planner are told of
    each saved step through *channel*.

    A step takes three transactions of the store: one saves progress, one proves that the attempt is the newest before a
    mark is emitted, one before history is released; without a mark the second is left out. Whatever else is to be read
    or saved is part of these. Others are no part of each step: an instance that does not continue its own last step
    loads the progress first, where steps are half a minute apart the source's gauges are saved at once, and what is
    known of traced changes is saved too.
    """

    def __init__(self, feed: ResolvedChangefeed, store: ProgressStore, channel: AttemptChannel) -> None:
        self._feed = feed
        self._name, self._epoch = feed.name, feed.epoch
        self._store = store
        self._channel = channel
        self._marks: ResolvedMarks | None = None
        self._history: SourceHistory | None = None
        self._traced = TraceWriter(store, marks=feed.options.resolved is not None)
        self._follows = False
        """Whether the step before was this instance's too: then it knows the source's gauges and the mark since."""
        self._metrics_saved_at = float("-inf")
        self._committed_at = time.monotonic()
        self._uncounted = Tally()
        """What the next saved step counts beside its own: of the call before it."""
        self._machine = StepMachine(StepRules.of(feed), now=time.monotonic())
        self._step: int | None = None
        """The last one that this instance has completed."""
        self._emitted = Timestamp()
        """The last mark that this instance has emitted, while it continues its own last step."""
        self._hosts: deque[str] = deque(maxlen=_LAST_SLICES)
        self._hosts_told_at = float("-inf")
        self._tally = Tally()
        """Totals over all runs, as they are saved with progress."""

    def step_done(self, reports: Sequence[SliceReport | None], *, stages: Stages | None = None) -> None:
        """Make a finished step count. *stages* are those of this call.

        Raises: ContractError, and saves nothing, when a slice has not reported; FencedError when a newer attempt took
        over; whatever the sink raises for a resolved mark. After an exception the attempt must start again from the
        store.
        """
        self._continue_before(reports)
        perform(self._machine.complete(reports, time.monotonic()), partial(self._do, stages))
        self._save_metrics()
        now = time.monotonic()
        if now - self._committed_at >= _LONG_BETWEEN_STEPS_S:
            self._store.release_connections()  # there may be one coordinator for each changefeed
        self._committed_at = now
        if stages is not None:
            _add_seconds(self._uncounted, stages.seconds)

    def close(self) -> None:
        for component in (self._marks, self._history):
            if component is not None:
                component.close()
        self._store.close()

    def _continue_before(self, reports: Sequence[SliceReport | None]) -> None:
        """Continue from the store when another instance, or an earlier attempt, has completed the step before."""
        step = next((report.planned.info.step for report in reports if report is not None), 0)
        self._follows = self._step is not None and step == self._step + 1
        if not self._follows:
            progress = self._store.progress.load(self._name)
            if progress is None:
                raise ContractError(f"engine: changefeed '{self._name}' runs without saved progress")
            self._machine.resume(progress, step=step - 1, now=time.monotonic())
            self._tally, self._emitted = progress.tally, Timestamp()
            self._hosts = deque(Counter(self._channel.hosts()).elements(), _LAST_SLICES)
        self._step = step

    def _do(self, stages: Stages | None, action: Completing) -> None:
        match action:
            case Save():
                self._save(action)
            case EmitResolved():
                with stage(SINK):
                    if self._marks is None:
                        self._marks = open_resolved_marks(self._feed, self._store)
                    self._marks.emit(action.mark, latest=action.latest, stages=stages)
                self._emitted = action.mark
            case Release():
                self._traced.resolved(self._machine.emitted)
                # It may have been moved back meanwhile: then the source is to keep what comes again.
                if self._marks is None:
                    self._store.changefeeds.require_newest(self._name, self._epoch)
                else:
                    self._marks.finish(remember=bool(self._feed.options.resolved) or not self._follows)
                with stage(SOURCE):
                    self._release(action)

    def _save(self, action: Save) -> None:
        self._count(action.reports)
        delivered = [entry for report in action.reports for entry in report.flushed.delivered]
        unrecorded = delivered and self._feed.options.resolved is None
        letters = [letter for report in action.reports for letter in report.dead_letters]
        begun = time.monotonic()
        refused = self._store.progress.save(
            self._name,
            self._epoch,
            replace(action.progress, counters=self._tally.saved(), emitted=self._emitted),
            delivered=None if unrecorded else delivered,
            dead_letters=letters,
            refused_since=datetime.now(UTC) - _BUDGET_PERIOD if letters else None,
        )
        if self._follows and begun - self._metrics_saved_at < _METRICS_SAVED_S:
            self._metrics_saved_at = begun
        self._uncounted.observe(metrics.CHECKPOINT_SECONDS, time.monotonic() - begun)
        if self._feed.options.log_slow is not None:
            for line in slow_slices(action.reports, self._feed.options.log_slow):
                self._channel.warn(line)
        progress = action.progress
        self._channel.publish_saved(Saved(action.step, progress.frontier.high_water, progress.latest))
        if traced := [change for report in action.reports for change in report.traced]:
            self._traced.saved(traced)
        if letters:
            self._keep_budget(refused, letters[-1])
        self._hosts.extend(report.host for report in action.reports if report.host)
        if self._hosts and begun - self._hosts_told_at >= _HOSTS_TOLD_S:
            self._channel.publish_hosts(Counter(self._hosts))
            self._hosts_told_at = begun

    def _count(self, step: Sequence[SliceReport]) -> None:
        tally = self._tally
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

    def _keep_budget(self, count: int, last: DeadLetter) -> None:
        """Raise a TerminalError when *count*, that of rows refused within the last hour, is above dead_letter_max.

        They are durable and their step is saved: the next run continues after them, until the next bad row.
        """
        limit = self._feed.options.dead_letter_max
        if count > limit:
            what = f"{counted(count, 'row')} refused within an hour, but dead_letter_max is {limit}"
            raise too_many(self._name, what, last)

    def _release(self, action: Release) -> None:
        if self._history is None:
            self._history = Parts(self._feed).open_history()
        tally = self._tally
        try:
            self._history.release(action.token)
            keep_gauges(tally, self._history.metrics(), at=time.time())
            self._channel.publish_source_warning(self._history.notice())
            if tally.clear(metrics.UNRELEASED_STEPS):
                self._metrics_saved_at = float("-inf")
        except RetryableError as error:
            self._metrics_saved_at = float("-inf")  # another instance may take the next step
            # History kept longer than needed is harmless, and the next step's release covers this one.
            tally.add(metrics.RELEASE_FAILURES)
            tally.set(metrics.UNRELEASED_STEPS, tally.value(metrics.UNRELEASED_STEPS) + 1)
            log.warning("the source did not release its history; the next step will try again: %s", error)

    def _save_metrics(self) -> None:
        now = time.monotonic()
        if now - self._metrics_saved_at >= _METRICS_SAVED_S:
            self._store.progress.save_counters(self._name, self._epoch, self._tally.saved())
            self._metrics_saved_at = now


def _add_seconds(tally: Tally, seconds: Mapping[str, float]) -> None:
    for name in (SOURCE, ENCODE, SINK):
        tally.add(metrics.STAGE_SECONDS, seconds.get(name, 0.0), name)
