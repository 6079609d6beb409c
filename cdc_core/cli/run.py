"""`cdc run` and `cdc check`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from shlex import join
from typing import Any

import click

from cdc_core.changefeeds import finding
from cdc_core.cli.check_report import CheckReport
from cdc_core.cli.completion import complete_name
from cdc_core.cli.locality import locality_option
from cdc_core.cli.metrics import metrics_option, serving_metrics
from cdc_core.cli.notes import notes_of
from cdc_core.cli.otlp import exporting_metrics, otlp_option
from cdc_core.cli.query_check import selected
from cdc_core.cli.session import FILE, CliSession, debug_option, json_option, log_format_option
from cdc_core.cli.stored import (
    definition_store,
    is_file,
    require_one_name,
    state_option,
    store_option,
    stored_changefeed,
    warn_of_other_plugins,
)
from cdc_core.cli.supervised import supervise
from cdc_core.config.changefeed import Changefeed
from cdc_core.config.component import Component
from cdc_core.config.pipelines import pipeline, pipeline_names
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.config.toml_file import changefeed_names, find_name, read_changefeed
from cdc_core.engine.checks import (
    as_stored,
    check_dead_letters,
    check_encoder,
    check_sink,
    check_source,
    check_time_range,
)
from cdc_core.engine.history_meter import HistoryMeter
from cdc_core.errors import CdcError, ConfigError
from cdc_core.locality import Locality
from cdc_core.masking import secret_forms, uri_secrets
from cdc_core.options import counted
from cdc_core.plugins.host import PluginHost
from cdc_core.private_files import make_state_directory
from cdc_core.schema import TableSchema
from cdc_core.spark.placement_settings import pin
from cdc_core.store.opening import store_exists
from cdc_core.store.progress import ProgressStore, store_url
from cdc_core.store.verbs import require_run

__all__ = [
    "check",
    "find_changefeed",
    "located",
    "name_in",
    "names_in",
    "progress_at",
    "resolved",
    "run",
    "state_of",
]

STATE_DIRECTORY = ".cdc"


@click.command
@click.argument("file", metavar="FILE", type=FILE)
@click.argument("name", required=False, shell_complete=complete_name)
@click.option("--once", is_flag=True, help="Stop when everything that was committed before the start is delivered.")
@state_option
@store_option
@locality_option
@metrics_option
@otlp_option
@log_format_option
@debug_option
@click.pass_obj
def run(
    session: CliSession,
    file: str,
    name: str | None,
    once: bool,
    state: str | None,
    store: str | None,
    locality: Locality,
    metrics: str | None,
    otlp: bool,
) -> int:
    """Run the changefeed NAME in the TOML file FILE until Ctrl-C; without NAME, all changefeeds of the file.

    FILE may also be the name of a pipeline that an installed package publishes. With --store, a FILE that is no path is
    the name of a changefeed that was run before: it needs its plugins and what its definition refers to, such as
    ${PASSWORD}, and no file.

    The first run delivers the rows that the tables hold, then every change. A later run continues where the last one
    stopped, even if it crashed. Ctrl-C waits for the running step; a second Ctrl-C abandons it, and the next run
    repeats it. Changefeeds that run side by side share one Spark session. When one of them fails, the others continue.
    """
    found = [located(session, file, each, state=state, store=store) for each in names_in(file, name, store)]
    _, state_dir, url, _ = found[0]
    session.start_logging()
    feeds = []
    for changefeed, _, _, definition in found:
        feeds.append(pin(resolved(session, changefeed), locality))
        warn_of_other_plugins(feeds[-1], definition)
    session.add_secrets(secret_forms(uri_secrets(url)))
    with progress_at(url) as progress:  # before anything is started for them
        for feed in feeds:
            require_run(None if progress is None else progress.jobs.find(feed.name))
    try:
        from cdc_core.spark.runner import Runner
    except ImportError as error:
        if (error.name or "").partition(".")[0] in ("pyspark", "py4j"):
            raise ConfigError("running a changefeed needs Spark: pip install 'cdc-core[spark]'") from error
        raise
    make_state_directory(state_dir)
    by_name = {feed.name: feed for feed in feeds}
    running = frozenset(by_name)
    with (
        serving_metrics(metrics, url, names=running),
        exporting_metrics(session, otlp, url, names=running),
        Runner(
            state_dir,
            store=url,
            name=feeds[0].name if len(feeds) == 1 else Path(file).stem,
            spark=feeds[0].spark,
            changefeeds=len(feeds),
            locality=locality,
        ) as runner,
        HistoryMeter(url, lambda report: by_name.get(report.known.name)),
        session.status_view() as view,
    ):
        supervisors = []
        for feed in feeds:
            words = _words(file, name if len(feeds) == 1 else feed.name, state=state, store=store)
            command = f"cdc resume {words}"
            supervisors.append(runner.add(feed, once=once, resume_command=session.masked(command)))
        return supervise(supervisors, view, debug=session.debug)


@click.command
@click.argument("file", metavar="FILE", type=FILE)
@click.argument("name", required=False, shell_complete=complete_name)
@json_option
@state_option
@store_option
@locality_option
@debug_option
@click.pass_obj
def check(
    session: CliSession,
    file: str,
    name: str | None,
    as_json: bool,
    state: str | None,
    store: str | None,
    locality: Locality,
) -> int:
    """Check that `cdc run` can start or continue the changefeed NAME in FILE: plugins, options, the source, the sink
    and its progress. Changes nothing.

    Without NAME, check all changefeeds of the file. Prints one line for each part, and notes about what you should
    know although nothing is wrong. The exit status is 2 when a check fails, also with --json.
    """
    store = definition_store(file, state, store)
    found = [located(session, file, each, state=state, store=store) for each in names_in(file, name, store)]
    url = found[0][2]
    session.add_secrets(secret_forms(uri_secrets(url)))
    with progress_at(url) as progress:
        feeds = [resolved(session, changefeed) for changefeed, *_ in found]
        by_file = store is None
        reports = [_check(session, feed, locality, progress, by_file=by_file, as_json=as_json) for feed in feeds]
    if as_json:
        session.echo_json([report.to_json() for report in reports])
    return max(report.status for report in reports)


@contextmanager
def progress_at(url: str) -> Iterator[ProgressStore | None]:
    """Open the progress store at *url*, if there is one. Raises: ConfigError."""
    if not store_exists(url):
        yield None
        return
    with closing(ProgressStore(url)) as store:
        store.open()
        yield store


def _check(
    session: CliSession,
    feed: ResolvedChangefeed,
    here: Locality,
    progress: ProgressStore | None,
    *,
    by_file: bool,
    as_json: bool,
) -> CheckReport:
    """Check a changefeed and return what was found; print it at once unless *as_json*."""
    schemas: list[TableSchema] = []
    parts: list[tuple[str, Component[Any] | None, str, Callable[[], str | None]]] = []
    if progress is not None:
        feed = as_stored(feed, progress)
        if by_file:
            parts.append(("progress", None, progress.shown, partial(_check_registration, feed, progress)))
    parts += [
        ("source", feed.rangefeed, feed.shown_source, lambda: _check_source(feed, schemas)),
        *_query_part(feed, schemas),
        ("encoder", feed.encoder, "", lambda: check_encoder(feed, schemas)),
        ("sink", feed.sink, feed.shown_destination, lambda: check_sink(feed, schemas)),
    ]
    if feed.dead_letter is not None:
        letters = feed.dead_letter
        parts.append(
            ("dead letters", letters.sink, letters.shown_destination, lambda: check_dead_letters(feed, schemas))
        )
    job = progress is not None and progress.jobs.find(feed.name) is not None
    width = max(8, *(len(part) for part, *_ in parts))
    report = CheckReport(session, feed.name, job=job, width=width, quiet=as_json)
    for part, component, place, checked in parts:
        notes: Sequence[str] = ()
        found: str | CdcError
        known = bool(schemas) or part not in ("query", "selected")
        try:
            with nullcontext(notes) if component is None else notes_of(component.registration) as notes:
                found = checked() or "" if known else "not checked, as the source did not give its columns"
        except CdcError as error:
            found, notes = error, ()
        what = " ".join(filter(None, ("" if component is None else component.name, place)))
        rarer = feed.rarer_marks() if part == "sink" else None
        report.add(part, what, found, notes=[*notes, *([rarer] if rarer else [])], is_checked=known)
    if feed.options.execution_locality is not None:
        found = ""
        try:
            pin(feed, here)
        except ConfigError as error:
            found = error
        report.add("locality", feed.options.execution_locality, found)
    master = feed.spark.get("master", "")
    if master and not master.startswith("local"):
        told = "not asked; cdc run asks each executor before it creates anything"
        report.add("cluster", master, told, is_checked=False)
    return report


def located(
    session: CliSession, file: str, name: str | None, *, state: str | None = None, store: str | None = None
) -> tuple[Changefeed, Path, str, Mapping[str, Any]]:
    """Return the changefeed asked for, the directory for a run's own files, the URL of the progress store, and the
    definition that was read from there: none without *store*. Raises: ConfigError.
    """
    if store is None:
        changefeed, beside = find_changefeed(file, name)
        session.typed[changefeed.name] = _words(file, changefeed.name, state=state)
        return changefeed, *state_of(beside, state), {}
    require_one_name(name, state)
    state_dir, url = state_of(Path(), store)
    changefeed, definition = stored_changefeed(session, url, file)
    session.typed[changefeed.name] = _words(file, None, store=store)
    return changefeed, state_dir, url, definition


def names_in(file: str, name: str | None, store: str | None) -> Sequence[str | None]:
    """Return the names to look for: *name*, or without one all in the file. Raises: ConfigError."""
    return changefeed_names(Path(file)) if name is None and store is None and is_file(file) else [name]


def find_changefeed(file: str, name: str | None) -> tuple[Changefeed, Path]:
    """Return the changefeed asked for and the directory that its state belongs to."""
    if is_file(file):
        return read_changefeed(Path(file), name), Path(file).parent
    return _published(file), Path()


def name_in(file: str, name: str | None) -> tuple[str, Path]:
    """Return the name of the changefeed asked for and the directory that its state belongs to.

    Nothing else of the file is read: what it refers to may be missing.
    """
    if is_file(file):
        return find_name(Path(file), name), Path(file).parent
    return _published(file).name, Path()


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


def _words(file: str, name: str | None, **options: str | None) -> str:
    """Return what is typed in a command for the changefeed."""
    given = [word for option, value in options.items() if value is not None for word in (f"--{option}", value)]
    return join([file, *([] if name is None else [name]), *given])


def resolved(session: CliSession, changefeed: Changefeed) -> ResolvedChangefeed:
    """Return *changefeed* resolved; from now on *session* masks its secrets. Raises: ConfigError."""
    return finding.resolved(changefeed, PluginHost.load(), session.add_secrets)


def _check_registration(feed: ResolvedChangefeed, progress: ProgressStore) -> None:
    """Return when a run of what the file says may continue the changefeed that the store knows. Raises: ConfigError."""
    changes_tables = feed.rangefeed.registration.changes_tables
    progress.changefeeds.check_registration(feed.name, feed.definition(), changes_tables=changes_tables)


def _check_source(feed: ResolvedChangefeed, schemas: list[TableSchema]) -> str:
    """Check the source, add its tables to *schemas* for the later checks, and return them as text."""
    schemas.extend(check_source(feed))
    if feed.saved is None:
        check_time_range(feed)
    return "".join(
        f"\n           {schema.name}: {counted(len(schema.columns), 'column')}, key {', '.join(schema.primary_key)}"
        for schema in schemas
    )


def _query_part(
    feed: ResolvedChangefeed, schemas: list[TableSchema]
) -> Iterator[tuple[str, None, str, Callable[[], str]]]:
    """Yield the check of the query, or of the sections of tables, if there are any."""
    if feed.query is not None:
        yield "query", None, feed.tables[0], lambda: _check_query(feed, schemas)
    elif feed.selections:
        tables = ", ".join(selection.table for selection in feed.selections)
        yield "selected", None, tables, lambda: _check_query(feed, schemas)


def _check_query(feed: ResolvedChangefeed, schemas: list[TableSchema]) -> str:
    """Check the query or the sections, put the columns that they give in place of the tables', return them as text."""
    whole = list(schemas)
    schemas[:] = selected(feed, schemas)
    return "".join(
        f"\n           {'' if feed.query is not None else f'{schema.name}: '}"
        f"{', '.join(f'{column.name} {column.type.source}' for column in schema.columns)}"
        for schema, before in zip(schemas, whole, strict=True)
        if schema is not before
    )
