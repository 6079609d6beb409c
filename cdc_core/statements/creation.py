"""The grammar of `CREATE CHANGEFEED`."""

from __future__ import annotations

from datetime import datetime

from sqlglot.tokenizer_core import TokenType

from cdc_core.queries.statement import parse_query
from cdc_core.statements.option_lists import assignments
from cdc_core.statements.reading import Reading
from cdc_core.statements.sinks import translated_sink
from cdc_core.statements.values import CreateChangefeed

__all__ = ["create_changefeed", "delivery", "targets"]

_CREATE = "CREATE CHANGEFEED FOR table, … INTO 'uri' WITH option = 'value', …"


def create_changefeed(reading: Reading, now: datetime) -> CreateChangefeed:
    tables = targets(reading) if reading.has("FOR") else ()
    return delivery(reading, now, tables)


def delivery(reading: Reading, now: datetime, tables: tuple[str, ...], *, until: str = "") -> CreateChangefeed:
    """Take `[INTO 'uri'] [WITH …] [AS SELECT …]`; a query ends before the word *until*."""
    sink = _sink(reading) if reading.has("INTO") else None
    options = _options(reading, now) if reading.has("WITH") else {}
    query = None
    if reading.is_word("AS"):
        at = reading.at
        if tables:
            raise reading.refused("the query names the table; remove FOR and its tables", at)
        reading.skip()
        query = reading.query(until)
        tables = (parse_query(query).table,)
    if not tables:
        raise reading.unexpected("FOR, or AS SELECT, is missing", _CREATE)
    name = options.pop("name", None)
    if name is True:
        raise reading.refused("option 'name' needs a value; write name = '…'")
    return CreateChangefeed(tables=tables, sink=sink, options=options, query=query, name=name)  # type: ignore[arg-type]


def targets(reading: Reading) -> tuple[str, ...]:
    """Take the tables after FOR."""
    if reading.is_word("DATABASE"):
        raise reading.refused("a changefeed is of tables; list them, or write public.* for all of a schema")
    tables = []
    while True:
        reading.has("TABLE")
        tables.append(reading.table())
        if reading.is_word("FAMILY"):
            raise reading.refused("tables of the sources have no column families; remove FAMILY")
        if not reading.has_mark(TokenType.COMMA):
            return tuple(tables)


def _sink(reading: Reading) -> str:
    at, uri = reading.at, reading.string("the URI of the sink")
    try:
        return translated_sink(uri)
    except ValueError as error:
        raise reading.refused(str(error), at) from None


def _options(reading: Reading, now: datetime) -> dict[str, str | bool]:
    """Take what follows WITH: a list of options, in parentheses or not."""
    reading.has("OPTIONS")
    if not reading.has_mark(TokenType.L_PAREN):
        return assignments(reading, now=now)
    found = assignments(reading, now=now)
    if not reading.has_mark(TokenType.R_PAREN):
        raise reading.refused("the parenthesis before the options is not closed")
    return found
