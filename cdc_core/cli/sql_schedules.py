"""What the statements about schedules do and show."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cdc_core.changefeeds.service import Changefeeds
from cdc_core.cli.job_commands import by_user
from cdc_core.cli.sql_results import Result, shown_time
from cdc_core.statements.definitions import statement_text
from cdc_core.statements.values import ControlSchedules, ScheduleVerb, ShowSchedules
from cdc_core.store.schedule_values import ScheduleRecord

_CREATED = ("schedule_id", "label", "status", "first_run", "schedule")
_SHOWN = (
    "id",
    "label",
    "schedule_status",
    "next_run",
    "state",
    "recurrence",
    "jobsrunning",
    "owner",
    "created",
    "command",
)


def created_schedule(found: ScheduleRecord) -> Result:
    """Return the result of CREATE SCHEDULE."""
    row = (found.name, found.name, _status(found), shown_time(found.next_run), found.cron)
    return Result(columns=_CREATED, rows=[row])


def control_schedules(changefeeds: Changefeeds, statement: ControlSchedules) -> Result:
    """Do what *statement* says with each schedule, one after the other. Raises: ConfigError."""
    verbs: dict[ScheduleVerb, Callable[[str], ScheduleRecord]] = {
        "PAUSE": lambda name: changefeeds.pause_schedule(name, by_user()),
        "RESUME": changefeeds.resume_schedule,
        "DROP": changefeeds.drop_schedule,
    }
    done = [verbs[statement.verb](name) for name in statement.schedules]
    if statement.verb == "DROP":
        return Result(columns=["schedule_id"], rows=[[found.name] for found in done])
    return _shown(done)


def show_schedules(changefeeds: Changefeeds, statement: ShowSchedules) -> Result:
    """Return the schedules that *statement* is about. Raises: ConfigError when the one is unknown."""
    return _shown(changefeeds.schedules() if statement.schedule is None else [changefeeds.schedule(statement.schedule)])


def _shown(found: Sequence[ScheduleRecord]) -> Result:
    return Result(columns=_SHOWN, rows=[_row(each) for each in found])


def _row(found: ScheduleRecord) -> Sequence[str | None]:
    return (
        found.name,
        found.name,
        _status(found),
        shown_time(found.next_run),
        found.reason,
        found.cron if found.time_zone == "UTC" else f"{found.cron} ({found.time_zone})",
        str(sum(run.state is not None for run in found.runs)),
        found.owner,
        shown_time(found.created),
        statement_text(found.definition),
    )


def _status(found: ScheduleRecord) -> str:
    return "PAUSED" if found.next_run is None else "ACTIVE"
