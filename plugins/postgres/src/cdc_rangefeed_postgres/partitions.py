"""Partitions that are added and removed while a changefeed runs. The log shows neither."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Literal

from cdc_core import TerminalRangefeedError, counted
from cdc_rangefeed_postgres.blocks import survey
from cdc_rangefeed_postgres.catalog import Catalog, Leaf, Table
from cdc_rangefeed_postgres.connection import Connection
from cdc_rangefeed_postgres.names import quoted_table
from cdc_rangefeed_postgres.relations import Relation
from cdc_rangefeed_postgres.remedies import READ_ANEW
from cdc_rangefeed_postgres.token import Part, PostgresToken, Scan, TableState
from cdc_rangefeed_postgres.value_types import code_of

log = logging.getLogger(__name__)

Removed = Literal["delete", "keep"]
_CODE = 4

# All rows of a table that was created as a partition are in the log. ATTACH PARTITION can bring a table with rows, and
# it rewrites the pg_attribute row of every column: no column is as old as the table's type then.
_CREATED_AS_PARTITION = """
SELECT l.oid::bigint FROM unnest(%(leaves)s::oid[]) AS l(oid)
WHERE (SELECT bool_and(i.xmin = t.xmin AND EXISTS (
           SELECT FROM pg_attribute c
           WHERE c.attrelid = a.relid AND c.attnum > 0 AND c.xmin = t.xmin AND c.cmin = t.cmin))
       FROM pg_partition_ancestors(l.oid) AS a
       JOIN pg_inherits i ON i.inhrelid = a.relid JOIN pg_type t ON t.typrelid = a.relid
       WHERE a.relid NOT IN (SELECT p.relid FROM pg_partition_ancestors(%(root)s::oid) AS p))
