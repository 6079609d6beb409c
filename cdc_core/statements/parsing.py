"""The grammar of the statements."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlglot.tokenizer_core import TokenType

from cdc_core.queries.statement import parse_query
from cdc_core.statements.option_lists import assignments
from cdc_core.statements.reading import Reading
from cdc_core.statements.sinks import translated_sink
from cdc_core.statements.values import ControlJobs, CreateChangefeed, OwnJob, ShowJobs, Statement, Verb

__all__ = ["Parsed", "parse"]

_CREATE = "CREATE CHANGEFEED FOR table, … INTO 'uri' WITH option = 'value', …"
_CONTROL = "PAUSE JOB 'name', RESUME JOB 'name' or CANCEL JOB 'name'"
_SHOW = "SHOW JOBS or SHOW CHANGEFEED JOBS"
_KNOWN = "CREATE CHANGEFEED, PAUSE JOB, RESUME JOB, CANCEL JOB, ALTER JOB or SHOW JOBS"


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
            raise reading.refused(f"{reading.token.text} is not expected here; end the statement with ;")
        yield Parsed(line=line, statement=statement)


def _statement(reading: Reading, now: datetime) -> Statement:
    if reading.has("CREATE"):
        if reading.has("CHANGEFEED"):
            return _create_changefeed(reading, now)
    elif reading.has("EXPERIMENTAL", "CHANGEFEED"):
        return _create_changefeed(reading, now)
    elif reading.is_word("PAUSE", "RESUME", "CANCEL"):
        verb: Verb = reading.skip().text.upper()  # type: ignore[assignment]
        return _control_jobs(reading, verb)
    elif reading.has("ALTER", "JOB"):
        job = reading.name("the name of the job")
        reading.require("OWNER", "TO", shape="ALTER JOB 'name' OWNER TO user")
        return OwnJob(job=job, owner=reading.name("the name of the owner"))
    elif reading.has("SHOW"):
        return _show_jobs(reading)
    raise reading.unexpected("this is not a statement about changefeeds", _KNOWN)


def _create_changefeed(reading: Reading, now: datetime) -> CreateChangefeed:
    tables = _targets(reading) if reading.has("FOR") else ()
    return _delivery(reading, now, tables)


def _delivery(reading: Reading, now: datetime, tables: tuple[str, ...], *, until: str = "") -> CreateChangefeed:
    """Take `[INTO 'uri'] [WITH …] [AS SELECT …]`; a query ends before the word *until*."""
    sink = _sink(reading) if reading.has("INTO") else None
    options = _options(reading, now) if reading.has("WITH") else {}
    query = None
    if reading.is_word("AS"):
        at = reading.at
        if tables:
            raise reading.refused("the query names the table; remove FOR and its tables", at)
        reading.skip()
        query = reading.query(until)
        tables = (parse_query(query).table,)
    if not tables:
        raise reading.unexpected("FOR, or AS SELECT, is missing", _CREATE)
    name = options.pop("name", None)
    if name is True:
        raise reading.refused("option 'name' needs a value; write name = '…'")
    return CreateChangefeed(tables=tables, sink=sink, options=options, query=query, name=name)  # type: ignore[arg-type]


def _targets(reading: Reading) -> tuple[str, ...]:
    """Take the tables after FOR."""
    if reading.is_word("DATABASE"):
        raise reading.refused("a changefeed is of tables; list them, or write public.* for all of a schema")
    tables = []
    while True:
        reading.has("TABLE")
        tables.append(reading.table())
        if reading.is_word("FAMILY"):
            raise reading.refused("tables of the sources have no column families; remove FAMILY")
        if not reading.has_mark(TokenType.COMMA):
            return tuple(tables)


def _sink(reading: Reading) -> str:
    at, uri = reading.at, reading.string("the URI of the sink")
    try:
        return translated_sink(uri)
    except ValueError as error:
        raise reading.refused(str(error), at) from None


def _options(reading: Reading, now: datetime) -> dict[str, str | bool]:
    """Take what follows WITH: a list of options, in parentheses or not."""
    reading.has("OPTIONS")
    if not reading.has_mark(TokenType.L_PAREN):
        return assignments(reading, now=now)
    found = assignments(reading, now=now)
    if not reading.has_mark(TokenType.R_PAREN):
        raise reading.refused("the parenthesis before the options is not closed")
    return found


def _control_jobs(reading: Reading, verb: Verb) -> ControlJobs:
    jobs: list[str] | None = []
    if reading.has("ALL", "CHANGEFEED", "JOBS"):
        jobs = None
    elif reading.has("JOBS"):
        if reading.is_word("FOR") or (reading.token is not None and reading.token.token_type is TokenType.SELECT):
            raise reading.refused("list the names of the jobs here")
        jobs = _names(reading)
    else:
        reading.require("JOB", shape=_CONTROL)
        jobs = [reading.name("the name of the job")]
    reason = None
    if verb != "RESUME" and reading.has("WITH"):
        reading.require("REASON", shape=f"{verb} JOB 'name' WITH REASON = 'text'")
        reading.has_mark(TokenType.EQ)
        reason = reading.string("the reason")
    return ControlJobs(verb=verb, jobs=None if jobs is None else tuple(jobs), reason=reason)


def _names(reading: Reading) -> list[str]:
    """Take a list of names of jobs, in parentheses or not."""
    inside = reading.has_mark(TokenType.L_PAREN)
    if reading.token is not None and reading.token.token_type is TokenType.SELECT:
        raise reading.refused("list the names of the jobs here")
    jobs = [reading.name("the name of a job")]
    while reading.has_mark(TokenType.COMMA):
        jobs.append(reading.name("the name of a job"))
    if inside and not reading.has_mark(TokenType.R_PAREN):
        raise reading.refused("the parenthesis before the names is not closed")
    return jobs


def _show_jobs(reading: Reading) -> ShowJobs:
    changefeeds = reading.has("CHANGEFEED")
    job = None
    if reading.has("JOB"):
        job = reading.name("the name of the job")
    else:
        reading.require("JOBS", shape=_SHOW)
    if changefeeds and reading.has("WITH"):
        reading.require("WATCHED_TABLES", shape="SHOW CHANGEFEED JOBS WITH WATCHED_TABLES")
    return ShowJobs(changefeeds=changefeeds, job=job)
