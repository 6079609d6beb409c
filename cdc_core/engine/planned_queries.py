"""The plans of a changefeed's query or sections, one for each version of their tables that the run has met."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.engine.query_host import QueryHost
from cdc_core.errors import ConfigError, UnplannedSchemaError
from cdc_core.queries.bound_query import BoundQuery, QueryPlan, output_schema
from cdc_core.queries.refusals import refusal
from cdc_core.schema import TableSchema


def check_query(feed: ResolvedChangefeed, schemas: Sequence[TableSchema]) -> None:
    """Return when the query or the sections, if there are any, fit their tables, as far as one can tell without Spark.

    *schemas* are all tables that are watched. Raises: ConfigError.
    """
    queries = feed.queries()
    with _of_changefeed(feed):
        queries.require_tables(schemas)
        for schema in schemas:
            _check_key_column(queries.bind(schema), feed.options.key_column)


def _check_key_column(query: BoundQuery | None, column: str | None) -> None:
    """Raise an OptionError when *column* is an output that has the name of a key column and another value.

    A deleted row has only its key, and so could not have the key that its other messages have.
    """
    if query is None or column not in query.schema.primary_key:
        return
    output = next((output for output in query.outputs if output.name == column), None)
    if output is not None and output.column != column:
        raise refusal(
            query.text,
            output.at,
            f"key_column = '{column}': the query computes a new value under the name of a primary-key column; rename it"
            " in the query and in key_column",
        )


@contextmanager
def _of_changefeed(feed: ResolvedChangefeed) -> Iterator[None]:
    """Say of errors of a query or a section whose it is."""
    try:
        yield
    except ConfigError as error:
        raise type(error)(f"changefeed '{feed.name}'{':' if feed.query is not None else ','} {error}") from None


class PlannedQueries:
    """What the attempts of a run know of a query or of sections. Without them there are no plans.

    Rows of several versions may be in one slice, before and after a change of the table. So all versions that were met
    stay planned side by side, and an attempt that meets another one ends for the next to know it too.
    """

    def __init__(self, feed: ResolvedChangefeed, host: QueryHost, *, acquire: Callable[[], object]) -> None:
        """*acquire* returns when *host* can plan."""
        self._feed = feed
        self._acquire = acquire
        self._queries = feed.queries()
        self._host = host
        self._plans: list[QueryPlan] = []
        self._met: list[TableSchema] = []

    def plans(self, schemas: Sequence[TableSchema]) -> tuple[QueryPlan, ...]:
        """Return the plans for the versions in *schemas* and those met before. Raises: ConfigError, QueryHostError."""
        for schema in (*self._met, *schemas) if self._queries.exist else ():
            if self._plan_of(schema) is None:
                with _of_changefeed(self._feed):
                    query = self._queries.bind(schema, number=len(self._plans))
                    if query is not None:
                        _check_key_column(query, self._feed.options.key_column)
                        self._plans.append(self._planned(query))
        return tuple(self._plans)

    def delivered(self, schemas: Sequence[TableSchema]) -> Sequence[TableSchema]:
        """Return the columns of the rows that are delivered of all tables, with *schemas*. Raises: as `plans`."""
        if not self._queries.exist:
            return schemas
        check_query(self._feed, schemas)
        if any(query.planned for query in map(self._queries.bind, schemas) if query is not None):
            self._acquire()
        self.plans(schemas)
        plans = [self._plan_of(schema) for schema in schemas]
        return [schema if plan is None else plan.schema for schema, plan in zip(schemas, plans, strict=True)]

    def _plan_of(self, schema: TableSchema) -> QueryPlan | None:
        return next((plan for plan in self._plans if plan.query.schema.has_shape_of(schema)), None)

    def _planned(self, query: BoundQuery) -> QueryPlan:
        """Return *query* planned, by Spark where it is to evaluate something. Raises: ConfigError, QueryHostError."""
        if not query.planned:
            return QueryPlan(query=query, schema=output_schema(query, {}))
        try:
            return self._host.plan(query)
        except ConfigError as error:
            raise type(error)(f"table {query.schema.name}: {error}" if query.section else str(error)) from None

    def learn(self, error: Exception) -> None:
        """Note the version of the table that ended an attempt with *error*, if that is why."""
        if isinstance(error, UnplannedSchemaError):
            self._met.append(TableSchema.from_json(error.schema))
