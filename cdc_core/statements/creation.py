"""The grammar of `CREATE CHANGEFEED` and `ALTER CHANGEFEED`, and of the options in them: `WITH name [= value], …`."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from sqlglot.tokenizer_core import TokenType

from cdc_core.queries.statement import parse_query
from cdc_core.statements.options import our_name, translated, translated_sink
from cdc_core.statements.reading import Reading
from cdc_core.statements.values import AlterChangefeed, CreateChangefeed

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
            raise reading.refused("the query already names the table; remove FOR and its tables", at)
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
        raise reading.refused("FOR requires a list of tables, such as public.orders or public.*")
    tables = []
    while True:
        reading.has("TABLE")
        tables.append(reading.table())
        if reading.is_word("FAMILY"):
            raise reading.refused("the sources' tables have no column families; remove FAMILY")
        if not reading.has_mark(TokenType.COMMA):
            return tuple(tables)


def _sink(reading: Reading) -> str:
    at, uri = reading.at, reading.string("the URI of the sink")
    try:
        return translated_sink(uri)
    except ValueError as error:
        raise reading.refused(str(error), at) from None


def _options(reading: Reading, now: datetime) -> dict[str, str | bool]:
    """Take what follows WITH."""
    reading.has("OPTIONS")
    return assignments(reading, now=now)


_SHAPE = "ALTER CHANGEFEED 'name' followed by ADD table, DROP table, SET option = 'value' or UNSET option"


def alter_changefeed(reading: Reading, now: datetime) -> AlterChangefeed:
    """Take what follows `ALTER CHANGEFEED`: the job, and clauses in any order. Raises: OptionError."""
    job = reading.name("the name of the job")
    add: dict[str, bool | None] = {}
    drop: list[str] = []
    given: dict[str, str] = {}
    unset: list[str] = []
    while not reading.at_end:
        at = reading.at
        if reading.has("ADD"):
            tables = _new(reading, add, drop, at)
            add |= dict.fromkeys(tables, _scan(reading, now))
        elif reading.has("DROP"):
            drop += _new(reading, add, drop, at)
        elif reading.has("SET"):
            found = {name: "true" if value is True else str(value) for name, value in _assigned(reading, now).items()}
            twice = min(found.keys() & given.keys(), default=None)
            if twice is not None:
                raise reading.refused(f"option '{twice}' is set twice; keep one of them", at)
            given |= found
        elif reading.has("UNSET"):
            unset += _unset(reading)
        else:
            raise reading.unexpected("this is not a clause of ALTER CHANGEFEED", _SHAPE)
    if not (add or drop or given or unset):
        raise reading.unexpected("what to alter is missing", _SHAPE)
    return AlterChangefeed(job=job, add=add, drop=tuple(drop), set=given, unset=tuple(unset))


def _new(reading: Reading, add: Collection[str], drop: Collection[str], at: int) -> tuple[str, ...]:
    """Take the tables of a clause. Raises: OptionError when one of them was there before."""
    tables = targets(reading)
    for index, table in enumerate(tables):
        if table in add or table in drop or table in tables[:index]:
            raise reading.refused(f"table {table} is named twice; name each table in one clause", at)
    return tables


def _scan(reading: Reading, now: datetime) -> bool | None:
    """Take `WITH initial_scan = 'yes'`, if it is there; return whether the added tables are scanned."""
    if not reading.has("WITH"):
        return None
    at = reading.at
    options = assignments(reading, now=now)
    wanted = options.pop("initial_scan", None)
    if options or wanted not in ("yes", "no"):
        raise reading.refused("added tables take only one option; write WITH initial_scan = 'yes' or 'no'", at)
    return wanted == "yes"


def _assigned(reading: Reading, now: datetime) -> dict[str, str | bool]:
    if reading.has_mark(TokenType.L_PAREN):
        raise reading.refused("remove the parentheses around the options")
    return assignments(reading, now=now, altering=True)


def _unset(reading: Reading) -> list[str]:
    found = []
    for at, name in names(reading):
        try:
            found.append(our_name(name))
        except ValueError as error:
            raise reading.refused(str(error), at) from None
    return found


_VALUE = "a value is a string in single quotation marks, a number or a word"


def assignments(reading: Reading, *, now: datetime, altering: bool = False) -> dict[str, str | bool]:
    """Take a list of options and return them by our names, as `translated` does. Raises: OptionError."""
    found: dict[str, str | bool] = {}
    for at, name, value in pairs(reading):
        try:
            ours, meaning = translated(name, value, now=now, altering=altering)
        except ValueError as error:
            raise reading.refused(str(error), at) from None
        if ours in found:
            also = "" if ours == name.lower() else f": {name} is another name for it"
            raise reading.refused(f"option '{ours}' is given twice{also}; keep one of them", at)
        found[ours] = meaning
    return found


def pairs(reading: Reading) -> list[tuple[int, str, str | None]]:
    """Take a list of names with or without values, in parentheses or not; return each with its offset.

    Raises: OptionError.
    """
    found, inside = [], reading.has_mark(TokenType.L_PAREN)
    while True:
        at, name = reading.at, _name(reading)
        found.append((at, name, _value(reading) if reading.has_mark(TokenType.EQ) else None))
        if not reading.has_mark(TokenType.COMMA):
            break
    if inside and not reading.has_mark(TokenType.R_PAREN):
        raise reading.refused("the parenthesis before the options is not closed")
    return found


def names(reading: Reading) -> list[tuple[int, str]]:
    """Take a list of names of options; return each with its offset. Raises: OptionError."""
    found = [(reading.at, _name(reading))]
    while reading.has_mark(TokenType.COMMA):
        found.append((reading.at, _name(reading)))
    return found


def _name(reading: Reading) -> str:
    """Take the name of an option, which may have dots: `librdkafka.linger.ms`."""
    parts = [reading.name("the name of an option")]
    while reading.has_mark(TokenType.DOT):
        parts.append(reading.name("the name of an option"))
    return ".".join(parts)


def _value(reading: Reading) -> str:
    sign = "-" if reading.has_mark(TokenType.DASH) else ""
    token = reading.token
    if token is None or reading.at_end or token.token_type in (TokenType.COMMA, TokenType.PARAMETER):
        raise reading.refused(f"the value is missing here; {_VALUE}")
    number = token.token_type is TokenType.NUMBER
    if (sign and not number) or not (number or token.token_type is TokenType.STRING or token.text[:1].isalpha()):
        raise reading.refused(f"this is not a value; {_VALUE}")
    reading.skip()
    after = reading.token
    if number and after is not None and after.start <= token.end + 1 and after.token_type is TokenType.DCOLON:
        raise reading.refused(f"put this value in single quotation marks; {_VALUE}", token.start)
    return f"{sign}{token.text}"
