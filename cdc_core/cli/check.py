"""`cdc check`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click

from cdc_core.cli.explain import selected
from cdc_core.cli.locality import locality_option
from cdc_core.cli.located import Named, changefeed_command, progress_at, resolved
from cdc_core.cli.run import NEEDS_SPARK, SPARK
from cdc_core.cli.session import CliSession, json_option
from cdc_core.cli.tables import colored
from cdc_core.config.component import Component
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.engine.checks import (
    as_stored,
    check_dead_letters,
    check_encoder,
    check_sink,
    check_source,
    check_time_range,
)
from cdc_core.errors import CdcError, ConfigError
from cdc_core.locality import Locality
from cdc_core.options import counted
from cdc_core.plugins.classes import needing
from cdc_core.private_files import check_state_directory
from cdc_core.registrations import Registration
from cdc_core.remedies import fitting
from cdc_core.schema import TableSchema
from cdc_core.spark.placement_settings import pin
from cdc_core.store.progress import ProgressStore


@changefeed_command(environment="of definitions")
@json_option
@locality_option
def check(named: Named, as_json: bool, locality: Locality) -> int:
    """Check that `cdc run` can start or continue the changefeed NAME in FILE: its plugins, options, source,
    sink, progress, and, unless nodes run the jobs of its store, what it needs of this host. Changes nothing.

    Without NAME, checks all changefeeds in the file. Prints one line for each part, with hints.
    The exit status is 2 if a check fails, even with --json.
    """
    session, found = named.session, [each.located() for each in named.each()]
    url = found[0][2]
    session.mask_uri(url)
    with progress_at(url) as progress:
        feeds = [resolved(session, changefeed) for changefeed, *_ in found]
        by_file = named.store is None
        here = Here(locality, found[0][1])
        reports = [check_report(session, feed, here, progress, by_file=by_file, as_json=as_json) for feed in feeds]
    if as_json:
        session.echo_json([report.to_json() for report in reports])
    return max(report.status for report in reports)


@dataclass(frozen=True, slots=True)
class Here:
    """Where a run would be: the locality of this process, and the directory for its own files."""

    locality: Locality
    state_dir: Path


class Report:
    """The parts of one changefeed, perhaps a *job*. Each is printed as soon as it is added, unless it is *quiet*."""

    def __init__(self, session: CliSession, name: str, *, job: bool, width: int, quiet: bool) -> None:
        self.status = 0
        """The exit status: 2 when a part fails."""
        self._session, self._name, self._job, self._width, self._quiet = session, name, job, width, quiet
        self._parts: list[dict[str, Any]] = []
        self._print(f"changefeed '{name}'")

    def add(
        self, part: str, what: str, found: str | CdcError, *, notes: Sequence[str] = (), is_checked: bool = True
    ) -> None:
        """Add a part: *found* is its error, or has further lines about it, or says why it is not checked."""
        text, failed = str(found), isinstance(found, CdcError)
        if failed:
            self.status = ConfigError.exit_status
            text = fitting(text, self._name, job=self._job)
        text = self._session.masked(text)
        outcome = colored(text, "error") if failed else f"{colored('ok', 'ok')}{text}" if is_checked else text
        self._print(f"  {part:{self._width}} {what} … {outcome}")
        for note in notes:
            self._print(f"  {'':{self._width}} note: {self._session.masked(note)}")
        self._parts.append(
            {
                "part": part,
                "what": what,
                "ok": not failed if is_checked else None,
                "error": text if failed else None,
                "details": [] if failed else [line.strip() for line in text.splitlines() if line],
                "notes": [*notes],
            }
        )

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON values; docs/command-line.md explains each."""
        return {"name": self._name, "ok": self.status == 0, "parts": self._parts}

    def _print(self, line: str) -> None:
        if not self._quiet:
            click.echo(line)


def check_report(
    session: CliSession,
    feed: ResolvedChangefeed,
    here: Here | None,
    progress: ProgressStore | None,
    *,
    by_file: bool,
    as_json: bool,
) -> Report:
    """Check a changefeed and return what was found; print it at once unless *as_json*.

    Without *here*, this process is not to run it, and nothing of this host is checked.
    """
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
    report = Report(session, feed.name, job=job, width=width, quiet=as_json)
    for part, component, place, checked in parts:
        notes: Sequence[str] = ()
        found: str | CdcError
        known = bool(schemas) or part not in ("query", "selected")
        try:
            with nullcontext(notes) if component is None else notes_of(component.registration) as notes:
                found = checked() or "" if known else "not checked, because the source did not report its columns"
        except CdcError as error:
            found, notes = error, ()
        what = " ".join(filter(None, ("" if component is None else component.name, place)))
        rarer = feed.rarer_marks() if part == "sink" else None
        report.add(part, what, found, notes=[*notes, *([rarer] if rarer else [])], is_checked=known)
    if here is not None and feed.options.execution_locality is not None:
        report.add("locality", feed.options.execution_locality, _refusal(partial(pin, feed, here.locality)))
    master = feed.spark.get("master", "")
    on_nodes = job or master == "nodes" or (progress is not None and progress.nodes.living())
    if here is not None and not on_nodes:
        checks = {"directory": partial(check_state_directory, here.state_dir), "Spark": partial(_check_spark, feed)}
        for what, host_check in checks.items():
            if found := _refusal(host_check):
                report.add("host", what, found)
    if master == "nodes":
        found, is_checked = _nodes_found(progress, feed.options.execution_locality)
        report.add("cluster", master, found, is_checked=is_checked)
    elif master and not master.startswith("local"):
        told = "not checked; `cdc run` checks each executor before it creates anything"
        report.add("cluster", master, told, is_checked=False)
    return report


def _refusal(checked: Callable[[], object]) -> str | ConfigError:
    try:
        checked()
    except ConfigError as error:
        return error
    return ""


def _check_spark(feed: ResolvedChangefeed) -> None:
    """Return if Spark can start on this host for a run. Raises: ConfigError."""
    with needing(*SPARK, otherwise=NEEDS_SPARK):
        from cdc_core.spark.encryption import require_encryption
        from cdc_core.spark.session import require_java
    require_encryption(feed.spark)
    require_java()


def _nodes_found(progress: ProgressStore | None, locality: str | None) -> tuple[str | CdcError, bool]:
    """Return what the progress store knows of its nodes in *locality*, and whether that is all to check."""
    found = None if progress is None else progress.cluster.poll()
    names = [] if found is None else [node.name for node in found.within(locality)]
    if found is None or not names:
        told = "not checked; it runs as a job, created by `cdc create`, on nodes started with `cdc node --cores N`"
        return told, False
    return f"\n           {counted(found.cores(locality), 'core')} offered to each job on {', '.join(names)}", True


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


class _Notes(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


@contextmanager
def notes_of(component: Registration) -> Iterator[list[str]]:
    """Yield a list that fills with what the component's package logs inside the block, at INFO or above."""
    place = getattr(component, component.CLASSES[0])
    logger, notes = logging.getLogger(place.partition(":")[0].partition(".")[0]), _Notes()
    level = logger.level
    logger.addHandler(notes)
    logger.setLevel(min(logger.getEffectiveLevel(), logging.INFO))
    try:
        yield notes.texts
    finally:
        logger.setLevel(level)
        logger.removeHandler(notes)
