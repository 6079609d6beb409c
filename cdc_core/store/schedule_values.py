"""The values of schedules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from cdc_core.locality import Locality
from cdc_core.store.job_values import JobState

OnPreviousRunning = Literal["start", "skip", "wait"]
OnExecutionFailure = Literal["retry", "reschedule", "pause"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledRun:
    """A job of a schedule whose end no node has looked at yet. `state` is None when the job is forgotten."""

    job: str
    state: JobState | None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRecord:
    """A schedule as the store knows it. Times are in the database's clock, in seconds since 1970. Holds no secret.

    `next_run` is None while it is paused. `reason` says why it is, or what went wrong last.
    """

    name: str
    definition: Mapping[str, Any]
    locality: Locality
    owner: str
    cron: str
    time_zone: str
    on_previous_running: OnPreviousRunning = "wait"
    on_execution_failure: OnExecutionFailure = "reschedule"
    created: float = 0.0
    next_run: float | None = None
    reason: str | None = None
    last_job: str | None = None
    version: int = 0
    runs: Sequence[ScheduledRun] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleChange:
    """What becomes of a schedule: the job to start, if any, and those of its runs that need no second look."""

    next_run: float | None
    reason: str | None
    start: str | None = None
    ended: Sequence[str] = ()
