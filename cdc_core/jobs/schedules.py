"""When the jobs of schedules are started, and what their ends mean for the next ones."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import UTC, datetime

from cdc_core.changefeeds.scheduling import next_time
from cdc_core.errors import ConfigError
from cdc_core.store.job_values import FINISHED, JobState
from cdc_core.store.progress import ProgressStore
from cdc_core.store.schedule_values import ScheduleChange, ScheduleRecord

RETRY_S = 60.0
"""How long after a failure the next run begins, with on_execution_failure = retry."""
_FAILED: frozenset[JobState | None] = frozenset({"failed", "revert-failed"})
_ENDED: frozenset[JobState | None] = FINISHED | {"failed", None}

log = logging.getLogger(__name__)


class Schedules:
    """What a node does about the schedules of *store*. Every node does it; each change is made by one of them."""

    def __init__(self, store: ProgressStore) -> None:
        self._store = store

    def tick(self) -> list[str]:
        """Start what is due and return the names of the new jobs. One read of the store when nothing is.

        Called at each poll. What became due while no node lived starts once. Raises: RetryableError as the store does;
        the next call does what is left.
        """
        now, due = self._store.schedules.due()
        started = []
        for known in due:
            try:
                change = decide(now, known)
                if change is None or not self._store.schedules.change(known, change):
                    continue
            except ConfigError as error:
                change = after_failure(now, known, f"no run could be started: {error}")
                if not self._store.schedules.change(known, change):
                    continue
            _tell(known, change)
            if change.start is not None:
                started.append(change.start)
        return started


def decide(now: float, known: ScheduleRecord) -> ScheduleChange | None:
    """Return what becomes of a schedule at *now*, None if it stays as it is. Pure. Raises: ConfigError as `next_time`.

    A run that is paused is running: it has not ended. One that was canceled has not failed.
    """
    ended = [run for run in known.runs if run.state in _ENDED]
    running = [run for run in known.runs if run.state not in _ENDED]
    names = [run.job for run in ended]
    failed = next((run for run in ended if run.state in _FAILED), None)
    if known.next_run is None:
        return ScheduleChange(next_run=None, reason=known.reason, ended=names) if ended else None
    next_run, reason = known.next_run, known.reason
    if failed is not None:
        after = after_failure(now, known, f"{failed.job} failed: {failed.reason or 'no reason is known'}")
        if known.on_execution_failure == "pause":
            return replace(after, ended=names)
        reason = after.reason
        if known.on_execution_failure == "retry":
            next_run = min(next_run, now + RETRY_S)
    elif any(run.state == "succeeded" for run in ended):
        reason = None
    kept = ScheduleChange(next_run=next_run, reason=reason, ended=names)
    if next_run > now or (running and known.on_previous_running == "wait"):
        return kept if ended else None
    following = next_time(known.cron, known.time_zone, after=now)
    if running and known.on_previous_running == "skip":
        skipped = f"the run at {_text(next_run)} was skipped: {running[0].job} is {running[0].state}"
        return replace(kept, next_run=following, reason=skipped)
    return replace(kept, next_run=following, start=run_name(known.name, now))


def after_failure(now: float, known: ScheduleRecord, why: str) -> ScheduleChange:
    """Return what becomes of a schedule without a run at *now*, as its on_execution_failure says."""
    try:
        following = next_time(known.cron, known.time_zone, after=now)
    except ConfigError:
        return ScheduleChange(next_run=None, reason=why)
    if known.on_execution_failure == "pause":
        return ScheduleChange(next_run=None, reason=why)
    retry = known.on_execution_failure == "retry"
    return ScheduleChange(next_run=min(following, now + RETRY_S) if retry else following, reason=why)


def run_name(schedule: str, now: float) -> str:
    """Return the name of the job that *schedule* starts at *now*."""
    return f"{schedule}-{datetime.fromtimestamp(now, UTC):%Y%m%d%H%M%S}"


def _tell(known: ScheduleRecord, change: ScheduleChange) -> None:
    if change.start is not None:
        log.info("schedule '%s': started job '%s'", known.name, change.start)
    if change.reason is not None and change.reason != known.reason:
        paused = "paused: " if change.next_run is None else ""
        log.warning("schedule '%s': %s%s", known.name, paused, change.reason)


def _text(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"
