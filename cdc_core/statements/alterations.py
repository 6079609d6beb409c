"""The grammar of `ALTER CHANGEFEED`."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from sqlglot.tokenizer_core import TokenType

from cdc_core.statements.creation import targets
from cdc_core.statements.option_lists import assignments, names
from cdc_core.statements.options import our_name
from cdc_core.statements.reading import Reading
from cdc_core.statements.values import AlterChangefeed

__all__ = ["alter_changefeed"]

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
            raise reading.refused(f"table {table} is there twice; name each table in one clause", at)
    return tables


def _scan(reading: Reading, now: datetime) -> bool | None:
    """Take `WITH initial_scan = 'yes'`, if it is there; return whether the added tables are scanned."""
    if not reading.has("WITH"):
        return None
    at = reading.at
    options = assignments(reading, now=now)
    wanted = options.pop("initial_scan", None)
    if options or wanted not in ("yes", "no"):
        raise reading.refused("added tables have one option; write WITH initial_scan = 'yes' or 'no'", at)
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
