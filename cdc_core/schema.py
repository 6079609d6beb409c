"""What the framework knows about a table: its name, columns, types, key and version."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import Any, Self

import pyarrow as pa


class Kind(StrEnum):
    """What a column's values mean. The Arrow type that carries each kind is fixed, see `ColumnType.arrow`."""

    BOOL = "bool"
    INT = "int"
    FLOAT = "float"
    DECIMAL = "decimal"
    STRING = "string"
    BYTES = "bytes"
    UUID = "uuid"
    DATE = "date"
    TIME = "time"
    TIMETZ = "timetz"
    TIMESTAMP = "timestamp"
    TIMESTAMPTZ = "timestamptz"
    INTERVAL = "interval"
    JSON = "json"
    ENUM = "enum"
    ARRAY = "array"
    COMPOSITE = "composite"


_ARROW: dict[Kind, pa.DataType] = {
    Kind.BOOL: pa.bool_(),
    Kind.BYTES: pa.binary(),
    Kind.DATE: pa.date32(),
    Kind.TIME: pa.time64("us"),
    Kind.TIMESTAMP: pa.timestamp("us"),
    Kind.TIMESTAMPTZ: pa.timestamp("us", "UTC"),
}
_INTS = {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}
_FLOATS = {32: pa.float32(), 64: pa.float64()}


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnType:
    """The type of a column, in the framework's own terms and in the source's.

    | kind | Arrow type | form of the values |
    |---|---|---|
    | `BOOL` | bool | |
    | `INT` | int16, int32 or int64, by `bits` | |
    | `FLOAT` | float32 or float64, by `bits` | including NaN and infinities |
    | `DECIMAL` | string | decimal text with its scale (`22.30`), or `NaN`, `Infinity`, `-Infinity` |
    | `STRING` | string | also every type without a better kind, as its source text |
    | `BYTES` | binary | |
    | `UUID` | string | canonical, lower case |
    | `DATE` | date32 | days; the greatest and least int32 are infinity and -infinity |
    | `TIME` | time64[us] | 86,400,000,000 is 24:00:00 |
    | `TIMETZ` | string | SQL text |
    | `TIMESTAMP` | timestamp[us] | the greatest and least int64 are infinity and -infinity |
    | `TIMESTAMPTZ` | timestamp[us, UTC] | infinities as for `TIMESTAMP` |
    | `INTERVAL` | string | in PostgreSQL's form |
    | `JSON` | string | JSON text as the source has it: a JSON null is the text `null`, a SQL NULL is a null |
    | `ENUM` | string | one of `labels` |
    | `ARRAY` | string | JSON text of an array, nested for more dimensions; elements as the JSON encoder writes them |
    | `COMPOSITE` | string | JSON text of an object, by field name |
    """

    kind: Kind
    source: str
    """The source's own name of the type with its modifiers, such as `numeric(10,2)`, for people and for schemas."""
    bits: int | None = None
    precision: int | None = None
    scale: int | None = None
    labels: tuple[str, ...] = ()
    element: ColumnType | None = None

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type that carries this column in every `RowBatch`."""
        if self.kind is Kind.INT:
            return _INTS[self.bits or 64]
        if self.kind is Kind.FLOAT:
            return _FLOATS[self.bits or 64]
        return _ARROW.get(self.kind, pa.string())

    @property
    def decimal_digits(self) -> tuple[int, int] | None:
        """Precision and scale of a decimal as formats count them; None for any other type, and if none is declared.

        The scale is between zero and the precision: `numeric(3,-2)` is (5, 0), and `numeric(2,4)` is (4, 4).
        """
        if self.kind is not Kind.DECIMAL or self.precision is None:
            return None
        scale = self.scale or 0
        return max(self.precision - min(scale, 0), scale), max(scale, 0)

    def to_json(self) -> dict[str, Any]:
        value: dict[str, Any] = {"kind": str(self.kind), "source": self.source}
        for name in ("bits", "precision", "scale"):
            if getattr(self, name) is not None:
                value[name] = getattr(self, name)
        if self.labels:
            value["labels"] = list(self.labels)
        if self.element is not None:
            value["element"] = self.element.to_json()
        return value

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        fields = dict(value)
        element = fields.pop("element", None)
        return cls(
            kind=Kind(fields.pop("kind")),
            labels=tuple(fields.pop("labels", ())),
            element=None if element is None else cls.from_json(element),
            **fields,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of a table."""

    name: str
    type: ColumnType
    nullable: bool = True


