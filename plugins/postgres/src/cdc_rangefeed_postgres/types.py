"""PostgreSQL's types and tables, and the column types of cdc_core for them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

from cdc_core import Column, ColumnType, Kind, TableName, TableSchema
from cdc_rangefeed_postgres.builtin_types import BUILTIN, BUILTIN_ARRAYS, with_modifier

_BINARY_KINDS = {
    Kind.BOOL,
    Kind.INT,
    Kind.FLOAT,
    Kind.DECIMAL,
    Kind.BYTES,
    Kind.UUID,
    Kind.DATE,
    Kind.TIME,
    Kind.TIMESTAMP,
    Kind.TIMESTAMPTZ,
    Kind.JSON,
    Kind.ENUM,
}
_BINARY_TEXTS = {25, 1043, 1042, 19, 26}
"""text, varchar, bpchar, name, oid"""
GONE = ""
"""`TypeInfo.typtype` of a type that was dropped and of which nothing is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeInfo:
    """One type in pg_type, pg_enum and pg_attribute."""

    oid: int
    name: str
    """`format_type(oid, NULL)`."""
    typtype: str
    """pg_type.typtype: b, c, d, e, m, p or r."""
    base: int = 0
    """Domains: pg_type.typbasetype."""
    typmod: int = -1
    """Domains: pg_type.typtypmod, the modifiers of the base type."""
    element: int = 0
    """Arrays: pg_type.typelem where `typoutput = 'array_out'::regproc`. So int2vector is not an array."""
    delimiter: str = ","
    """pg_type.typdelim."""
    labels: tuple[str, ...] = ()
    """Enums: the labels in their order."""
    fields: tuple[tuple[str, int, int], ...] = ()
    """Composites: (name, oid, typmod) of each attribute that is not dropped, in their order."""
    numbers: tuple[int, ...] = ()
    """Composites: the number of each of these attributes, which counts those that were dropped."""
    attributes: int = 0
    """Composites: how many attributes the type has ever had."""
    before: tuple[tuple[int, ...], int] | None = None
    """Composites: `numbers` and `attributes` before they last changed. Transactions that were open then have them."""
    mixed: bool = False
    """Composites: whether any row can be from `before`. If not, one with as many values as attributes is not."""

    def to_json(self) -> dict[str, Any]:
        """Return the values that differ from their defaults."""
        values = {part.name: (getattr(self, part.name), part.default) for part in fields(self)}
        return {name: value for name, (value, default) in values.items() if value != default}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        fields = tuple((name, oid, typmod) for name, oid, typmod in value.get("fields", ()))
        labels, numbers, before = tuple(value.get("labels", ())), tuple(value.get("numbers", ())), value.get("before")
        before = before and (tuple(before[0]), before[1])
        return cls(**{**value, "labels": labels, "fields": fields, "numbers": numbers, "before": before})

    def references(self) -> Iterator[int]:
        """Yield the types that this one consists of."""
        if self.base:
            yield self.base
        if self.element:
            yield self.element
        for _, oid, _ in self.fields:
            yield oid


@dataclass(frozen=True, slots=True)
class PgColumn:
    """A published column of a table in pg_attribute. `key`: whether the log says that the replica identity has it."""

    name: str
    oid: int
    typmod: int = -1
    key: bool = False


