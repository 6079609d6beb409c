"""PostgreSQL's types in the framework's terms, from nothing but what the catalog says of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from cdc_core import ColumnType, Kind, TableSchema
from cdc_rangefeed_postgres.builtin_types import BUILTIN, BUILTIN_ARRAYS, with_modifier

__all__ = ["PgColumn", "TableVersion", "TypeCatalog", "TypeInfo", "binary_safe", "column_type"]

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


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeInfo:
    """What pg_type, pg_enum and pg_attribute say of one type."""

    oid: int
    name: str
    """`format_type(oid, NULL)`."""
    typtype: str
    """pg_type.typtype: b, c, d, e, m, p or r."""
    base: int = 0
    """Domains: pg_type.typbasetype."""
    typmod: int = -1
    """Domains: pg_type.typtypmod, the modifiers that the domain gives its base type."""
    element: int = 0
    """Arrays: pg_type.typelem, but only where `typoutput = 'array_out'::regproc` (int2vector and the like are none)."""
    delimiter: str = ","
    """pg_type.typdelim."""
    labels: tuple[str, ...] = ()
    """Enums: the labels in their order."""
    fields: tuple[tuple[str, int, int], ...] = ()
    """Composites: (name, oid, typmod) of each attribute that is not dropped, in their order."""

    def references(self) -> Iterator[int]:
        """Yield the types that this one is made of."""
        if self.base:
            yield self.base
        if self.element:
            yield self.element
        for _, oid, _ in self.fields:
            yield oid


@dataclass(frozen=True, slots=True)
class PgColumn:
    """A published column of a table, as pg_attribute has it. `key` says whether it belongs to the changefeed's key."""

    name: str
    oid: int
    typmod: int = -1
    key: bool = False


@dataclass(frozen=True)
class TypeCatalog:
    """The types that PostgreSQL does not bring itself, by oid. Built-in types are known without being listed."""

    types: Mapping[int, TypeInfo] = field(default_factory=dict)

    def unknown(self, oids: Iterable[int]) -> set[int]:
        """Return the oids to look up in pg_type: those of *oids*, and of what listed types refer to, not known yet.

        Look them up, build a catalog with them added, and ask again until the set is empty.
        """
        wanted = {*oids, *(oid for info in self.types.values() for oid in info.references())}
        return {oid for oid in wanted if oid not in self}

    def __contains__(self, oid: int) -> bool:
        return oid in self.types or oid in BUILTIN or oid in BUILTIN_ARRAYS

    def __getitem__(self, oid: int) -> TypeInfo:
        """Return what is known of a type. Raises: KeyError."""
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

    def base(self, oid: int, typmod: int = -1) -> tuple[TypeInfo, int]:
        """Return the type under all domains, and its modifiers."""
        info = self[oid]
        while info.typtype == "d":
            oid, typmod = info.base, info.typmod if info.typmod >= 0 else typmod
            info = self[oid]
        return info, typmod

    def to_json(self) -> list[dict[str, Any]]:
        return [asdict(info) for info in self.types.values()]

    @classmethod
    def from_json(cls, value: Iterable[Mapping[str, Any]]) -> TypeCatalog:
        infos = (
            TypeInfo(**{**info, "labels": tuple(info["labels"]), "fields": tuple(tuple(f) for f in info["fields"])})
            for info in value
        )
        return cls({info.oid: info for info in infos})


@dataclass(frozen=True)
class TableVersion:
    """One version of a table as the log shows it: the schema that rows get, and how PostgreSQL writes its columns.

    `columns` are the published ones (no generated columns unless they are published), one for each of
    `schema.columns`, in the same order.
    """

    schema: TableSchema
    columns: tuple[PgColumn, ...]
    types: TypeCatalog = field(default_factory=TypeCatalog)

    def __post_init__(self) -> None:
        if [column.name for column in self.columns] != [column.name for column in self.schema.columns]:
            raise ValueError(f"columns of {self.schema.name} do not match its schema")

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": self.schema.to_json(),
            "columns": [[column.name, column.oid, column.typmod, column.key] for column in self.columns],
            "types": self.types.to_json(),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> TableVersion:
        return cls(
            schema=TableSchema.from_json(value["schema"]),
            columns=tuple(PgColumn(*column) for column in value["columns"]),
            types=TypeCatalog.from_json(value["types"]),
        )


def column_type(column: PgColumn, catalog: TypeCatalog) -> ColumnType:
    """Return the framework's type of *column*. A type of which nothing better is known is a string: its text form.

    Raises: KeyError when *catalog* lacks the type or one that it is made of.
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
    """Return whether the log may be asked for the binary form: every column's is decoded here, to the same value."""

    def safe(column: PgColumn) -> bool:
        info, _ = catalog.base(column.oid)
        type_ = column_type(column, catalog)
        return type_.kind in _BINARY_KINDS or (type_.kind is Kind.STRING and info.oid in _BINARY_TEXTS)

    return all(safe(column) for column in columns)
