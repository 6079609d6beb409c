"""What statements return, what those about jobs and schedules show, and how it is printed: a table, CSV or JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from cdc_core.changefeeds.reading import recent
from cdc_core.changefeeds.service import Changefeeds
from cdc_core.cli.job_commands import by_user
from cdc_core.config.listed_tables import database_of, named_tables, topics_of
from cdc_core.options import counted
from cdc_core.schema import TableName
from cdc_core.sql_names import listed
from cdc_core.statements.definitions import statement_text
from cdc_core.statements.values import ControlSchedules, ScheduleVerb, ShowJobs, ShowSchedules
from cdc_core.store.job_values import moment
from cdc_core.store.reports import Report
from cdc_core.store.schedule_values import ScheduleRecord
from cdc_core.store.values import ChangefeedRecord

Format = Literal["table", "csv", "json"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Rows under names of columns, and what else is to be said."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str | None]]
    notices: Sequence[str] = ()


def shown(result: Result, how: Format) -> Iterator[str]:
    """Yield the lines of the rows: as JSON, one object for each."""
    if how == "json":
        for row in result.rows:
            yield json.dumps(dict(zip(result.columns, row, strict=True)))
    elif how == "csv":
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([result.columns, *result.rows])
        yield from text.getvalue().splitlines()
    else:
        yield from _table(result)


def shown_time(seconds: float | None) -> str | None:
    """Return a time of the store as text."""
    at = moment(seconds)
    return None if at is None else f"{at:%Y-%m-%d %H:%M:%SZ}"


def _table(result: Result) -> Iterator[str]:
    rows = [["NULL" if cell is None else " ".join(cell.split()) for cell in row] for row in result.rows]
    widths = [max(map(len, column)) for column in zip(result.columns, *rows, strict=True)]
    yield _line(result.columns, widths)
    yield "-+-".join("-" * width for width in widths)
    yield from (_line(row, widths) for row in rows)
    yield f"({counted(len(rows), 'row')})"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


_COMMON = ("status", "running_status", "created", "started", "finished", "modified")
_JOBS = ("job_id", "job_type", "description", "user_name", *_COMMON, "error", "coordinator_id")
_CHANGEFEEDS = (
    "job_id",
    "description",
    "user_name",
    *_COMMON,
    "high_water_timestamp",
    "readable_high_water_timestamptz",
    "error",
    "sink_uri",
    "full_table_names",
    "topics",
    "format",
)


def show_jobs(changefeeds: Changefeeds, statement: ShowJobs) -> Result:
    """Return the jobs that *statement* is about: all but those that finished more than 12 hours ago, or one.

    Raises: UnknownError.
    """
    if statement.job is None:
        found = recent(changefeeds.job_reports())
    else:
        found = [changefeeds.job_report(changefeeds.require_job(statement.job))]
    columns = _CHANGEFEEDS if statement.changefeeds else _JOBS
    rows = [_values(changefeeds, each) for each in found]
    return Result(columns=columns, rows=[[row[column] for column in columns] for row in rows])


def _values(changefeeds: Changefeeds, report: Report) -> dict[str, str | None]:
    job, definition, mark = report.job, report.known.definition, report.known.high_water
    assert job is not None
    erred = job.rests_for_error or job.state == "revert-failed"
    events = changefeeds.history(job.name)
    topics = topics_of(definition, changefeeds.schema_of(report.known.sources[0]))
    return {
        "job_id": job.name,
        "job_type": "CHANGEFEED",
        "description": statement_text(definition),
        "user_name": job.owner,
        "status": job.state,
        "running_status": report.running_status or (None if erred else job.reason),
        "created": shown_time(job.created),
        "started": shown_time(job.started),
        "finished": shown_time(job.finished),
        "modified": shown_time(events[-1].at if events else job.created),
        "high_water_timestamp": str(mark) if mark else None,
        "readable_high_water_timestamptz": mark.to_datetime().isoformat(timespec="microseconds") if mark else None,
        "error": job.reason if erred else None,
        "coordinator_id": job.node,
        "sink_uri": definition["sink"],
        "full_table_names": ", ".join(_full_names(changefeeds, report.known)),
        "topics": None if topics is None else ", ".join(topics),
        "format": definition["format"],
    }


def _full_names(changefeeds: Changefeeds, known: ChangefeedRecord) -> list[str]:
    """Return the tables with their databases, as far as these are known; patterns as listed until they are resolved."""
    listed_, progress = known.definition["tables"], changefeeds.progress(known.name)
    found = [] if progress is None else [*dict.fromkeys(TableName.parse(span.table) for span, _ in progress.frontier)]
    database = found[0].database if found else database_of(known.sources[0])
    names = named_tables(listed_, database, changefeeds.schema_of(known.sources[0])) or found
    if not names:
        return list(listed_)
    return [listed(filter(None, (name.database, name.schema, name.table))) for name in names]


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
