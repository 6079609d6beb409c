"""The versions of the watched tables that the rows of a step can have."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

from cdc_core import Column, TableSchema, TerminalRangefeedError
from cdc_rangefeed_postgres.catalog import Catalog, Table
from cdc_rangefeed_postgres.connection import Connection
from cdc_rangefeed_postgres.relations import Relation, shape
from cdc_rangefeed_postgres.remedies import READ_ANEW
from cdc_rangefeed_postgres.token import TableState
from cdc_rangefeed_postgres.types import GONE, PgColumn, TableVersion, TypeCatalog, TypeInfo, binary_safe, column_type

_TYPES = """
SELECT t.oid::bigint, format_type(t.oid, NULL), t.typtype::text, t.typbasetype::bigint, t.typtypmod,
       CASE WHEN t.typoutput = 'array_out'::regproc THEN t.typelem::bigint ELSE 0 END, t.typdelim::text,
       ARRAY(SELECT e.enumlabel::text FROM pg_enum e WHERE e.enumtypid = t.oid ORDER BY e.enumsortorder),
       (SELECT json_agg(json_build_array(a.attname, a.atttypid::bigint, a.atttypmod, a.attnum) ORDER BY a.attnum)
        FROM pg_attribute a WHERE a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped),
       (SELECT c.relnatts FROM pg_class c WHERE c.oid = t.typrelid)
