"""The text of statements, taken apart: which it is, and where it ends; and the grammar of jobs and schedules."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast, get_args

from sqlglot.tokenizer_core import TokenType

from cdc_core.options import did_you_mean
from cdc_core.statements.creation import alter_changefeed, create_changefeed, delivery, pairs, targets
from cdc_core.statements.options import moment
from cdc_core.statements.reading import Reading
from cdc_core.statements.values import (
    ControlJobs,
    ControlSchedules,
    CreateSchedule,
    OwnJob,
    ScheduleVerb,
    ShowJobs,
    ShowSchedules,
    Statement,
    Verb,
)
from cdc_core.store.schedule_values import OnExecutionFailure, OnPreviousRunning
from cdc_core.store.verbs import RULES

_KNOWN = "CREATE, ALTER, PAUSE, RESUME, CANCEL, SHOW or DROP; see `cdc docs sql`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """A statement, and the line of the text that it begins on."""

    line: int
    statement: Statement


def parse(text: str, *, now: datetime | None = None) -> list[Parsed]:
    """Return the statements in *text*, which end with `;`, in order. Times such as `-1h` are before *now*.

    Raises: OptionError, which shows the place of what it refuses.
    """
    reading = Reading(text)
    now = datetime.now(UTC) if now is None else now
    return list(_statements(reading, now))


def _statements(reading: Reading, now: datetime) -> Iterator[Parsed]:
    while reading.token is not None:
        if reading.has_mark(TokenType.SEMICOLON):
            continue
        line = reading.text.count("\n", 0, reading.at) + 1
        statement = _statement(reading, now)
        if reading.token is not None and not reading.at_end:
            raise reading.refused(f"{reading.shown} is not expected here; end the statement with ;")
        yield Parsed(line=line, statement=statement)


def _statement(reading: Reading, now: datetime) -> Statement:
    if reading.has("CREATE", "CHANGEFEED") or reading.has("EXPERIMENTAL", "CHANGEFEED"):
        return create_changefeed(reading, now)
    if reading.has("CREATE", "SCHEDULE"):
        return _create_schedule(reading, now)
    if reading.has("ALTER", "CHANGEFEED"):
        return alter_changefeed(reading, now)
    if reading.has("ALTER", "JOB"):
        return _own_job(reading)
    if reading.is_word("PAUSE", "RESUME", "DROP") and reading.is_word("SCHEDULE", "SCHEDULES", ahead=1):
        return _control_schedules(reading)
    if reading.is_word("PAUSE", "RESUME", "CANCEL"):
        return _control_jobs(reading)
    if reading.is_word("SHOW") and reading.is_word("SCHEDULE", "SCHEDULES", ahead=1):
        return _show_schedules(reading)
    if reading.has("SHOW"):
        return _show_jobs(reading)
    if reading.is_word("SELECT", "WITH"):
        raise reading.refused(
            "queries are not supported; filter the output of SHOW, for example with --format json and jq"
        )
    for verb, rule in RULES.items():
        if rule.instead and reading.is_word(verb.upper()):
            raise reading.refused(f"neither cdc nor CockroachDB has a statement for this; {rule.instead}")
    raise reading.unexpected("this is not a statement about changefeeds", _KNOWN)


_CONTROL = "PAUSE JOB 'name', RESUME JOB 'name' or CANCEL JOB 'name'"
_SHOW = "SHOW JOBS, SHOW CHANGEFEED JOBS or SHOW SCHEDULES"
_OWN = "ALTER JOB 'name' OWNER TO user"


def _control_jobs(reading: Reading) -> ControlJobs:
    verb = cast(Verb, reading.skip().text.upper())
    jobs: list[str] | None = []
    if reading.has("ALL", "CHANGEFEED", "JOBS"):
        jobs = None
    elif reading.has("JOBS"):
        if reading.is_word("FOR"):
            raise reading.refused("the name of a job is missing here; write one or more job names")
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


def _show_jobs(reading: Reading) -> ShowJobs:
    changefeeds = reading.has("CHANGEFEED")
    job = None
    if reading.is_word("WHEN", ahead=1) and reading.is_word("COMPLETE", ahead=2):
        raise reading.refused("SHOW does not wait; repeat it until 'status' is succeeded or failed")
    if reading.has("JOB"):
        job = reading.name("the name of the job")
    else:
        reading.require("JOBS", shape=_SHOW)
    if changefeeds and reading.has("WITH"):
        reading.require("WATCHED_TABLES", shape="SHOW CHANGEFEED JOBS WITH WATCHED_TABLES")
    return ShowJobs(changefeeds=changefeeds, job=job)


def _own_job(reading: Reading) -> OwnJob:
    job = reading.name("the name of the job")
    reading.require("OWNER", "TO", shape=_OWN)
    if reading.is_word("CURRENT_USER", "SESSION_USER"):
        raise reading.refused("write the name of the owner: statements are not executed by a user of a database")
    return OwnJob(job=job, owner=reading.name("the name of the owner"))


_CREATE = "CREATE SCHEDULE label FOR CHANGEFEED table, … INTO 'uri' WITH option, … RECURRING '@daily'"
_CHOICES = {"on_execution_failure": get_args(OnExecutionFailure), "on_previous_running": get_args(OnPreviousRunning)}
_OPTIONS = (*_CHOICES, "first_run", "time_zone")


def _create_schedule(reading: Reading, now: datetime) -> CreateSchedule:
    """Take what follows `CREATE SCHEDULE`. Raises: OptionError."""
    if_not_exists = reading.has("IF", "NOT", "EXISTS")
    label = None if reading.is_word("FOR") else reading.name("the label of the schedule")
    reading.require("FOR", "CHANGEFEED", shape=_CREATE)
    tables = () if reading.is_word("INTO", "WITH", "AS") else targets(reading)
    at = reading.at
    changefeed = delivery(reading, now, tables, until="RECURRING")
    if changefeed.name is not None:
        raise reading.refused("a schedule is named by its label; remove the option 'name'", at)
    reading.require("RECURRING", shape=_CREATE)
    cron = reading.string("when the changefeed runs, such as '@daily',")
    options: dict[str, Any] = {}
    if reading.has("WITH"):
        reading.require("SCHEDULE", "OPTIONS", shape=f"{_CREATE} WITH SCHEDULE OPTIONS first_run = 'now'")
        options = _options(reading, now)
    return CreateSchedule(label=label, if_not_exists=if_not_exists, changefeed=changefeed, cron=cron, **options)


def _options(reading: Reading, now: datetime) -> dict[str, str]:
    found: dict[str, str] = {}
    for at, written, value in pairs(reading):
        name = written.lower()
        if name not in _OPTIONS:
            raise reading.refused(f"a schedule has no option '{name}'{did_you_mean(name, _OPTIONS)}", at)
        if not value:
            raise reading.refused(f"option '{name}' needs a value; write {name} = '…'", at)
        if name in found:
            raise reading.refused(f"option '{name}' is given twice; keep one of them", at)
        if name in _CHOICES and value.lower() not in _CHOICES[name]:
            raise reading.refused(f"option '{name}' must be one of {', '.join(_CHOICES[name])}", at)
        if name == "first_run":
            try:
                value = "now" if value.lower() == "now" else moment(value, now)
            except ValueError as error:
                raise reading.refused(str(error), at) from None
        found[name] = value.lower() if name in _CHOICES else value
    return found


def _control_schedules(reading: Reading) -> ControlSchedules:
    verb = cast(ScheduleVerb, reading.skip().text.upper())
    reading.skip()
    return ControlSchedules(verb=verb, schedules=tuple(reading.names("the label of a schedule")))


def _show_schedules(reading: Reading) -> ShowSchedules:
    reading.skip()
    if reading.skip().text.upper() == "SCHEDULE":
        return ShowSchedules(schedule=reading.name("the label of the schedule"))
    reading.has("FOR", "CHANGEFEED")
    return ShowSchedules()
