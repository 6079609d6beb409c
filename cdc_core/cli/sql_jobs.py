"""The rows of `SHOW JOBS` and `SHOW CHANGEFEED JOBS`."""

from __future__ import annotations

from cdc_core.changefeeds.reading import recent
from cdc_core.changefeeds.service import Changefeeds
from cdc_core.cli.sql_results import Result, shown_time
from cdc_core.config.listed_tables import database_of, named_tables, topics_of
from cdc_core.schema import TableName
from cdc_core.sql_names import listed
from cdc_core.statements.definitions import statement_text
from cdc_core.statements.values import ShowJobs
from cdc_core.store.job_reports import JobReport
from cdc_core.store.values import ChangefeedRecord

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


def _values(changefeeds: Changefeeds, report: JobReport) -> dict[str, str | None]:
    job, definition, mark = report.job, report.known.definition, report.known.high_water
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