_QUOTED = re.compile(r'[."]')
_FIRST = re.compile(r'(?:"((?:[^"]|"")*)"|([^.]*))\.')


@dataclass(frozen=True, slots=True, order=True)
class TableName:
    """The name of a table: `database`, `schema` and `table`, unquoted.

    Its texts are unambiguous: a database or a schema with a dot or a quotation mark is in quotation marks there, as in
    SQL, and all that follows the dot after it is the name of the table.
    """

    database: str
    schema: str
    table: str

    @classmethod
    def parse(cls, text: str, *, database: str | None = None) -> Self:
        """Return the name whose `full` is *text*; or the name in *database* whose `qualified` is *text*."""
        if database is None:
            database, text = _first_part(text)
        return cls(database, *_first_part(text))

    @property
    def full(self) -> str:
        """`database.schema.table`: the name in spans."""
        return f"{_part(self.database)}.{self.qualified}"

    @property
    def qualified(self) -> str:
        """`schema.table`: the name at the source, and in errors and logs."""
        return f"{_part(self.schema)}.{self.table}"

    def __str__(self) -> str:
        return self.qualified


def _part(name: str) -> str:
    return '"' + name.replace('"', '""') + '"' if _QUOTED.search(name) else name


def _first_part(text: str) -> tuple[str, str]:
    """Return the name before the first dot of a text, and what follows it."""
    found = _FIRST.match(text)
    if found is None:
        raise ValueError(f"{text!r} is not the name of a table")
    name = found[2] if found[1] is None else found[1].replace('""', '"')
    return name, text[found.end() :]


@dataclass(frozen=True, kw_only=True)
class TableSchema:
    """One version of a table's shape.

    `version` starts at 1 and increases with every change of the shape that the changefeed finds. `primary_key` names
    the key columns in key order, whichever index of the source they come from. `key` has these columns if `columns`
    lacks some of them, as in the rows of a query; otherwise, it is empty.
    """

    name: TableName
    version: int
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...]
    key: tuple[Column, ...] = ()

    @property
    def key_columns(self) -> tuple[Column, ...]:
        """The columns of the key, in key order."""
        return self.key or tuple(self.column(name) for name in self.primary_key)

    @cached_property
    def after_type(self) -> pa.StructType:
        """Arrow type of the columns `after` and `before` of a `RowBatch`: all columns, in table order."""
        return pa.struct([pa.field(column.name, column.type.arrow) for column in self.columns])

    @cached_property
    def key_type(self) -> pa.StructType:
        """Arrow type of the column `key` of a `RowBatch`: the key columns, in key order."""
        return pa.struct([pa.field(column.name, column.type.arrow) for column in self.key_columns])

    def has_shape_of(self, other: TableSchema) -> bool:
        """Return whether *other* is equal, apart from its version."""
        return replace(self, version=other.version) == other

    def column(self, name: str) -> Column:
        """Return the column called *name*. Raises: KeyError."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)

    def to_json(self) -> dict[str, Any]:
        hidden = {"key": _columns_json(self.key)} if self.key else {}
        return {
            "name": [self.name.database, self.name.schema, self.name.table],
            "version": self.version,
            "primary_key": list(self.primary_key),
            "columns": _columns_json(self.columns),
            **hidden,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> TableSchema:
        return cls(
            name=TableName(*value["name"]),
            version=value["version"],
            primary_key=tuple(value["primary_key"]),
            columns=_columns(value["columns"]),
            key=_columns(value.get("key", ())),
        )


def _columns_json(columns: Sequence[Column]) -> list[Any]:
    return [[column.name, column.type.to_json(), column.nullable] for column in columns]


def _columns(values: Sequence[Any]) -> tuple[Column, ...]:
    return tuple(
        Column(name=name, type=ColumnType.from_json(type_), nullable=nullable) for name, type_, nullable in values
    )
