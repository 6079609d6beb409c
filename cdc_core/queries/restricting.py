"""What a query leaves out of the scan of its table, and of its changes, as far as sources can tell as well as Spark."""

from __future__ import annotations

from functools import lru_cache
from itertools import takewhile

from cdc_core.errors import ConfigError
from cdc_core.queries.binding import bind
from cdc_core.queries.comparisons import comparisons_of
from cdc_core.queries.query import EVENT_OP, Query
from cdc_core.restriction import Restriction
from cdc_core.schema import TableSchema


@lru_cache(maxsize=64)
def restriction_of(query: Query, schema: TableSchema) -> Restriction:
    """Return what *query* uses of the rows of its table in version *schema*."""
    try:
        bound = bind(query, schema)
    except ConfigError:
        return Restriction()  # planning the query says what is wrong
    columns = frozenset({*schema.primary_key, *bound.raw, *bound.typed})
    everything = columns.issuperset(column.name for column in schema.columns)
    found, whole = comparisons_of(query, schema)
    comparisons = tuple(takewhile(lambda comparison: comparison.column != EVENT_OP, found))
    return Restriction(
        columns=None if everything else columns,
        comparisons=comparisons,
        keep_unknown=not whole or len(comparisons) < len(found),
        # A deleted row has its key, and the condition is evaluated for it too.
        of_changes=tuple(each for each in comparisons if each.column in schema.primary_key),
    )
