"""`cdc explain`."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing

import click

from cdc_core.cli.query_check import plans_of
from cdc_core.cli.run import located, resolved
from cdc_core.cli.session import FILE, CliSession, debug_option
from cdc_core.cli.stored import store_option
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.errors import ConfigError
from cdc_core.options import counted
from cdc_core.queries.query import Query
from cdc_core.queries.restricting import parts_of_condition, restriction_of
from cdc_core.schema import Kind, TableName, TableSchema

__all__ = ["explain", "explained"]

_Sections = Sequence[tuple[str, Sequence[str]]]
"""Titles, each with lines."""


@click.command
@click.argument("file", metavar="FILE", type=FILE)
@click.argument("name", required=False)
@store_option
@debug_option
@click.pass_obj
def explain(session: CliSession, file: str, name: str | None, store: str | None) -> int:
    """Show what the query of changefeed NAME in FILE needs of its source, and the plan of Spark's optimizer.

    Lists the columns that a scan has to read, the comparisons that the source can evaluate, what of the condition is
    left to Spark, with the reason, and which changes the source leaves out. Likewise for each table that has a section.
    Changes nothing.
    """
    feed = resolved(session, located(session, file, name, store=store)[0])
    if not feed.queries().exist:
        raise ConfigError(
            f"changefeed '{feed.name}' has no query to explain: it delivers whole rows of {', '.join(feed.tables)}"
        )
    for line in explained(feed):
        click.echo(line)
    return 0


def explained(feed: ResolvedChangefeed) -> Iterator[str]:
    """Yield what `cdc explain` prints of a changefeed with a query. Raises: as `Rangefeed.check`; ConfigError."""
    queries = feed.queries()
    schemas, of_source = _checked(feed)
    plans = plans_of(feed, schemas)
    for schema in schemas:
        query = queries.query_of(schema)
        if query is None:
            yield f"changefeed '{feed.name}', table {schema.name}: whole rows"
            continue
        what = f"query of {query.table}" if feed.query is not None else f"table {schema.name}"
        yield f"changefeed '{feed.name}', {what}"
        for title, lines in (*_needs(feed, query, schema), *of_source[schema.name]):
            yield f"  {title}"
            for line in lines:
                yield f"    {line}"
        for plan in plans.get(schema.name, ()):
            yield f"  plan of Spark's optimizer\n{textwrap.indent(plan, '    ')}"


def _checked(feed: ResolvedChangefeed) -> tuple[list[TableSchema], Mapping[TableName, _Sections]]:
    """Return the tables, and what the source leaves out of the changes of each. Raises: as `Rangefeed.check`."""
    with closing(feed.open_rangefeed()) as rangefeed:
        rangefeed.check()
        schemas = list(rangefeed.schemas())
        return schemas, {schema.name: rangefeed.explain(schema) for schema in schemas}


def _needs(feed: ResolvedChangefeed, query: Query, schema: TableSchema) -> Iterator[tuple[str, list[str]]]:
    restriction = restriction_of(query, schema)
    names = [column.name for column in schema.columns]
    used = [name for name in names if restriction.columns is None or name in restriction.columns]
    yield f"columns that a scan reads, {len(used)} of {counted(len(names), 'column')}", [", ".join(used)]
    parts, count = parts_of_condition(query), len(restriction.comparisons)
    if count:
        yield (
            f"rows that a scan reads, if the source {feed.rangefeed.name} can compare these types",
            list(parts[:count]),
        )
    if parts[count:]:
        numeric = count and schema.column(restriction.comparisons[-1].column).type.kind is Kind.DECIMAL
        after = (
            "it follows a comparison that fails for NaN"
            if numeric
            else ("its first part is no comparison of a column with constants that sources evaluate like Spark")
        )
        yield f"left to Spark: {after}", list(parts[count:])