FROM pg_type t WHERE t.oid = ANY(%s::oid[])
"""
_BUILT_IN = """
SELECT t.oid::bigint, format_type(t.oid, NULL) FROM pg_type t
WHERE t.typnamespace = 'pg_catalog'::regnamespace AND t.typname::text = %s
"""


def _load_types(
    connection: Connection,
    oids: Iterable[int],
    known: TypeCatalog | None = None,
    past: Mapping[int, TypeInfo] = MappingProxyType({}),
    announced: Mapping[int, str] = MappingProxyType({}),
) -> TypeCatalog:
    """Return a catalog with the types *oids* and all types that they consist of.

    *past* has types as the oldest rows have them: those that were dropped since, and attributes that were. *announced*:
    see `Relation.types`.
    """
    types = dict(known.types) if known is not None else {}
    oids = list(oids)
    while missing := TypeCatalog(types).unknown(oids):
        for row in connection.execute(_TYPES, [list(missing)], prepare=True):
            oid, name, kind, base, typmod, element, delimiter, labels, fields, attributes = row
            types[oid] = TypeInfo(
                oid=oid,
                name=name,
                typtype=kind,
                base=base,
                typmod=typmod,
                element=element,
                delimiter=delimiter,
                labels=tuple(labels),
                fields=tuple((field[0], field[1], field[2]) for field in fields or ()),
                numbers=tuple(field[3] for field in fields or ()),
                attributes=attributes or 0,
            )
        for oid in missing - types.keys():
            types[oid] = past.get(oid) or _announced(connection, oid, announced.get(oid, f"with oid {oid}"))
    return TypeCatalog(dict(sorted(types.items()))).following(past, mixed=True)


def _announced(connection: Connection, oid: int, name: str) -> TypeInfo:
    """Return a type that was dropped and is not known: by its *name*, a domain over a type of PostgreSQL, or `GONE`."""
    schema, _, type_ = name.partition(".")
    row: Any = connection.execute(_BUILT_IN, [type_]).fetchone() if schema == "pg_catalog" else None
    if row is None:
        return TypeInfo(oid=oid, name=name, typtype=GONE)
    return TypeInfo(oid=oid, name=row[1], typtype="d", base=row[0])


@dataclass(frozen=True, kw_only=True)
class Versions:
    """`lists` has the versions of each table in log order. `states` is for the token at the end of the step."""

    lists: Mapping[str, tuple[TableVersion, ...]]
    states: Mapping[str, TableState]
    passing: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By table: a key that it had only within the step, and neither at its start nor in the catalog."""

    @cached_property
    def binary(self) -> bool:
        """Whether the log can be read in binary form."""
        return all(binary_safe(version.columns, version.types) for found in self.lists.values() for version in found)

    @classmethod
    def of_catalog(
        cls,
        connection: Connection,
        catalog: Catalog,
        states: Mapping[str, TableState],
        types: TypeCatalog | None = None,
    ) -> Versions:
        """Return the versions for a log whose tables have the same shapes as the catalog.

        *types*, see `present_types`, are used as they are; others are looked up.
        """
        lists: dict[str, tuple[TableVersion, ...]] = {}
        after = {}
        shown = {name: _published(catalog.tables[name]) for name in states}
        columns = [*_nulls(catalog), *(column for columns in shown.values() for column in columns)]
        types = _types(connection, columns, types)
        for name, state in states.items():
            table = catalog.tables[name]
            if table.gone:
                lists[name], after[name] = (), state
                continue
            version, after[name] = _next(table, shown[name], table.key or state.key, state, types)
            lists[name] = (version,)
        return cls(lists=lists, states=after)

    @classmethod
    def of_log(
        cls,
        connection: Connection,
        catalog: Catalog,
        states: Mapping[str, TableState],
        relations: Sequence[tuple[Relation, bool]],
        *,
        settled: bool,
        types: TypeCatalog,
        past: Mapping[int, TypeInfo],
    ) -> Versions:
        """Return the versions that *relations* announce in a step's log.

        The flag of each says whether it lies inside the step. Of the messages before the step, only the last one of
        each table counts: transactions inside may rely on it. A table that no message announces has the catalog's
        shape, so without messages the result is that of `of_catalog`. *settled*: tables in the step have the catalog's
        shapes. If not, their types can be those of the *past*: see `PostgresToken.types`.
        """
        lists: dict[str, list[TableVersion]] = {name: [] for name in states}
        after, passing = dict(states), {}
        keys = {name: state.key for name, state in states.items()}
        by_oid = catalog.by_oid
        shown = {name: _published(catalog.tables[name]) for name in states}
        announced = [column for relation, _ in relations if relation.relid in by_oid for column in relation.columns]
        announced += _nulls(catalog)
        announced += [column for columns in shown.values() for column in columns]
        names = {oid: type_ for relation, _ in relations for oid, type_ in relation.types.items()}
        oids = {column.oid for column in announced}
        types = _load_types(connection, oids, types, {} if settled else past, names)
        before = {relation.relid: (relation, False) for relation, inside in relations if not inside}
        for relation, inside in [*before.values(), *(found for found in relations if found[1])]:
            table = by_oid.get(relation.relid)
            if table is None:
                continue
            name = table.name.qualified
            key = _key_in_log(relation, [table.key, keys[name]] if settled else [keys[name], table.key], table)
            version, after[name] = _next(table, relation.columns, key, after[name], types)
            if not lists[name] or lists[name][-1] != version:
                lists[name].append(version)
            if inside:
                keys[name] = key
                if key != states[name].key == states[name].present_key:
                    passing[name] = key
        for name, found in lists.items():
            table = catalog.tables[name]
            if not found and not table.gone:
                found.append(_next(table, shown[name], table.key or keys[name], after[name], types)[0])
        return cls(lists={name: _distinct(found) for name, found in lists.items()}, states=after, passing=passing)


def _distinct(versions: Sequence[TableVersion]) -> tuple[TableVersion, ...]:
    """Return *versions* without what the log says of the key, unless they differ in nothing else.

    So they are the same as those of `of_catalog`, and a step that is planned again has the same slices.
    """
    if len({shape(version.columns) for version in versions}) < len(versions):
        return tuple(versions)
    return tuple(
        replace(version, columns=tuple(replace(column, key=False) for column in version.columns))
        for version in versions
    )


def first_states(connection: Connection, catalog: Catalog) -> dict[str, TableState]:
    """Return the states of all tables at the start of a changefeed."""
    states, types = {}, present_types(connection, catalog)
    for name, table in catalog.tables.items():
        version = first_version(table, types)
        states[name] = TableState(
            oid=table.oid,
            key=table.key,
            version=1,
            shape=_shape_of(version),
            leaves=tuple(leaf.oid for leaf in table.partitions),
            published=table.publishing,
        )
    return states


def first_version(table: Table, types: TypeCatalog) -> TableVersion:
    """Return the current version of *table*, which has a key, as the first one. *types* are those of its columns."""
    return _make_version(table, _published(table), key=table.key, version=1, types=types)