@dataclass(frozen=True)
class TypeCatalog:
    """Types by oid. Built-in types need not be listed."""

    types: Mapping[int, TypeInfo] = field(default_factory=dict)

    def unknown(self, oids: Iterable[int]) -> set[int]:
        """Return the types that are missing: of *oids*, and of all types that listed types consist of.

        Look them up in pg_type, add them to the catalog, and repeat this until no type is missing.
        """
        wanted = {*oids, *(oid for info in self.types.values() for oid in info.references())}
        return {oid for oid in wanted if oid not in self}

    def __contains__(self, oid: int) -> bool:
        return oid in self.types or oid in BUILTIN or oid in BUILTIN_ARRAYS

    def __getitem__(self, oid: int) -> TypeInfo:
        """Return a type. Raises: KeyError when it is missing."""
        if oid in BUILTIN_ARRAYS:
            element = BUILTIN_ARRAYS[oid]
            name, _, _ = BUILTIN[element]
            return TypeInfo(
                oid=oid, name=f"{name}[]", typtype="b", element=element, delimiter=";" if name == "box" else ","
            )
        if oid in BUILTIN:
            name, _, _ = BUILTIN[oid]
            return TypeInfo(oid=oid, name=name, typtype="b")
        return self.types[oid]

    def only(self, oids: Iterable[int]) -> TypeCatalog:
        """Return the types *oids* and all that they consist of, without built-in ones."""
        found: dict[int, TypeInfo] = {}
        wanted = list(oids)
        while wanted:
            oid = wanted.pop()
            if oid in self.types and oid not in found:
                found[oid] = self.types[oid]
                wanted.extend(found[oid].references())
        return TypeCatalog(dict(sorted(found.items())))

    def following(self, past: Mapping[int, TypeInfo], *, mixed: bool = False) -> TypeCatalog:
        """Return these types with their `before`, when the types of the *past* were before them."""
        types = dict(self.types)
        for oid in types.keys() & past.keys():
            info, was = types[oid], past[oid]
            if (was.numbers, was.attributes) != (info.numbers, info.attributes):
                types[oid] = replace(info, before=(was.numbers, was.attributes), mixed=mixed)
            elif was.before is not None:
                types[oid] = replace(info, before=was.before)
        return TypeCatalog(types)

    def base(self, oid: int, typmod: int = -1) -> tuple[TypeInfo, int]:
        """Return the type under all domains, and its modifiers."""
        info = self[oid]
        while info.typtype == "d":
            oid, typmod = info.base, info.typmod if info.typmod >= 0 else typmod
            info = self[oid]
        return info, typmod


@dataclass(frozen=True)
class TableVersion:
    """One version of a table in the log: the schema of its rows, and the columns as PostgreSQL writes them.

    `columns` has one published column for each of `schema.columns`, in the same order.
    """

    schema: TableSchema
    columns: tuple[PgColumn, ...]
    types: TypeCatalog = field(default_factory=TypeCatalog)
    nulls: tuple[Column, ...] = ()
    """Columns that follow those of `schema` in every row, and are null."""
    renamed: TableName | None = None
    """See `Table.renamed`."""
    deferrable: bool = False
    """See `Table.deferrable`."""

    def __post_init__(self) -> None:
        if [column.name for column in self.columns] != [column.name for column in self.schema.columns]:
            raise ValueError(f"the columns of {self.schema.name} do not match its schema")

    @property
    def row_schema(self) -> TableSchema:
        """The schema of rows as they are emitted, with `nulls`."""
        return replace(self.schema, columns=(*self.schema.columns, *self.nulls)) if self.nulls else self.schema


def column_type(column: PgColumn, catalog: TypeCatalog) -> ColumnType:
    """Return the column type for *column*. A type without a better match is a string with PostgreSQL's text form.

    Raises: KeyError when *catalog* lacks the type or one that it consists of.
    """
    return _resolve(column.oid, column.typmod, catalog)


def _resolve(oid: int, typmod: int, catalog: TypeCatalog) -> ColumnType:
    info = catalog[oid]
    source = with_modifier(info.oid, info.name, typmod)
    info, typmod = catalog.base(oid, typmod)
    if info.element:
        element = _resolve(info.element, typmod, catalog)
        source = f"{element.source}[]" if oid == info.oid else source
        return ColumnType(kind=Kind.ARRAY, source=source, element=element)
    if info.typtype == "e":
        return ColumnType(kind=Kind.ENUM, source=source, labels=info.labels)
    if info.typtype == "c":
        return ColumnType(kind=Kind.COMPOSITE, source=source)
    _, kind, bits = BUILTIN.get(info.oid, (info.name, Kind.STRING, None))
    precision = scale = None
    if kind is Kind.DECIMAL and typmod >= 4:
        precision, scale = (typmod - 4) >> 16 & 0xFFFF, ((typmod - 4 & 0x7FF) ^ 0x400) - 0x400
    elif kind in (Kind.TIME, Kind.TIMETZ, Kind.TIMESTAMP, Kind.TIMESTAMPTZ) and typmod >= 0:
        precision = typmod
    return ColumnType(kind=kind, source=source, bits=bits, precision=precision, scale=scale)


def binary_safe(columns: Iterable[PgColumn], catalog: TypeCatalog) -> bool:
    """Return whether the log can be read in binary form: every column then has the same values as in text form."""

    def safe(column: PgColumn) -> bool:
        info, _ = catalog.base(column.oid)
        type_ = column_type(column, catalog)
        return type_.kind in _BINARY_KINDS or (type_.kind is Kind.STRING and info.oid in _BINARY_TEXTS)

    return all(safe(column) for column in columns)
