"""The plans of a changefeed's query, one for each version of its table that the run has met."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.engine.query_host import QueryHost
from cdc_core.errors import ConfigError, UnplannedSchemaError
from cdc_core.queries.binding import QueryPlan, bind
from cdc_core.schema import TableSchema

__all__ = ["PlannedQueries", "check_query"]


def check_query(feed: ResolvedChangefeed, schemas: Sequence[TableSchema]) -> None:
    """Return when the query, if there is one, fits its table, as far as one can tell without Spark.

    Raises: OptionError.
    """
    query = feed.parsed_query()
    if query is not None:
        with _of_changefeed(feed):
            for schema in schemas:
                bind(query, schema)


@contextmanager
def _of_changefeed(feed: ResolvedChangefeed) -> Iterator[None]:
    """Say of errors of a query whose it is."""
    try:
        yield
    except ConfigError as error:
        raise type(error)(f"changefeed '{feed.name}': {error}") from None


class PlannedQueries:
    """What the attempts of a run know of a query. Without one there are no plans.

    Rows of several versions may be in one slice, before and after a change of the table. So all versions that were met
    stay planned side by side, and an attempt that meets another one ends for the next to know it too.
    """

    def __init__(self, feed: ResolvedChangefeed, host: QueryHost, *, hold: Callable[[], object]) -> None:
        """*hold* returns when *host* can plan."""
        self._feed = feed
        self._hold = hold
        self._query = feed.parsed_query()
        self._host = host
        self._plans: list[QueryPlan] = []
        self._met: list[TableSchema] = []

    def plans(self, schemas: Sequence[TableSchema]) -> tuple[QueryPlan, ...]:
        """Return the plans for the version in *schemas* and those met before. Raises: OptionError, QueryHostError."""
        if self._query is None:
            return ()
        for schema in (*self._met, *schemas):
            if not any(plan.query.schema.has_shape_of(schema) for plan in self._plans):
                with _of_changefeed(self._feed):
                    query = bind(self._query, schema, number=len(self._plans))
                    self._plans.append(self._host.plan(query))
        return tuple(self._plans)

    def delivered(self, schemas: Sequence[TableSchema]) -> Sequence[TableSchema]:
        """Return the columns of the rows that are delivered of tables with *schemas*. Raises: as `plans`."""
        if self._query is None:
            return schemas
        self._hold()
        return [plan.schema for plan in self.plans(schemas)]

    def learn(self, error: Exception) -> None:
        """Note the version of the table that ended an attempt with *error*, if that is why."""
        if isinstance(error, UnplannedSchemaError):
            self._met.append(TableSchema.from_json(error.schema))
