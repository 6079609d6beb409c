"""`cdc sql`: statements do the same as the commands for jobs, by the same functions."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click

from cdc_core.changefeeds.service import Changefeeds
from cdc_core.cli.create import altered_text, created_text
from cdc_core.cli.job_commands import by_user, changefeeds_at, job_store_option, require_owner, user_name
from cdc_core.cli.lifecycle import cancel_text, pause_text, resume_text
from cdc_core.cli.schedule import new_schedule
from cdc_core.cli.session import CliSession, debug_option
from cdc_core.cli.sql_results import (
    Format,
    Result,
    control_schedules,
    created_schedule,
    show_jobs,
    show_schedules,
    shown,
)
from cdc_core.cli.watch import print_messages, resolved_to_watch
from cdc_core.config.alteration import Alteration
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.errors import CdcError, ConfigError
from cdc_core.statements.definitions import changefeed_of_statement, derived_name, statement_text
from cdc_core.statements.parsing import Parsed, parse
from cdc_core.statements.values import (
    AlterChangefeed,
    ControlJobs,
    ControlSchedules,
    CreateChangefeed,
    CreateSchedule,
    OwnJob,
    ShowJobs,
    ShowSchedules,
    Statement,
    Verb,
)
from cdc_core.store.job_values import JobRecord
from cdc_core.store.verbs import Verb as JobVerb


@click.command
@click.argument("statements", metavar="STATEMENTS", required=False)
@click.option("-f", "--file", metavar="FILE", help="Read the statements from this file.")
@click.option(
    "--source",
    "sources",
    metavar="URI",
    multiple=True,
    help="The database that CREATE watches. May be repeated for several databases with the same tables.",
)
@click.option("--owner", metavar="USER", help="Owner of the created jobs. Default: the user of this process.")
@click.option(
    "--format",
    "how",
    type=click.Choice(["table", "csv", "json"]),
    default="table",
    show_default=True,
    help="How to print rows; json prints one object per line.",
)
@job_store_option
@debug_option
@click.pass_obj
def sql(
    session: CliSession,
    statements: str | None,
    file: str | None,
    sources: tuple[str, ...],
    owner: str | None,
    how: Format,
    store: str | None,
) -> int:
    """Execute STATEMENTS, in the syntax of CockroachDB's changefeeds. If there are several, end each with a semicolon.

    \b
      CREATE CHANGEFEED FOR TABLE orders INTO 'kafka://host:9092' WITH updated, resolved = '10s'
      PAUSE JOB 'orders'
      SHOW CHANGEFEED JOBS

    All statements are parsed before the first one is executed. If one fails, the rest are not executed. Without
    STATEMENTS or --file, statements are read from standard input; on a terminal, each is executed as soon as you enter
    it.
    """
    if statements is not None and file is not None:
        raise ConfigError("give either statements or --file, not both")
    directory = Path() if file is None else Path(file).parent
    target = SqlTarget(sources=sources, store=store, owner=owner, directory=directory.absolute())
    if statements is None and file is None and sys.stdin.isatty():
        from cdc_core.cli.sql_prompt import prompt  # readline changes the terminal's settings

        prompt(
            lambda text: _execute(session, target, text, how),
            lambda error: click.echo(f"error: {session.masked(str(error))}", err=True),
        )
        return 0
    text = statements if file is None else _read(Path(file))
    _execute(session, target, sys.stdin.read() if text is None else text, how)
    return 0


def _execute(session: CliSession, target: SqlTarget, text: str, how: Format) -> None:
    parsed = parse(text.removeprefix("\ufeff"))
    if not parsed:
        raise ConfigError("there is no statement in the text; see `cdc docs sql`")
    for each in parsed:
        _run(session, target, each, how, alone=len(parsed) == 1)


def _run(session: CliSession, target: SqlTarget, each: Parsed, how: Format, *, alone: bool) -> None:
    try:
        if isinstance(each.statement, CreateChangefeed) and each.statement.sink is None:
            session.start_logging(quiet=True)
            print_messages(changefeed_to_watch(session, target, each.statement), as_json=how == "json")
            return
        result = execute(session, target, each.statement)
    except CdcError:
        if not alone:
            click.echo(f"the statement on line {each.line} failed; the statements after it were not executed", err=True)
        raise
    for notice in result.notices:
        click.echo(session.masked(f"NOTICE: {notice}"), err=True)
    for line in shown(result, how):
        click.echo(session.masked(line))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text") from error


_MAX_LABEL_LENGTH = 22
"""Of a derived label of a schedule, which leaves space for a number."""
_RULES = ("cron", "time_zone", "on_previous_running", "on_execution_failure")
"""What a statement says as the record of a schedule has it."""
_VERBS: dict[Verb, JobVerb] = {"PAUSE": "pause", "RESUME": "resume", "CANCEL": "cancel"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlTarget:
    """Where statements apply: the databases to watch, the store, the owner of what is made, and where paths begin."""

    sources: Sequence[str]
    store: str | None
    owner: str | None
    directory: Path


def execute(session: CliSession, target: SqlTarget, statement: Statement) -> Result:
    """Do what *statement*, which is not a CREATE without a sink, says and return its result.

    Raises: CdcError, as the command does.
    """
    if isinstance(statement, CreateChangefeed):
        return _create(session, target, statement)
    if isinstance(statement, CreateSchedule):
        return _create_schedule(session, target, statement)
    with changefeeds_at(session, target.store) as changefeeds:
        if isinstance(statement, ShowJobs):
            return show_jobs(changefeeds, statement)
        if isinstance(statement, ShowSchedules):
            return show_schedules(changefeeds, statement)
        if isinstance(statement, ControlSchedules):
            return control_schedules(changefeeds, statement)
        if isinstance(statement, AlterChangefeed):
            return _alter(changefeeds, statement)
        if isinstance(statement, OwnJob):
            job = changefeeds.set_owner(statement.job, require_owner(statement.owner))
            return _jobs([(job, f"job '{job.name}' belongs to {job.owner}")])
        return _jobs(_control(changefeeds, statement))


def changefeed_to_watch(session: CliSession, target: SqlTarget, statement: CreateChangefeed) -> ResolvedChangefeed:
    """Return the changefeed of a CREATE without a sink, whose messages are for whoever sent it. Raises: ConfigError."""
    name = statement.name or derived_name(statement.tables, ())
    changefeed = changefeed_of_statement(
        statement, name, sources=target.sources, directory=target.directory, environ=os.environ
    )
    return resolved_to_watch(session, changefeed)


def _create(session: CliSession, target: SqlTarget, statement: CreateChangefeed) -> Result:
    owner = require_owner(user_name() if target.owner is None else target.owner)
    with changefeeds_at(session, target.store, create=True) as changefeeds:
        taken = {known.name for known in changefeeds.records()}
        name = statement.name or derived_name(statement.tables, taken)
        changefeed = changefeed_of_statement(
            statement, name, sources=target.sources, directory=target.directory, environ=os.environ
        )
        job = changefeeds.create(changefeeds.resolved(changefeed), owner=owner)
        return Result(columns=["job_id"], rows=[[job.name]], notices=[created_text(changefeeds, job)])


def _create_schedule(session: CliSession, target: SqlTarget, statement: CreateSchedule) -> Result:
    with changefeeds_at(session, target.store, create=True) as changefeeds:
        known = {each.name: each for each in changefeeds.schedules()}
        name = statement.label or derived_name(statement.changefeed.tables, known, longest=_MAX_LABEL_LENGTH)
        if statement.if_not_exists and name in known:
            return replace(created_schedule(known[name]), rows=[], notices=[f"schedule '{name}' already exists"])
        changefeed = changefeed_of_statement(
            statement.changefeed, name, sources=target.sources, directory=target.directory, environ=os.environ
        )
        rules = {rule: getattr(statement, rule) for rule in _RULES}
        wanted = new_schedule(session, name, changefeed, owner=target.owner, first_run=statement.first_run, **rules)
        return created_schedule(changefeeds.create_schedule(wanted, at_once=statement.first_run == "now"))


def _alter(changefeeds: Changefeeds, statement: AlterChangefeed) -> Result:
    name = statement.job
    change = Alteration.parse(
        add=list(statement.add),
        drop=statement.drop,
        assignments=[f"{option}={value}" for option, value in statement.set.items()],
        unset=statement.unset,
    )
    begun = changefeeds.progress(name) is not None
    scans = {table: bool(wanted) for table, wanted in statement.add.items() if begun or wanted is not None}
    altered = changefeeds.alter(name, change, by=by_user(), scans=scans)
    description = statement_text(altered.definition)
    return Result(
        columns=["job_id", "job_description"], rows=[[name, description]], notices=[altered_text(changefeeds, altered)]
    )


def _control(changefeeds: Changefeeds, statement: ControlJobs) -> list[tuple[JobRecord, str]]:
    reason = statement.reason or by_user()

    verbs: dict[Verb, Callable[[str], tuple[JobRecord, str]]] = {
        "PAUSE": lambda name: (job := changefeeds.pause(name, reason), pause_text(job)),
        "RESUME": lambda name: (job := changefeeds.resume(name, by_user()), resume_text(changefeeds, job)),
        "CANCEL": lambda name: (job := changefeeds.cancel(name, reason), cancel_text(job)),
    }
    names = changefeeds.jobs_for(_VERBS[statement.verb]) if statement.jobs is None else statement.jobs
    return [verbs[statement.verb](name) for name in names]


def _jobs(done: Sequence[tuple[JobRecord, str]]) -> Result:
    return Result(
        columns=["job_id", "status"],
        rows=[[job.name, job.state] for job, _ in done],
        notices=[text for _, text in done],
    )
