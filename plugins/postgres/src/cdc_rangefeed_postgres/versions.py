"""The versions of the watched tables that the rows of a step can have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cdc_core import TableSchema, TerminalRangefeedError
from cdc_rangefeed_postgres.catalog import Catalog, Table, load_types, make_version, shape_of
from cdc_rangefeed_postgres.connection import Connection
from cdc_rangefeed_postgres.relations import Relation
from cdc_rangefeed_postgres.remedies import READ_ANEW
from cdc_rangefeed_postgres.token import TableState
from cdc_rangefeed_postgres.types import PgColumn, TableVersion, TypeCatalog

__all__ = ["Versions", "first_states", "schemas_of"]


@dataclass(frozen=True, kw_only=True)
class Versions:
    """`lists` has the versions of each table in log order. `states` is for the token at the end of the step."""

    lists: Mapping[str, tuple[TableVersion, ...]]
    states: Mapping[str, TableState]

    @classmethod
    def of_catalog(cls, connection: Connection, catalog: Catalog, states: Mapping[str, TableState]) -> Versions:
        """Return the versions for a log whose tables have the same shapes as the catalog."""
        lists: dict[str, tuple[TableVersion, ...]] = {}
        after = {}
        shown = {name: _published(catalog.tables[name]) for name in states}
        types = _types(connection, [*_nulls(catalog), *(column for columns in shown.values() for column in columns)])
        for name, state in states.items():
            if catalog.tables[name].gone:
                lists[name], after[name] = (), state
                continue
            version, after[name] = _next(catalog.tables[name], shown[name], state, types)
            lists[name] = (version,)
        return cls(lists=lists, states=after)

    @classmethod
    def of_log(
        cls,
        connection: Connection,
        catalog: Catalog,
        states: Mapping[str, TableState],
        relations: Sequence[tuple[Relation, bool]],
    ) -> Versions:
        """Return the versions that *relations* announce in a step's log.

        The flag of each says whether it lies inside the step. Of the messages before the step, only the last one of
        each table counts: transactions inside may rely on it. A table that no message announces has the catalog's
        shape, so without messages the result is that of `of_catalog`.
        """
        lists: dict[str, list[TableVersion]] = {name: [] for name in states}
        after = dict(states)
        by_oid = catalog.by_oid
        shown = {name: _published(catalog.tables[name]) for name in states}
        announced = [column for relation, _ in relations if relation.relid in by_oid for column in relation.columns]
        announced += _nulls(catalog)
        types = _types(connection, [*announced, *(column for columns in shown.values() for column in columns)])
        before = {relation.relid: relation for relation, inside in relations if not inside}
        for relation in [*before.values(), *(relation for relation, inside in relations if inside)]:
            table = by_oid.get(relation.relid)
            if table is None:
                continue
            name = table.name.qualified
            version, after[name] = _next(table, relation.columns, after[name], types)
            if not lists[name] or lists[name][-1].schema.version != version.schema.version:
                lists[name].append(version)
        for name, found in lists.items():
            if not found and not catalog.tables[name].gone:
                found.append(_next(catalog.tables[name], shown[name], after[name], types)[0])
        return cls(lists={name: tuple(found) for name, found in lists.items()}, states=after)


def first_states(connection: Connection, catalog: Catalog) -> dict[str, TableState]:
    """Return the states of all tables at the start of a changefeed."""
    states = {}
    for name, table in catalog.tables.items():
        columns = _published(table)
        types = _types(connection, [*columns, *_nulls(catalog)])
        version = make_version(table, columns, key=table.key, version=1, types=types)
        states[name] = TableState(
            oid=table.oid,
            key=table.key,
            version=1,
            shape=shape_of(version),
            leaves=tuple(leaf.oid for leaf in table.partitions),
        )
    return states


def _next(
    table: Table, columns: Sequence[PgColumn], state: TableState, types: TypeCatalog
) -> tuple[TableVersion, TableState]:
    """Return the version with *columns*: that of *state* when the shape is the same, otherwise a new one."""
    names = {column.name for column in columns}
    if not names.issuperset(state.key):
        missing = ", ".join(name for name in state.key if name not in names)
        raise TerminalRangefeedError(
            f"table {table.name}: key column {missing} was dropped or renamed, so rows can no longer be identified. "
            f"{READ_ANEW}"
        )
    version = make_version(table, columns, key=state.key, version=state.version, types=types)
    shape = shape_of(version)
    if shape == state.shape:
        return version, state
    version = make_version(table, columns, key=state.key, version=state.version + 1, types=types)
    return version, replace(state, version=state.version + 1, shape=shape)


def _published(table: Table) -> list[PgColumn]:
    return [PgColumn(column.name, column.oid, column.typmod) for column in table.columns]


def _nulls(catalog: Catalog) -> list[PgColumn]:
    return [PgColumn(column.name, column.oid) for table in catalog.tables.values() for column in table.null_columns]


def _types(connection: Connection, columns: Sequence[PgColumn]) -> TypeCatalog:
    return load_types(connection, {column.oid for column in columns})


def schemas_of(connection: Connection, catalog: Catalog, states: Mapping[str, TableState] | None) -> list[TableSchema]:
    """Return the present schemas of all tables, with version numbers that continue those of *states*."""
    known = states if states is not None else first_states(connection, catalog)
    return [found[0].row_schema for found in Versions.of_catalog(connection, catalog, known).lists.values()]
