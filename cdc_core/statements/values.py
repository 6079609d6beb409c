"""The statements as values, with options and sinks by our own names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from cdc_core.store.schedule_values import OnExecutionFailure, OnPreviousRunning

Verb = Literal["PAUSE", "RESUME", "CANCEL"]
ScheduleVerb = Literal["PAUSE", "RESUME", "DROP"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateChangefeed:
    """`CREATE CHANGEFEED`. `tables` are as listed in a file, that of the `query` if there is one.

    Without a `sink` the rows are for whoever sent the statement. `name` is the option of that name, and `options` are
    the others: texts as in a file, in which `${VARIABLE}` is a reference, and True for an option without a value.
    """

    tables: tuple[str, ...]
    sink: str | None = None
    options: Mapping[str, str | bool] = field(default_factory=dict)
    query: str | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateSchedule:
    """`CREATE SCHEDULE … FOR CHANGEFEED`. `first_run` is None, `now`, or a time as users write it."""

    label: str | None
    if_not_exists: bool
    changefeed: CreateChangefeed
    cron: str
    time_zone: str = "UTC"
    first_run: str | None = None
    on_execution_failure: OnExecutionFailure = "reschedule"
    on_previous_running: OnPreviousRunning = "wait"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterChangefeed:
    """`ALTER CHANGEFEED`. `add` says of each table whether its rows are scanned, None where the statement does not."""

    job: str
    add: Mapping[str, bool | None] = field(default_factory=dict)
    drop: Sequence[str] = ()
    set: Mapping[str, str] = field(default_factory=dict)
    unset: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlJobs:
    """`PAUSE`, `RESUME` or `CANCEL` of jobs; of all that it applies to if `jobs` is None."""

    verb: Verb
    jobs: tuple[str, ...] | None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnJob:
    """`ALTER JOB … OWNER TO`."""

    job: str
    owner: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowJobs:
    """`SHOW JOBS`, or `SHOW CHANGEFEED JOBS`, which has other columns; of the one `job` if there is one."""

    changefeeds: bool
    job: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlSchedules:
    """`PAUSE`, `RESUME` or `DROP` of schedules."""

    verb: ScheduleVerb
    schedules: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowSchedules:
    """`SHOW SCHEDULES`, of the one `schedule` if there is one."""

    schedule: str | None = None


Statement = (
    CreateChangefeed
    | CreateSchedule
    | AlterChangefeed
    | ControlJobs
    | OwnJob
    | ShowJobs
    | ControlSchedules
    | ShowSchedules
)
