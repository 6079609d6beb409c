"""What is delivered of one table without a query: some columns, some rows, masked values.

    [changefeed.NAME.table."public.orders"]
    columns = { include = ["id", "status"] }        # or { exclude = ["card"] }
    where = "status = 'paid'"
    mask = { email = "hash", phone = "redact", name = { truncate = 3 } }

It stands for the query `SELECT columns FROM table WHERE condition`, and is read, checked and evaluated as such.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from cdc_core.errors import ConfigError, OptionError
from cdc_core.function_registration import FunctionRegistration
from cdc_core.options import did_you_mean
from cdc_core.queries.binding import bind
from cdc_core.queries.bound_query import BoundQuery
from cdc_core.queries.masks import Mask
from cdc_core.queries.parser import parse_query
from cdc_core.queries.query import Query
from cdc_core.schema import TableName, TableSchema
from cdc_core.sql_names import quoted

_KEYS = ("columns", "where", "mask")
_LISTS = ("include", "exclude")


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The section of one table. `include` is empty for all columns but those in `exclude`."""

    table: str
    """The table's name as the user wrote it."""
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    where: str | None = None
    masks: tuple[tuple[str, Mask], ...] = ()

    @classmethod
    def parse(cls, table: str, value: Any) -> Self:
        """Return the section *value* of *table*. Raises: OptionError as far as the columns need not be known for it."""
        if not isinstance(value, Mapping):
            raise _refused(table, "must be a table with columns, where or mask")
        for key in value:
            if key not in _KEYS:
                raise _refused(table, f"unknown key '{key}'{did_you_mean(key, _KEYS)}")
        if not value:
            raise _refused(table, f"it is empty; set one of {', '.join(_KEYS)}, or remove it")
        where, masks = value.get("where"), value.get("mask", {})
        if where is not None and (not isinstance(where, str) or not where.strip()):
            raise _refused(table, "'where' must be a condition, such as \"status = 'paid'\"")
        if not isinstance(masks, Mapping):
            raise _refused(table, "'mask' must be a table, such as { email = \"hash\" }")
        lists = _lists(table, value.get("columns"))
        found = cls(table=table, where=where, masks=_masks(table, masks), **lists)
        _ = found.conditional  # refused by itself, or fit for any columns
        return found

    def to_json(self) -> dict[str, Any]:
        """Return the value for `parse`."""
        lists = {"include": list(self.include), "exclude": list(self.exclude)}
        columns = {name: names for name, names in lists.items() if names}
        return {
            **({"columns": columns} if columns else {}),
            **({} if self.where is None else {"where": self.where}),
            **({"mask": {name: mask.to_json() for name, mask in self.masks}} if self.masks else {}),
        }

    @property
    def hashes(self) -> bool:
        """Whether a mask needs a key."""
        return any(mask.kind == "hash" for _, mask in self.masks)

    @property
    def shown(self) -> str:
        """The section in a line, for people."""
        parts = [
            ("columns", ", ".join(self.include)),
            ("all columns but", ", ".join(self.exclude)),
            ("where", " ".join((self.where or "").split())),
            ("masked", ", ".join(f"{name} ({_words(mask)})" for name, mask in self.masks)),
        ]
        return "; ".join(f"{word} {text}" for word, text in parts if text)

    @property
    def conditional(self) -> Query:
        """A query with the same condition, whatever the columns, in which Python functions are not known."""
        return self.condition_with(())

    def condition_with(self, installed: tuple[FunctionRegistration, ...]) -> Query:
        """Return a query with the same condition, whatever the columns; it may call the functions *installed*."""
        return self._query(["*"], installed)

    @property
    def name(self) -> tuple[str, ...]:
        """The parts of the table's name that the user wrote."""
        return self.conditional.names[0]

    def matches(self, name: TableName) -> bool:
        """Return whether *name* is that of the table, as far as the user wrote it."""
        parts = self.name
        return (name.database, name.schema, name.table)[-len(parts) :] == parts

    def query_of(self, schema: TableSchema, *, installed: tuple[FunctionRegistration, ...] = ()) -> Query:
        """Return the query that the section stands for, of version *schema*. Raises: OptionError.

        Its condition may call the functions *installed*.
        """
        names = [column.name for column in schema.columns]
        for name in self.exclude:
            if name not in names:
                raise _refused(self.table, f"columns.exclude: {_unknown(name, schema)}")
        items = self.include or [name for name in names if name not in self.exclude]
        if not items:
            raise _refused(self.table, "columns.exclude: no column would be left; remove one from the list")
        return self._query([quoted(name) for name in items], installed)

    def bind(
        self, schema: TableSchema, *, number: int, diff: bool, installed: tuple[FunctionRegistration, ...] = ()
    ) -> BoundQuery:
        """Return the section over version *schema*. *diff*: with the row before. Raises: OptionError, as `bind`."""
        try:
            bound = bind(self.query_of(schema, installed=installed), schema, number=number)
        except OptionError as error:
            place = f"table {self.table}"
            raise error if str(error).startswith(place) else OptionError(f"{place}: {error}") from None
        if bound.topic is not None:
            raise _refused(self.table, "a section cannot deliver a column named cdc_topic; exclude it")
        for name, mask in self.masks:
            self._check_mask(name, mask, schema)
        on_key_alone = not bound.previous and set(bound.typed) <= set(schema.primary_key)
        return replace(bound, section=True, diff=diff, masks=self.masks, deletes_pass=not on_key_alone)

    def _check_mask(self, name: str, mask: Mask, schema: TableSchema) -> None:
        column = next((column for column in schema.columns if column.name == name), None)
        if column is None:
            raise _refused(self.table, f"mask.{name}: {_unknown(name, schema)}")
        if name in schema.primary_key and mask.kind != "hash":
            raise _refused(
                self.table,
                f"mask.{name}: {mask.kind} would give different rows the same key, because the column is part of the "
                "key; use 'hash', or remove the mask",
            )
        delivered = name not in self.exclude and (not self.include or name in self.include)
        if not delivered and name not in schema.primary_key:  # messages have a key without its columns too
            raise _refused(self.table, f"mask.{name}: the column is not delivered; remove the mask")
        refusal = mask.refusal(column.type, in_key=name in schema.primary_key)
        if refusal is not None:
            raise _refused(self.table, f"mask.{name}: {refusal}")

    def _query(self, items: Sequence[str], installed: tuple[FunctionRegistration, ...]) -> Query:
        condition = "" if self.where is None else f" WHERE {self.where.strip()}"
        try:
            return parse_query(f"SELECT {', '.join(items)} FROM {self.table}{condition}", (), installed)
        except ConfigError as error:
            raise _refused(self.table, str(error)) from None


