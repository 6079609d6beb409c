"""Schema boundaries: changes of tables that the log does not show, found in the catalog.

pgoutput announces a table's shape before the first row that has it, and says nothing about rows that exist. A column
that is added with a default, or a type that is changed, gives these rows other values without any row change.

What is compared, for each table:

    a new attribute      a column was added. Rows that exist have a value in it when pg_attribute.atthasmissing says so,
                         or when the table was rewritten
    a code per attribute its name and its type; an attribute that was dropped, or is generated and not published, is
                         not in the log. Rows of the log can have a column that was added and dropped since. A column
                         that takes the name of another one has other values than rows that exist have by this name
    the file of a leaf   the table was rewritten: by ALTER TABLE when an attribute changed as well, otherwise by
                         VACUUM FULL, CLUSTER and the like, which change no value, or by TRUNCATE
    the columns' types   a value of an enum was renamed, or an attribute of a composite type changed
    the key              its columns, and the constraint or index that has them. Rows could have the same key while it
                         was dropped

A default that is changed for later rows, a constraint, an index, a comment or statistics change none of these.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from cdc_core import SchemaChange, SchemaChangeRules, ShapeChange, Timestamp, counted
from cdc_rangefeed_postgres.blocks import first_parts, survey
from cdc_rangefeed_postgres.catalog import Catalog, Leaf, Table
from cdc_rangefeed_postgres.connection import Connection
from cdc_rangefeed_postgres.options import PostgresOptions
from cdc_rangefeed_postgres.partitions import joined_codes, without_attached_again
from cdc_rangefeed_postgres.past_names import CODE, DROPPED, GENERATED, attribute_codes, is_taken, names_had, past_names
from cdc_rangefeed_postgres.token import Layout, PostgresToken, Scan, TableState
from cdc_rangefeed_postgres.truncation import note_partitions
from cdc_rangefeed_postgres.unlogged import require_always_logged
from cdc_rangefeed_postgres.value_types import Member, code_of, member_changes, members_of

log = logging.getLogger(__name__)

_ATTRIBUTES = """
SELECT attrelid::bigint, attname::text, atttypid::bigint, attisdropped, attgenerated::text, xmin::text
FROM pg_attribute WHERE attrelid = ANY(%s::oid[]) AND attnum > 0 ORDER BY attrelid, attnum
"""
_FILES = """
SELECT oid::bigint, relfilenode::bigint, reltuples < 0 FROM pg_class WHERE oid = ANY(%s::oid[])
"""
_FILLED = """
SELECT DISTINCT attname::text FROM pg_attribute WHERE attrelid = ANY(%s::oid[]) AND atthasmissing
"""


def keyless(catalog: Catalog) -> str | None:
    """Return which table has no key at this moment; None if all have one.

    A key is often changed by dropping it first. Rows that are inserted in between have the last key.
    """
    return f"table {catalog.keyless[0]} has no key: add a primary key" if catalog.keyless else None


def with_layouts(connection: Connection, catalog: Catalog, states: Mapping[str, TableState]) -> dict[str, TableState]:
    """Return *states* with the present layout of each table."""
    tables = [catalog.tables[name] for name in states]
    with _one_moment(connection):
        found = _Present.of(connection, tables)
    return {name: replace(state, layout=found.layout(catalog.tables[name], state)) for name, state in states.items()}


def with_schema_changes(
    connection: Connection,
    catalog: Catalog,
    token: PostgresToken,
    rules: SchemaChangeRules,
    *,
    resolved: Timestamp,
    options: PostgresOptions,
    search: Callable[[Sequence[tuple[Leaf, int]]], Sequence[Leaf]],
) -> PostgresToken:
    """Return *token* with the present layouts, and with the scan of tables whose rows the *rules* want again.

    Not needed where `Compared` holds. *search* is asked once which partitions with a new file were truncated, where the
    catalog does not tell.

    Raises: PartitionsTruncatedError, also for partitions that ended the changefeed before and which *token* remembers;
    TerminalRangefeedError when the policy is to stop.
    """
    tables = [catalog.tables[name] for name in token.tables]
    states, changes, rewritten = dict(token.tables), [], {}
    unaltered: list[tuple[Leaf, int]] = []
    truncated = {name: [] if catalog.tables[name].gone else list(was.truncated) for name, was in token.tables.items()}
    with _one_moment(connection):
        found = _Present.of(connection, tables)
        for name, state in token.tables.items():
            table = catalog.tables[name]
            if state.layout is not None and not table.gone:
                before = dict(zip(state.leaves or (state.oid,), state.layout.files, strict=False))
                changes += _changes(connection, table, state.layout, before, found)
                truncated[name] += _emptied(table, state.layout, before, found)
                rewritten[name] = _rewritten(table, state.layout, before, found)
                unlisted = table.kind == "p" or not table.listed  # PostgreSQL lets them be unlogged
                if unlisted and found.altered(table, len(found.attributes[table.oid])) == state.layout.altered:
                    unaltered += rewritten[name]
            changes += _key_changes(table, state)
            state = without_attached_again(table, state, removed=options.removed_partitions)
            states[name] = replace(state, layout=found.layout(table, state), truncated=())
    partitions = [leaf for name, leaves in rewritten.items() if catalog.tables[name].kind == "p" for leaf in leaves]
    in_log = set(search(partitions)) if partitions and options.truncate == "stop" else set()
    for name, leaves in rewritten.items():
        truncated[name] += [leaf.qualified for leaf, _ in leaves if leaf in in_log]
    note_partitions({name: tuple(dict.fromkeys(names)) for name, names in truncated.items() if names}, options.truncate)
    require_always_logged(connection, unaltered, search)
    if states == token.tables:
        return token
    return with_changes(connection, catalog, replace(token, tables=states), rules, changes, resolved=resolved)


@dataclass(frozen=True, slots=True)
class Compared:
    """The layouts of tables that agree with a catalog. A token that has others must be compared again."""

    catalog: Catalog
    layouts: Mapping[str, Layout | None]

    @classmethod
    def of(cls, catalog: Catalog, token: PostgresToken) -> Compared:
        return cls(catalog, {name: state.layout for name, state in token.tables.items()})

    def holds(self, catalog: Catalog, token: PostgresToken) -> bool:
        """Return whether *token* has the layouts of *catalog*. A table with another file has another catalog."""
        return catalog is self.catalog and all(
            state.layout is not None and state.layout == self.layouts.get(name) for name, state in token.tables.items()
        )


def with_changes(
    connection: Connection,
    catalog: Catalog,
    token: PostgresToken,
    rules: SchemaChangeRules,
    changes: Sequence[SchemaChange],
    *,
    resolved: Timestamp,
) -> PostgresToken:
    """Return *token* with the scan of tables whose rows the *rules* want again after *changes*.

    Raises: TerminalRangefeedError when the policy is to stop.
    """
    again = rules.tables_to_read_again(changes, resolved=resolved)
    for change in changes:
        log.info("table %s: %s", change.table, change.what)
    return token.scanning(again, scanned_again(connection, [catalog.tables[name] for name in again], token.scan))


def passing_keys(keys: Mapping[str, tuple[str, ...]]) -> list[SchemaChange]:
    """Return the changes of *keys* that tables had for a while, see `Versions.passing`. The catalog shows no trace."""
    return [
        SchemaChange(table=name, kind=ShapeChange.KEY_CHANGED, what=f"the key was ({', '.join(key)}) for a while")
        for name, key in keys.items()
    ]


_Attributes = Mapping[int, Sequence[tuple[str, str, str]]]
"""By table: name, code and writing transaction of each attribute."""
_Files = Mapping[int, tuple[int, bool]]
"""By leaf: its file, and whether nothing is known about its rows, as after TRUNCATE."""


@contextmanager
def _one_moment(connection: Connection) -> Iterator[None]:
    """Let all queries in the block see the catalog of one moment: a table could be altered between two of them."""
    with connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        yield


def _attributes(connection: Connection, tables: Iterable[Table]) -> _Attributes:
    stored = {table.oid: table.stored_columns for table in tables}
    found: dict[int, list[tuple[str, str, str]]] = {oid: [] for oid in stored}
    for oid, name, kind, dropped, generated, writer in connection.execute(_ATTRIBUTES, [list(found)]):
        code = code_of(name)[:CODE] + code_of(str(kind))[:CODE]
        absent = generated == "v" or (generated == "s" and not stored[oid])
        found[oid].append((name, DROPPED if dropped else GENERATED if absent else code, writer))
    return found


def _files(connection: Connection, tables: Iterable[Table]) -> _Files:
    rows = connection.execute(_FILES, [[leaf.oid for table in tables for leaf in table.leaves]])
    return {oid: (filenode or 0, unknown) for oid, filenode, unknown in rows}


def _members(connection: Connection, tables: Iterable[Table]) -> Mapping[int, Sequence[Member]]:
    return members_of(connection, [table.oid for table in tables])


def _of(files: _Files, table: Table) -> tuple[int, ...]:
    return tuple(files.get(leaf.oid, (0, False))[0] for leaf in table.leaves)


@dataclass(frozen=True, slots=True)
class _Present:
    """The attributes and files of tables, and the members of their types, as the catalog has them now."""

    attributes: _Attributes
    files: _Files
    members: Mapping[int, Sequence[Member]]

    @classmethod
    def of(cls, connection: Connection, tables: Sequence[Table]) -> _Present:
        return cls(_attributes(connection, tables), _files(connection, tables), _members(connection, tables))

    def layout(self, table: Table, state: TableState) -> Layout:
        """Return the present layout of *table*, with the last key of *state* when there is none now."""
        attributes, before = self.attributes[table.oid], state.layout
        return Layout(
            key=table.key or state.present_key,
            key_ids=table.key_ids or (before.key_ids if before is not None else ()),
            columns="".join(code for _, code, _ in attributes),
            altered=self.altered(table, len(attributes)),
            files=_of(self.files, table),
            members="".join(member.code for member in self.members[table.oid]),
            joined=joined_codes(table),
            past_names="" if before is None else past_names(before, [code for _, code, _ in attributes]),
        )

    def altered(self, table: Table, count: int) -> str:
        """Return a hash of the transactions that wrote the first *count* attributes."""
        return code_of(" ".join(writer for _, _, writer in self.attributes[table.oid][:count]))


def _changes(
    connection: Connection,
    table: Table,
    before: Layout,
    files: Mapping[int, int],
    found: _Present,
) -> list[SchemaChange]:
    """Return what happened to *table* since its layout was *before*, and its leaves had these *files*."""
    attributes, old = found.attributes[table.oid], attribute_codes(before)
    altered = found.altered(table, len(old)) != before.altered
    rewritten = [
        leaf for leaf in table.leaves if leaf.oid in files and found.files.get(leaf.oid, (0,))[0] != files[leaf.oid]
    ]
    changes = []

    def note(kind: ShapeChange, what: str) -> None:
        changes.append(SchemaChange(table=table.name.qualified, kind=kind, what=what))

    had = names_had(before)
    added = {name: code for name, code, _ in attributes[len(old) :] if code not in (DROPPED, GENERATED)}
    if added:
        leaves = [leaf.oid for leaf in table.leaves]
        filled = set(added) if rewritten else {row[0] for row in connection.execute(_FILLED, [leaves])}
        for name, code in added.items():
            if is_taken(code, had):
                note(ShapeChange.COLUMN_FILLED, f"another column {name} was added")
            elif name in filled:
                note(ShapeChange.COLUMN_FILLED, f"column {name} was added with a value for existing rows")
            else:
                note(ShapeChange.COLUMN_ADDED, f"column {name} was added")
    if any(code == DROPPED for _, code, _ in attributes[len(old) :]):
        note(ShapeChange.COLUMN_DROPPED, "a column was added and dropped")
    retyped = False
    for number, (was, (name, code, _)) in enumerate(zip(old, attributes, strict=False), 1):
        if was == code or (was == GENERATED and code == DROPPED):
            continue
        if code == DROPPED:
            note(ShapeChange.COLUMN_DROPPED, "a column was dropped")
        elif was == GENERATED:
            note(ShapeChange.COLUMN_FILLED, f"column {name} is now in the log")
        elif code == GENERATED:
            note(ShapeChange.COLUMN_DROPPED, f"column {name} is no longer in the log")
        elif was[:CODE] != code[:CODE] and is_taken(code, had, number=number):
            note(ShapeChange.VALUES_CHANGED, f"another column was renamed to {name}")
        elif was[:CODE] != code[:CODE]:
            note(ShapeChange.COLUMN_RENAMED, f"a column was renamed to {name}")
        if code not in (DROPPED, GENERATED) and was != GENERATED and was[CODE:] != code[CODE:]:
            retyped = True
            note(ShapeChange.VALUES_CHANGED, f"the type of column {name} was changed")
    if members := list(member_changes(before.members, found.members[table.oid])):
        of_key = members_of(connection, [table.oid], table.key or before.key)[table.oid]
        keys = {what for _, what in member_changes(before.members, of_key)}
        for kind, what in members:
            note(ShapeChange.KEY_CHANGED if what in keys else kind, f"{what}, in the key" if what in keys else what)
    if rewritten and altered and not retyped:
        note(ShapeChange.VALUES_CHANGED, "ALTER TABLE rewrote its rows")
    return changes


def _emptied(table: Table, before: Layout, files: Mapping[int, int], found: _Present) -> list[str]:
    """Return the partitions of *table* that have a new file, as by `_rewritten`, and unknown statistics.

    So TRUNCATE of a single partition leaves it, which the log does not have.
    """
    count = len(before.columns) // (2 * CODE)
    added = any(code not in (DROPPED, GENERATED) for _, code, _ in found.attributes[table.oid][count:])
    if table.kind != "p" or added or found.altered(table, count) != before.altered:
        return []
    now = {leaf: found.files.get(leaf.oid, (0, False)) for leaf in table.leaves if leaf.oid in files}
    return [leaf.qualified for leaf, (file, unknown) in now.items() if file != files[leaf.oid] and unknown]


def _rewritten(table: Table, before: Layout, files: Mapping[int, int], found: _Present) -> list[tuple[Leaf, int]]:
    """Return the leaves of *table* that have rows and a new file, with it, for which no column was altered."""
    if found.altered(table, len(before.columns) // (2 * CODE)) != before.altered:
        return []
    now = {leaf: found.files.get(leaf.oid, (0, True)) for leaf in table.leaves if leaf.oid in files}
    return [(leaf, file) for leaf, (file, unknown) in now.items() if file != files[leaf.oid] and not unknown]


def _key_changes(table: Table, state: TableState) -> list[SchemaChange]:
    """Return what happened to the key of *table* since *state*. One that is missing now may come back."""
    if not table.key:
        return []
    before, ids = state.present_key, set(state.layout.key_ids if state.layout is not None else ())
    if table.key != before:
        what = f"the key changed from ({', '.join(before)}) to ({', '.join(table.key)})"
    elif ids and ids.isdisjoint(table.key_ids):
        what = f"the key ({', '.join(before)}) was dropped and added again"
    else:
        return []
    return [SchemaChange(table=table.name.qualified, kind=ShapeChange.KEY_CHANGED, what=what)]


def scanned_again(connection: Connection, tables: Sequence[Table], scan: Scan | None) -> Scan | None:
    """Return *scan* with all rows of *tables*, from their beginning."""
    if not tables:
        return scan
    parts = first_parts(tables, survey(connection, [leaf.oid for table in tables for leaf in table.leaves]))
    blocks = sum(part.blocks for part in parts)
    log.info("reading again: %s (%s)", ", ".join(table.name.qualified for table in tables), counted(blocks, "block"))
    if scan is None:
        return Scan(parts=parts, total=blocks) if parts else None
    return scan.with_parts(parts, instead_of={leaf.oid for table in tables for leaf in table.leaves})
