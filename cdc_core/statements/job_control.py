"""The grammar of the statements that steer and show jobs."""

from __future__ import annotations

from sqlglot.tokenizer_core import TokenType

from cdc_core.statements.reading import Reading
from cdc_core.statements.values import ControlJobs, OwnJob, ShowJobs, Verb

__all__ = ["control_jobs", "own_job", "show_jobs"]

_CONTROL = "PAUSE JOB 'name', RESUME JOB 'name' or CANCEL JOB 'name'"
_SHOW = "SHOW JOBS, SHOW CHANGEFEED JOBS or SHOW SCHEDULES"
_OWN = "ALTER JOB 'name' OWNER TO user"


def control_jobs(reading: Reading) -> ControlJobs:
    """Take `PAUSE`, `RESUME` or `CANCEL`, and what follows it."""
    verb: Verb = reading.skip().text.upper()  # type: ignore[assignment]
    jobs: list[str] | None = []
    if reading.has("ALL", "CHANGEFEED", "JOBS"):
        jobs = None
    elif reading.has("JOBS"):
        if reading.is_word("FOR"):
            raise reading.refused("the name of a job is missing here; list the names")
        jobs = reading.names("the name of a job")
    else:
        reading.require("JOB", shape=_CONTROL)
        jobs = [reading.name("the name of the job")]
    reason = None
    if verb != "RESUME" and reading.has("WITH"):
        reading.require("REASON", shape=f"{verb} JOB 'name' WITH REASON = 'text'")
        reading.has_mark(TokenType.EQ)
        reason = reading.string("the reason")
    return ControlJobs(verb=verb, jobs=None if jobs is None else tuple(jobs), reason=reason)


def show_jobs(reading: Reading) -> ShowJobs:
    """Take what follows `SHOW`."""
    changefeeds = reading.has("CHANGEFEED")
    job = None
    if reading.has("JOB"):
        job = reading.name("the name of the job")
    else:
        reading.require("JOBS", shape=_SHOW)
    if changefeeds and reading.has("WITH"):
        reading.require("WATCHED_TABLES", shape="SHOW CHANGEFEED JOBS WITH WATCHED_TABLES")
    return ShowJobs(changefeeds=changefeeds, job=job)


def own_job(reading: Reading) -> OwnJob:
    """Take what follows `ALTER JOB`."""
    job = reading.name("the name of the job")
    reading.require("OWNER", "TO", shape=_OWN)
    return OwnJob(job=job, owner=reading.name("the name of the owner"))