def _lists(table: str, value: Any) -> dict[str, tuple[str, ...]]:
    if value is None:
        return {}
    if not isinstance(value, Mapping) or len(value) != 1 or not set(value) <= set(_LISTS):
        raise _refused(table, '\'columns\' must be { include = ["name", …] } or { exclude = ["name", …] }')
    ((key, names),) = value.items()
    if not isinstance(names, list | tuple) or not names or not all(isinstance(name, str) and name for name in names):
        raise _refused(table, f"columns.{key} must be a list of column names")
    twice = next((name for name, times in Counter(names).items() if times > 1), None)
    if twice is not None:
        raise _refused(table, f"columns.{key} lists '{twice}' twice; remove one of them")
    return {key: tuple(names)}


def _masks(table: str, value: Mapping[str, Any]) -> tuple[tuple[str, Mask], ...]:
    masks = []
    for name, written in value.items():
        try:
            masks.append((name, Mask.parse(written)))
        except ValueError as error:
            raise _refused(table, f"mask.{name} {error}") from None
    return tuple(masks)


def _words(mask: Mask) -> str:
    return f"truncate {mask.characters}" if mask.kind == "truncate" else mask.kind


def _unknown(name: str, schema: TableSchema) -> str:
    names = [column.name for column in schema.columns]
    return f"table {schema.name} has no column '{name}'{did_you_mean(name, names)}"


def _refused(table: str, reason: str) -> OptionError:
    return OptionError(f"table {table}: {reason}")