"""
_NAMES = """
SELECT c.oid::bigint, n.nspname::text, c.relname::text
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = ANY(%s::oid[])
"""


def with_present_partitions(
    connection: Connection, catalog: Catalog, token: PostgresToken, *, removed: Removed
) -> PostgresToken:
    """Return *token* with the partitions of *catalog*, and the scan of what the log does not have.

    Rows that a table had before it was attached are scanned. Rows of a partition that was detached are deleted, unless
    *removed* is "keep". Raises: TerminalRangefeedError for a partition that was dropped with rows to delete.
    """
    states, scan = dict(token.tables), token.scan
    for name, state in token.tables.items():
        table = catalog.tables[name]
        if table.kind != "p":  # nor is it, once it is gone
            continue
        if token.lsn >= token.settled:
            states[name] = state = replace(state, removed=())
        present, known = {leaf.oid for leaf in table.partitions}, set(state.leaves)
        gone, new = sorted(known - present), [leaf for leaf in table.partitions if leaf.oid not in known]
        waiting = [part.oid for part in scan.parts if part.detached and part.table == name] if scan else []
        if gone or waiting:
            _refuse_dropped(connection, name, [*gone, *waiting], removed=removed)
        if present == known:
            continue
        parts = _with_rows(connection, table, new)
        if parts:
            log.info("table %s: %s attached with rows; reading them", name, counted(len(parts), "partition"))
        if gone and removed == "keep":
            log.warning("table %s: %s removed; the rows stay at the sink", name, counted(len(gone), "partition"))
        elif gone:
            log.info("table %s: %s detached; the rows are deleted at the sink", name, counted(len(gone), "partition"))
            parts += _to_delete(connection, name, gone)
        states[name] = replace(state, leaves=tuple(sorted(present)), removed=(*state.removed, *gone))
        if parts or scan is not None:
            scan = (scan or Scan(parts=())).with_parts(parts, instead_of={*gone, *(leaf.oid for leaf in new)})
    return token if states == token.tables else replace(token, tables=states, scan=scan)


def with_passing_partitions(
    catalog: Catalog, token: PostgresToken, relations: Sequence[tuple[Relation, bool]]
) -> PostgresToken:
    """Return *token* with the partitions that were added and removed between two looks: the next one finds them gone.

    *relations* are those of the step that *token* ends. A row of a partition is announced as one of its table, and then
    by the partition itself.
    """
    known = {table.oid for table in catalog.tables.values()}
    known.update(leaf.oid for table in catalog.tables.values() for leaf in table.partitions)
    known.update(oid for state in token.tables.values() for oid in (*state.leaves, *state.removed))
    known.update(part.oid for part in (token.scan.parts if token.scan is not None else ()))
    states = dict(token.tables)
    for (root, _), (leaf, inside) in pairwise(relations):
        table = catalog.by_oid.get(root.relid)
        if table is None or table.kind != "p" or not inside or leaf.relid in known:
            continue
        if sorted(leaf.shape) == sorted(root.shape):  # not another table that is published
            name = table.name.qualified
            known.add(leaf.relid)
            states[name] = replace(states[name], leaves=(*states[name].leaves, leaf.relid))
    return replace(token, tables=states)


def joined_codes(table: Table) -> str:
    """Return a code for each partition of *table*, which changes when it is attached again."""
    return "".join(code_of(leaf.joined)[:_CODE] for leaf in table.partitions)


def without_attached_again(table: Table, state: TableState, *, removed: Removed) -> TableState:
    """Return *state* without the partitions that were detached and attached again since: they are to be scanned.

    The log has nothing of what was written to them in between, and nothing tells which rows were deleted.
    Raises: TerminalRangefeedError, unless *removed* is "keep".
    """
    before = state.layout.joined if state.layout is not None else ""
    known = {oid: before[at * _CODE : (at + 1) * _CODE] for at, oid in enumerate(state.leaves)} if before else {}
    again = [
        leaf
        for leaf in table.partitions
        if code_of(leaf.joined)[:_CODE] != known.get(leaf.oid, code_of(leaf.joined)[:_CODE])
    ]
    if not again:
        return state
    if removed != "keep":
        raise TerminalRangefeedError(
            f"table {table.name}: partition {again[0].qualified} was detached and attached again before the changefeed "
            "noticed, and the log does not have the rows that were deleted from it in between. To leave such rows at "
            f"the sink and continue, set removed_partitions = 'keep'. {READ_ANEW}"
        )
    log.warning(
        "table %s: %s attached again; rows deleted in between stay at the sink",
        table.name,
        counted(len(again), "partition"),
    )
    gone = {leaf.oid for leaf in again}
    return replace(state, leaves=tuple(oid for oid in state.leaves if oid not in gone))


def removed_too_early(table: str, partition: str) -> str:
    """Return the sentence about a partition that was dropped, or altered, before its rows were deleted at the sink."""
    return (
        f"table {table}: partition {partition} was dropped or altered before its rows were deleted at the sink, and the"
        " log has no deletes for them. To leave such rows there and continue, set removed_partitions = 'keep'. To have"
        " such rows deleted in the future, detach a partition first, and drop it once its deletes have arrived."
        f" {READ_ANEW}"
    )


def _refuse_dropped(connection: Connection, table: str, oids: Sequence[int], *, removed: Removed) -> None:
    if removed == "keep":
        return
    present = {row[0] for row in connection.execute(_NAMES, [list(oids)])}
    if dropped := [oid for oid in oids if oid not in present]:
        raise TerminalRangefeedError(removed_too_early(table, f"with the oid {dropped[0]}"))


def _with_rows(connection: Connection, table: Table, leaves: Sequence[Leaf]) -> list[Part]:
    if not leaves:
        return []
    parameters = {"leaves": [leaf.oid for leaf in leaves], "root": table.oid}
    created = {row[0] for row in connection.execute(_CREATED_AS_PARTITION, parameters)}
    found = survey(connection, [leaf.oid for leaf in leaves if leaf.oid not in created])
    return [
        Part(table=table.name.qualified, oid=oid, filenode=filenode, blocks=blocks)
        for oid, (filenode, blocks, _) in found.items()
        if blocks
    ]


def _to_delete(connection: Connection, table: str, oids: Sequence[int]) -> list[Part]:
    names = {oid: quoted_table(schema, name) for oid, schema, name in connection.execute(_NAMES, [list(oids)])}
    return [
        Part(table=table, oid=oid, filenode=filenode, blocks=blocks, detached=names[oid])
        for oid, (filenode, blocks, _) in survey(connection, oids).items()
        if blocks and oid in names
    ]
