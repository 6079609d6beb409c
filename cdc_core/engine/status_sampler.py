"""The status while a query runs: how far it is, where its time goes, what it waits for."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.engine.attempt_channel import SLICE, Activity, AttemptChannel
from cdc_core.engine.driver_log import AttemptLog, SlowCalls
from cdc_core.masking import mask
from cdc_core.options import format_duration
from cdc_core.rangefeed_values import ScanProgress, Token
from cdc_core.store.progress import Progress
from cdc_core.telemetry import metrics
from cdc_core.telemetry.stages import ENCODE, SINK, SOURCE, STORE
from cdc_core.telemetry.status import Retrying
from cdc_core.telemetry.tally import Tally

_WINDOW_S = 10.0
"""Rates and shares cover about this long, or two steps if these are further apart."""
_MAX_SAMPLES = 100
"""About so many of them are kept, however long that is."""
_STUCK_S = 3.0
"""Report a task that has been in one stage for longer than this."""
_QUIET_S = 3.0
"""After this long without rows, and a step that had none, the changefeed waits for changes."""
_SILENT_S = 10.0
"""The same without any step, if every task is visible. A query takes some seconds to begin."""
_BUSY_S = 1.0
"""Steps without rows take less than this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sample:
    moment: float
    rows: int
    steps: int
    seconds: Mapping[str, float]


