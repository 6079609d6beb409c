"""`cdc sql`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from cdc_core.cli.job_commands import job_store_option
from cdc_core.cli.session import CliSession, debug_option
from cdc_core.cli.sql_execution import SqlTarget, changefeed_to_watch, execute
from cdc_core.cli.sql_results import Format, shown
from cdc_core.cli.watch import print_messages
from cdc_core.errors import CdcError, ConfigError
from cdc_core.statements.parsing import Parsed, parse
from cdc_core.statements.values import CreateChangefeed


@click.command
@click.argument("statements", metavar="STATEMENTS", required=False)
@click.option("-f", "--file", metavar="FILE", help="Read the statements from this file.")
@click.option(
    "--source",
    "sources",
    metavar="URI",
    multiple=True,
    help="The database that CREATE watches. May be repeated, for databases that have the same tables.",
)
@click.option("--owner", metavar="USER", help="Whose the created jobs are. Default: the user of this process.")
@click.option(
    "--format",
    "how",
    type=click.Choice(["table", "csv", "json"]),
    default="table",
    show_default=True,
    help="How to print rows; json is one object a line.",
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
    """Execute STATEMENTS, in the syntax of CockroachDB's changefeeds. Several end with a semicolon each.

    \b
      CREATE CHANGEFEED FOR TABLE orders INTO 'kafka://host:9092' WITH updated, resolved = '10s'
      PAUSE JOB 'orders'
      SHOW CHANGEFEED JOBS

    All are read before the first one is executed. When one fails, those after it are not executed. Without STATEMENTS
    and --file, they are read from the standard input; on a terminal, one after the other.
    """
    if statements is not None and file is not None:
        raise ConfigError("statements are given, and --file too; remove one of them")
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
    parsed = parse(text)
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
            click.echo(f"the statement of line {each.line} failed, and those after it were not executed", err=True)
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
