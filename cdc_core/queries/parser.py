"""The parser of queries, for those who may have none: it is loaded with the first query.

A parser of SQL takes long to load, and most processes of a changefeed have nothing to parse.
"""

from __future__ import annotations

from cdc_core.function_registration import FunctionRegistration
from cdc_core.queries.query import Query
from cdc_core.restriction import Restriction
from cdc_core.schema import TableSchema


def parse_query(
    text: str, functions: tuple[tuple[str, str], ...] = (), installed: tuple[FunctionRegistration, ...] = ()
) -> Query:
    """Return what `cdc_core.queries.statement.parse_query` returns. Raises: OptionError."""
    from cdc_core.queries import statement

    return statement.parse_query(text, functions, installed)


def restriction_of(query: Query, schema: TableSchema) -> Restriction:
    """Return what `cdc_core.queries.restricting.restriction_of` returns."""
    from cdc_core.queries import restricting

    return restricting.restriction_of(query, schema)