class StatusSampler:
    """Observes one attempt, a few times a second, and returns what changes in the status.

    Tasks on the driver's host are visible through *channel*; *local* says that there are no others.
    *count_dead_letters* is called when there are new ones. *silent_since* is since when the source does not answer, by
    `time.time()`. *retrying* is what had failed when the attempt began, at the token *start*.
    """

    def __init__(
        self,
        feed: ResolvedChangefeed,
        channel: AttemptChannel,
        *,
        local: bool,
        count_dead_letters: Callable[[], int],
        silent_since: float | None = None,
        retrying: Retrying | None = None,
        start: Token | None = None,
    ) -> None:
        self._silent_since = silent_since
        self._retrying, self._start = retrying, start
        self._repeated_at = 0.0
        self._owners = {
            SOURCE: feed.rangefeed.owner,
            ENCODE: feed.encoder.owner,
            SINK: feed.sink.owner,
            STORE: "the progress store",
        }
        self._secrets = feed.secrets()
        self._slow = SlowCalls(
            feed.name, feed.options.log_slow, owners=self._owners, masked=lambda text: mask(text, self._secrets)
        )
        frequency_s = feed.min_checkpoint_frequency_s
        every = f" (a step every {format_duration(frequency_s)}: min_checkpoint_frequency)"
        self._window_s = max(_WINDOW_S, 2 * frequency_s)
        self._every = every if frequency_s >= _QUIET_S else ""
        self._channel = channel
        self._log = AttemptLog(feed, channel)
        self._local = local
        self._count_dead_letters = count_dead_letters
        self._refused: float | None = None
        self._dead_letters = 0
        self._samples: list[_Sample] = []
        self._quiet_since = time.monotonic()
        self._empty_step = False
        self._busy = False

    def sample(self, progress: Progress, scan: ScanProgress | None) -> dict[str, Any]:
        """Return what the status says of *progress* and of the tasks at work."""
        now = time.monotonic()
        tally = progress.tally
        if not self._samples and progress.token != self._start:  # saved before anybody looked
            self._retrying = None
        self._note(now, tally)
        self.repeat_warnings()
        tasks = self._sample_tasks()
        self._look_for_silence(tasks)
        waiting = self._waiting(now, tasks, scanning=scan is not None)
        refused = tally.value(metrics.DEAD_LETTERS)
        if refused != self._refused:
            self._refused, self._dead_letters = refused, self._count_dead_letters()
        return {
            "rows": int(tally.value(metrics.ROWS)),
            "rows_per_s": self._rows_per_s(),
            "bytes": int(tally.value(metrics.BYTES)),
            "files": int(tally.value(metrics.FILES)),
            "high_water": progress.frontier.high_water,
            "scan": scan,
            "dead_letters": self._dead_letters,
            "releases_failed": int(tally.value(metrics.UNRELEASED_STEPS)),
            "source_silent_since": self._silent_since,
            "notice": self._log.source_warning(),
            "shares": self._shares(tasks),
            "slices": self._channel.hosts(),
            **waiting,
            "retrying": self._retrying,
        }

    def repeat_warnings(self) -> None:
        """Log what the planner has warned of since the last call."""
        self._log.repeat_warnings()

    def sample_tasks(self) -> dict[str, Any]:
        """Return what the status says of the tasks at work alone."""
        return self._stuck(self._sample_tasks())

    def _note(self, now: float, tally: Tally) -> None:
        sample = _Sample(
            moment=now,
            rows=int(tally.value(metrics.ROWS)),
            steps=int(tally.value(metrics.STEPS)),
            seconds={stage: tally.value(metrics.STAGE_SECONDS, stage) for stage in (SOURCE, ENCODE, SINK)},
        )
        if self._samples:
            before = self._samples[-1]
            if sample.steps != before.steps:
                self._silent_since = self._retrying = None
            if sample.rows != before.rows:
                self._quiet_since, self._empty_step = now, False
            elif sample.steps != before.steps:
                self._empty_step = True
        kept = [each for each in self._samples if now - each.moment <= self._window_s]
        if len(kept) > 1 and kept[-1].moment - kept[-2].moment < self._window_s / _MAX_SAMPLES:
            kept.pop()
        self._samples = [*kept, sample]

    def _look_for_silence(self, tasks: Sequence[Activity]) -> None:
        """The source answers when a step is saved or rows arrive; until then a new attempt proves nothing."""
        waits = [task.for_s for task in tasks if task.stage == SOURCE and task.for_s >= _STUCK_S]
        if waits:
            self._silent_since = self._silent_since or time.time() - max(waits)
        elif any(task.role == SLICE and task.seconds[ENCODE] for task in tasks):
            self._silent_since = None

    def _rows_per_s(self) -> float:
        first, last = self._samples[0], self._samples[-1]
        elapsed = last.moment - first.moment
        return (last.rows - first.rows) / elapsed if elapsed else 0.0

    def _sample_tasks(self) -> Sequence[Activity]:
        tasks = self._channel.activities()
        self._slow.update(tasks)
        self._busy = any(task.role == SLICE and sum(task.seconds.values()) + task.for_s >= _BUSY_S for task in tasks)
        return tasks

    def _shares(self, tasks: Sequence[Activity]) -> dict[str, float]:
        """Return the share of each stage in the time of slices that ended recently, otherwise of those at work."""
        first, last = self._samples[0], self._samples[-1]
        if last.rows > first.rows:
            seconds = {stage: last.seconds[stage] - first.seconds[stage] for stage in last.seconds}
        elif self._busy:
            seconds = dict.fromkeys(last.seconds, 0.0)
            for task in tasks:
                if task.role == SLICE:
                    for stage in seconds:
                        seconds[stage] += task.seconds[stage] + (task.for_s if task.stage == stage else 0.0)
        else:
            return {}
        total = sum(seconds.values())
        return {stage: spent / total for stage, spent in seconds.items()} if total > 0 else {}

    def _waiting(self, now: float, tasks: Sequence[Activity], *, scanning: bool) -> dict[str, Any]:
        stuck = self._stuck(tasks)
        if self._busy or scanning:
            self._quiet_since = now  # its result is not saved yet when it ends
        quiet_s = now - self._quiet_since
        quiet = quiet_s >= _QUIET_S if self._empty_step else self._local and quiet_s >= _SILENT_S
        if stuck["waiting_on"] is None and quiet:
            return {**stuck, "waiting_on": f"changes{self._every}"}
        return stuck

    def _stuck(self, tasks: Sequence[Activity]) -> dict[str, Any]:
        stuck = [task for task in tasks if task.for_s >= _STUCK_S]
        task = max(stuck, key=lambda task: (task.repeat is not None, task.for_s), default=None)
        repeat = None if task is None else task.repeat
        if repeat is not None and repeat.next_at != self._repeated_at:
            self._repeated_at = repeat.next_at
            self._retrying = Retrying.after(self._retrying, mask(repeat.reason, self._secrets))
        return {
            "waiting_on": None if task is None else self._owners[task.stage],
            "waiting_on_s": None if task is None else task.for_s,
            "waiting_for": None if repeat is None else mask(repeat.reason, self._secrets),
            "next_attempt_s": None if repeat is None else max(0.0, repeat.next_at - time.time()),
        }