def _key_in_log(relation: Relation, known: Sequence[tuple[str, ...]], table: Table) -> tuple[str, ...]:
    """Return the key of the rows after *relation*: one of *known* if it fits, in that order.

    A message names the columns of the key without their order. It does not name them with REPLICA IDENTITY FULL, for a
    table that has no key at that point, and for a partitioned table with another identity than its primary key.
    """
    names = {column.name for column in relation.columns}
    named = tuple(column.name for column in relation.columns if column.key)
    if not named or relation.replica_identity == "f" or (table.kind == "p" and relation.replica_identity != "d"):
        return next((key for key in known if key and names.issuperset(key)), known[0] or known[1])
    return next((key for key in known if set(key) == set(named)), named)


def _next(
    table: Table, columns: Sequence[PgColumn], key: tuple[str, ...], state: TableState, types: TypeCatalog
) -> tuple[TableVersion, TableState]:
    """Return the version with *columns* and *key*: that of *state* when both are the same, otherwise a new one."""
    names = {column.name for column in columns}
    if not names.issuperset(key):
        missing = ", ".join(name for name in key if name not in names)
        raise TerminalRangefeedError(
            f"table {table.name}: key column {missing} was dropped or renamed, so rows can no longer be identified. "
            f"{READ_ANEW}"
        )
    version = _make_version(table, columns, key=key, version=state.version, types=types)
    shape = _shape_of(version)
    if shape == state.shape:
        return version, state
    version = _make_version(table, columns, key=key, version=state.version + 1, types=types)
    return version, replace(state, version=state.version + 1, shape=shape, key=key)


def _published(table: Table) -> list[PgColumn]:
    return [PgColumn(column.name, column.oid, column.typmod) for column in table.columns]


def _nulls(catalog: Catalog) -> list[PgColumn]:
    return [PgColumn(column.name, column.oid) for table in catalog.tables.values() for column in table.null_columns]


def _types(connection: Connection, columns: Sequence[PgColumn], known: TypeCatalog | None = None) -> TypeCatalog:
    return _load_types(connection, {column.oid for column in columns}, known)


def present_types(connection: Connection, catalog: Catalog) -> TypeCatalog:
    """Return the types of all columns of *catalog*. A type that is altered after this looks as before."""
    return _load_types(connection, catalog.type_oids)


def schemas_of(connection: Connection, catalog: Catalog, states: Mapping[str, TableState] | None) -> list[TableSchema]:
    """Return the present schemas of all tables, with version numbers that continue those of *states*."""
    known = states if states is not None else first_states(connection, catalog)
    return [found[0].row_schema for found in Versions.of_catalog(connection, catalog, known).lists.values()]


def _make_version(
    table: Table,
    columns: Iterable[PgColumn],
    *,
    key: tuple[str, ...],
    version: int,
    types: TypeCatalog,
) -> TableVersion:
    """Return the version of *table* with *columns*. Some of them may have been dropped since."""
    not_null = {column.name for column in table.columns if column.not_null}
    columns = tuple(columns)
    schema = TableSchema(
        name=table.name,
        version=version,
        columns=tuple(
            Column(name=column.name, type=column_type(column, types), nullable=column.name not in not_null)
            for column in columns
        ),
        primary_key=key,
    )
    names = {column.name for column in columns}
    nulls = tuple(
        Column(name=column.name, type=column_type(PgColumn(column.name, column.oid, column.typmod), types))
        for column in table.null_columns
        if column.name not in names
    )
    return TableVersion(
        schema=schema,
        columns=columns,
        types=types.only(column.oid for column in columns),
        nulls=nulls,
        renamed=table.renamed,
        deferrable=table.deferrable,
    )


def _shape_of(version: TableVersion) -> str:
    """Return a hash of the columns, types and key: equal for two versions of a table that do not differ in them."""
    columns = [
        [ours.name, theirs.oid, theirs.typmod, ours.type.to_json()]
        for ours, theirs in zip(version.schema.columns, version.columns, strict=True)
    ]
    nulls = [[column.name, column.type.to_json()] for column in version.nulls]
    text = json.dumps([columns, list(version.schema.primary_key), *([nulls] if nulls else [])])
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()[:16]
