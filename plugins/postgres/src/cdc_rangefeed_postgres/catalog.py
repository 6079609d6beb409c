"""Tables in the server's catalog, as they were at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from cdc_core import TableName
from cdc_rangefeed_postgres.names import qualified, quoted_table


@dataclass(frozen=True, slots=True)
class CatalogColumn:
    """A column in pg_attribute."""

    name: str
    oid: int
    typmod: int
    not_null: bool
    generated: str


@dataclass(frozen=True, slots=True)
class Leaf:
    """A table that holds rows: a partition, or a table without partitions."""

    oid: int
    schema: str
    name: str
    kind: str
    persistence: str
    identity: str
    joined: str = ""
    """Of a partition: the transactions that attached it, and the partitions above it."""

    @property
    def qualified(self) -> str:
        return qualified(self.schema, self.name)

    @property
    def sql(self) -> str:
        return quoted_table(self.schema, self.name)


@dataclass(frozen=True, kw_only=True)
class Table:
    """A watched table. Fields of one letter have the codes of pg_class."""

    oid: int
    name: TableName
    """The name under which it is followed."""
    kind: str
    """Empty for a table that was dropped, of which only the log is left."""
    persistence: str
    identity: str
    """d: the primary key, i: an index, f: the whole row, n: nothing."""
    root: int | None
    """The topmost table of which this one is a partition."""
    published: bool
    """Whether the table is in the changefeed's publication."""
    stored_columns: bool
    """Whether stored generated columns are in the log: since PostgreSQL 18, unless the publication leaves them out."""
    all_columns: tuple[CatalogColumn, ...]
    indexes: tuple[tuple[bool, bool, bool, tuple[str, ...], int], ...]
    """(primary, replica identity, not deferrable, columns, oid of the constraint or else of the index)."""
    partitions: tuple[Leaf, ...]
    publishing: tuple[str, ...] = ()
    """What publishes it: see `cdc_rangefeed_postgres.publication_changes`."""
    nulls: bool = False
    """Whether columns that are not in the log are null in every row, instead of left out."""
    renamed: TableName | None = None
    """Its name in the database, when that is another one."""

    @property
    def gone(self) -> bool:
        """Whether it was dropped."""
        return not self.kind

    @property
    def present(self) -> TableName:
        """Its name in the database."""
        return self.renamed or self.name

    @property
    def sql(self) -> str:
        """The table's name in SQL."""
        return quoted_table(self.present.schema, self.present.table)

    @property
    def sql_only(self) -> str:
        """The table's name in SQL, without tables that inherit from it. Partitions are part of it."""
        return self.sql if self.kind == "p" else f"ONLY {self.sql}"

    @property
    def listed(self) -> bool:
        """Whether the publication lists the table itself, and not all tables or those of its schema."""
        return any(len(entry.split()) == 2 for entry in self.publishing[2:])

    @property
    def primary_key(self) -> tuple[str, ...]:
        return next((columns for primary, _, _, columns, _ in self.indexes if primary), ())

    @property
    def deferrable(self) -> bool:
        """Whether several rows can have the same key until their transaction ends."""
        return any(
            primary and not immediate and columns == self.key for primary, _, immediate, columns, _ in self.indexes
        )

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that identify a row in the log: those of the identity index, otherwise of the primary key."""
        if self.identity == "i" and self.kind == "r":
            return next((columns for _, identity, _, columns, _ in self.indexes if identity), ())
        return self.primary_key

    @property
    def key_ids(self) -> tuple[int, ...]:
        """The constraints, or indexes, that have the key. One that was dropped and made again has another oid."""
        return tuple(oid for _, _, _, columns, oid in self.indexes if columns == self.key)

    @property
    def columns(self) -> tuple[CatalogColumn, ...]:
        """The columns in the log."""
        return tuple(
            column
            for column in self.all_columns
            if not column.generated or (column.generated == "s" and self.stored_columns)
        )

    @property
    def null_columns(self) -> tuple[CatalogColumn, ...]:
        """The columns that are not in the log, when rows shall have them as nulls."""
        columns = set(self.columns)
        return tuple(column for column in self.all_columns if column not in columns) if self.nulls else ()

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """The tables that hold the rows: the partitions, or the table itself."""
        if self.kind == "p":
            return self.partitions
        name = self.present
        return (Leaf(self.oid, name.schema, name.table, self.kind, self.persistence, self.identity),)


@dataclass(frozen=True)
class Catalog:
    """The watched tables by `schema.table`, all read at one moment."""

    tables: Mapping[str, Table]
    fingerprint: str
    """A hash of everything in the catalog that decoding and scanning depend on."""
    stamp: str = ""
    """See `catalog_queries.load_again`."""
    composites: tuple[int, ...] = ()
    """The relations that describe the composite types of the columns: only with `load_again`."""

    @cached_property
    def by_oid(self) -> Mapping[int, Table]:
        return {table.oid: table for table in self.tables.values()}

    @cached_property
    def type_oids(self) -> frozenset[int]:
        return frozenset(column.oid for table in self.tables.values() for column in table.all_columns)

    @cached_property
    def keyless(self) -> tuple[str, ...]:
        """The tables that have no key at this moment."""
        return tuple(name for name, table in self.tables.items() if not table.key and not table.gone)
