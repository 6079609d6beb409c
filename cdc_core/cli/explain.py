"""`cdc explain`."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import TYPE_CHECKING, Any

import click

from cdc_core.cli.located import Named, changefeed_command
from cdc_core.cli.session import json_option
from cdc_core.config.parts import Parts
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.engine.planned_queries import PlannedQueries, check_query
from cdc_core.errors import ConfigError
from cdc_core.options import counted
from cdc_core.plugins.classes import needing
from cdc_core.queries.binding import bind
from cdc_core.queries.comparisons import parts_of_condition
from cdc_core.queries.query import Query
from cdc_core.queries.restricting import restriction_of
from cdc_core.schema import Kind, TableName, TableSchema

if TYPE_CHECKING:
    from cdc_core.spark.host import SparkHost


_Sections = Sequence[tuple[str, Sequence[str]]]
"""Titles, each with lines."""


@changefeed_command(environment="of definitions", has_state=False)
@json_option
def explain(named: Named, as_json: bool) -> int:
    """Show what the query of the changefeed NAME in FILE reads from its source, and Spark's optimized plan.

    Lists the columns that a scan has to read, the comparisons that the source can evaluate, the part of the condition
    that is left to Spark and why, and the changes that the source omits. Does the same for each table that has its own
    section in the definition. Changes nothing.
    """
    feed, *_ = named.resolved()
    require_query(feed)
    if as_json:
        named.session.echo_json([each.to_json() for each in explanations(feed)])
        return 0
    for line in explained(feed):
        click.echo(line)
    return 0


def require_query(feed: ResolvedChangefeed) -> None:
    """Return if there is something to explain. Raises: ConfigError."""
    if not feed.queries().exist:
        raise ConfigError(
            f"changefeed '{feed.name}' has no query to explain: it delivers whole rows of {', '.join(feed.tables)}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What is delivered of one table, and why. Of a table with whole rows there are no sections and no plans."""

    table: TableName
    title: str
    whole_rows: bool = False
    sections: _Sections = ()
    plans: Sequence[str] = ()

    def to_json(self) -> dict[str, Any]:
        sections = [{"title": title, "lines": list(lines)} for title, lines in self.sections]
        return {"table": str(self.table), "whole_rows": self.whole_rows, "sections": sections, "plans": [*self.plans]}


def explained(feed: ResolvedChangefeed) -> Iterator[str]:
    """Yield what `cdc explain` prints of a changefeed with a query. Raises: as `Rangefeed.check`; ConfigError."""
    for each in explanations(feed):
        yield f"changefeed '{feed.name}', {each.title}{': whole rows' if each.whole_rows else ''}"
        for title, lines in each.sections:
            yield f"  {title}"
            for line in lines:
                yield f"    {line}"
        for plan in each.plans:
            yield f"  plan of Spark's optimizer\n{textwrap.indent(plan, '    ')}"


def explanations(feed: ResolvedChangefeed) -> Iterator[Explanation]:
    """Yield what is delivered of each table. Raises: as `explained`."""
    queries = feed.queries()
    schemas, of_source = _checked(feed)
    plans = plans_of(feed, schemas)
    for schema in schemas:
        query = queries.query_of(schema)
        if query is None:
            yield Explanation(table=schema.name, title=f"table {schema.name}", whole_rows=True)
            continue
        title = f"query of {query.table}" if feed.query is not None else f"table {schema.name}"
        sections = [*_needs(query, schema), *of_source[schema.name]]
        yield Explanation(table=schema.name, title=title, sections=sections, plans=plans.get(schema.name, ()))


def _checked(feed: ResolvedChangefeed) -> tuple[list[TableSchema], Mapping[TableName, _Sections]]:
    """Return the tables, and what the source leaves out of the changes of each. Raises: as `Rangefeed.check`."""
    looking = replace(feed, temporary=True)  # what it would leave at the source is in no one's way
    with closing(Parts(looking).open_rangefeed()) as rangefeed:
        rangefeed.check()
        schemas = list(rangefeed.schemas())
        return schemas, {schema.name: rangefeed.explain(schema) for schema in schemas}


def _needs(query: Query, schema: TableSchema) -> Iterator[tuple[str, list[str]]]:
    restriction = restriction_of(query, schema)
    names = [column.name for column in schema.columns]
    used = [name for name in names if restriction.columns is None or name in restriction.columns]
    yield f"columns that a scan reads, {len(used)} of {counted(len(names), 'column')}", [", ".join(used)]
    parts, count = parts_of_condition(query), len(restriction.comparisons)
    if count:
        yield "rows that a scan needs", list(parts[:count])
    here = max(count, len(bind(query, schema).comparisons))
    if parts[count:here]:
        yield "evaluated where rows are read, without Spark", list(parts[count:here])
    if parts[here:]:
        numeric = count and schema.column(restriction.comparisons[-1].column).type.kind is Kind.DECIMAL
        after = (
            "it follows a comparison that fails on NaN"
            if numeric
            else "its first part is not a comparison with constants that can be evaluated without Spark"
        )
        yield f"left to Spark: {after}", list(parts[here:])


_USER = "check"


def selected(feed: ResolvedChangefeed, schemas: Sequence[TableSchema]) -> Sequence[TableSchema]:
    """Return the columns that *feed* delivers of tables with *schemas*; takes some seconds if Spark has to plan.

    Raises: ConfigError when it cannot be evaluated, or Spark is not installed.
    """
    with _spark() as host:
        return PlannedQueries(feed, host, acquire=lambda: host.acquire(_USER)).delivered(schemas)


def plans_of(feed: ResolvedChangefeed, schemas: Sequence[TableSchema]) -> Mapping[TableName, Sequence[str]]:
    """Return Catalyst's plans of what *feed* selects, by table, where Spark evaluates it. Raises: as `selected`."""
    check_query(feed, schemas)
    with _spark() as host:
        host.acquire(_USER)
        found: dict[TableName, list[str]] = {}
        for plan in PlannedQueries(feed, host, acquire=lambda: None).plans(schemas):
            if plan.query.planned:
                found.setdefault(plan.schema.name, []).append(host.explain(plan.query))
        return found


_OPENING_SPARK = Lock()
"""Held while a session is open: a process has one JVM, which one thread at a time starts, uses and ends."""


@contextmanager
def _spark() -> Iterator[SparkHost]:
    with needing("pyspark", "py4j", otherwise="checking a query needs Spark: pip install 'cdc-core[spark]'"):
        from cdc_core.spark.host import SparkHost
    with _OPENING_SPARK, TemporaryDirectory(prefix="cdc-check-", ignore_cleanup_errors=True) as directory:
        host = SparkHost(_USER, {}, state_dir=Path(directory), temporary=True)
        try:
            yield host
        finally:
            host.release(_USER)
