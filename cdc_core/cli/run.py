"""`cdc run` and `cdc check`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from shlex import join

import click

from cdc_core.cli.session import CliSession, debug_option
from cdc_core.config.changefeed import Changefeed
from cdc_core.config.pipelines import pipeline, pipeline_names
from cdc_core.config.resolve import resolve
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.config.toml_file import find_name, read_changefeed
from cdc_core.engine.checks import check_dead_letters, check_encoder, check_sink, check_source
from cdc_core.errors import CdcError, ConfigError
from cdc_core.masking import masked_uri, secret_forms, uri_secrets
from cdc_core.plugins.host import PluginHost
from cdc_core.schema import TableSchema
from cdc_core.store.progress import ProgressStore, store_url

__all__ = ["check", "find_changefeed", "make_state_directory", "name_in", "resolved", "run", "state_of"]

STATE_DIRECTORY = ".cdc"


@click.command(short_help="Run a changefeed.")
@click.argument("file", metavar="FILE")
@click.argument("name", required=False)
@click.option("--once", is_flag=True, help="Stop when everything that was committed before the start is delivered.")
@click.option(
    "--state",
    metavar="DIR|URL",
    help="Where progress is stored: a directory, or the SQLAlchemy URL of a database. Default: .cdc beside FILE.",
)
@debug_option
@click.pass_obj
def run(session: CliSession, file: str, name: str | None, once: bool, state: str | None) -> int:
    """Run the changefeed NAME in the TOML file FILE until Ctrl-C.

    NAME may be omitted when the file has only one. FILE may also be the name of a pipeline that an installed package
    publishes.

    The first run delivers the rows that the tables hold, then every change. A later run continues where the last one
    stopped, even if it crashed. Ctrl-C waits for the running step; a second Ctrl-C abandons it, and the next run
    repeats it.
    """
    changefeed, beside = find_changefeed(file, name)
    session.start_logging()
    feed = resolved(session, changefeed)
    state_dir, url = state_of(beside, state)
    session.add_secrets(secret_forms(uri_secrets(url)))
    try:
        from cdc_core.spark.runner import run as run_feed
    except ImportError as error:
        if (error.name or "").partition(".")[0] in ("pyspark", "py4j"):
            raise ConfigError("running a changefeed needs Spark: pip install 'cdc-core[spark]'") from error
        raise
    store = ProgressStore(url)
    store.open()
    make_state_directory(state_dir)
    try:
        with session.status_view() as status:
            return run_feed(
                feed,
                store=store,
                state_dir=state_dir,
                once=once,
                status=status,
                resume_command=session.masked(_resume_command(file, name, state)),
            )
    finally:
        store.close()


@click.command(short_help="Check that a changefeed can run; change nothing.")
@click.argument("file", metavar="FILE")
@click.argument("name", required=False)
@debug_option
@click.pass_obj
def check(session: CliSession, file: str, name: str | None) -> int:
    """Check the changefeed NAME in FILE: plugins, options, the source and the sink. Changes nothing.

    Prints one line for each part. The exit status is 2 when a check fails.
    """
    changefeed, _ = find_changefeed(file, name)
    feed = resolved(session, changefeed)
    click.echo(f"changefeed '{feed.name}'")
    schemas: list[TableSchema] = []
    parts: list[tuple[str, str, Callable[[], str | None]]] = [
        ("source", f"{feed.rangefeed.name} {masked_uri(feed.source)}", lambda: _check_source(feed, schemas)),
        ("encoder", feed.encoder.name, lambda: check_encoder(feed, schemas)),
        ("sink", f"{feed.sink.name} {feed.shown_destination}", lambda: check_sink(feed, schemas)),
    ]
    if feed.dead_letter is not None:
        what = f"{feed.dead_letter.sink.name} {feed.dead_letter.shown_destination}"
        parts.append(("dead letters", what, lambda: check_dead_letters(feed, schemas)))
    width = max(8, *(len(part) for part, _, _ in parts))
    status = 0
    for part, what, checked in parts:
        try:
            told = checked()
        except CdcError as error:
            click.echo(f"  {part:{width}} {what} … {session.masked(str(error))}")
            status = max(status, error.exit_status)
        else:
            click.echo(f"  {part:{width}} {what} … ok{session.masked(told or '')}")
    return status


def find_changefeed(file: str, name: str | None) -> tuple[Changefeed, Path]:
    """Return the changefeed asked for and the directory that its state belongs to."""
    if _is_file(file):
        return read_changefeed(Path(file), name), Path(file).parent
    return _published(file), Path()


def name_in(file: str, name: str | None) -> tuple[str, Path]:
    """Return the name of the changefeed asked for and the directory that its state belongs to.

    Nothing else of the file is read: what it refers to may be missing.
    """
    if _is_file(file):
        return find_name(Path(file), name), Path(file).parent
    return _published(file).name, Path()


def _is_file(file: str) -> bool:
    path = Path(file)
    return path.is_file() or path.suffix == ".toml" or len(path.parts) > 1


def _published(file: str) -> Changefeed:
    published = pipeline_names()
    if file not in published:
        others = f" (published: {', '.join(published)})" if published else ""
        raise ConfigError(
            f"there is no file '{file}', and no installed package publishes a pipeline '{file}'{others}; "
            "give the path of a file, or install the package that publishes it"
        )
    return pipeline(file)


def state_of(beside: Path, state: str | None) -> tuple[Path, str]:
    """Return the directory for a run's own files and the URL of the progress store."""
    if state is not None and "://" in state:
        return (beside / STATE_DIRECTORY).absolute(), state
    directory = (beside / STATE_DIRECTORY if state is None else Path(state)).absolute()
    return directory, store_url(directory)


def make_state_directory(directory: Path) -> None:
    """Return when *directory* is there. Raises: ConfigError."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"'{directory}' cannot be used as the state directory: {error.strerror}") from error


def _resume_command(file: str, name: str | None, state: str | None) -> str:
    """Return the command that resumes the changefeed of such a run."""
    words = ["cdc", "resume", file, *([] if name is None else [name]), *([] if state is None else ["--state", state])]
    return join(words)


def resolved(session: CliSession, changefeed: Changefeed) -> ResolvedChangefeed:
    """Return *changefeed* resolved; from now on *session* masks its secrets. Raises: ConfigError."""
    uris = (changefeed.source, changefeed.sink, str(changefeed.options.get("dead_letter", "")))
    session.add_secrets(secret_forms(frozenset().union(*map(uri_secrets, uris))))
    feed = resolve(changefeed, PluginHost.load())
    session.add_secrets(feed.secrets())
    return feed


def _check_source(feed: ResolvedChangefeed, schemas: list[TableSchema]) -> str:
    """Check the source, add its tables to *schemas* for the later checks, and return them as text."""
    schemas.extend(check_source(feed))
    return "".join(
        f"\n           {schema.name}: {len(schema.columns)} columns, key {', '.join(schema.primary_key)}"
        for schema in schemas
    )
