"""Partitions that are added and removed while a changefeed runs."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from cdc_core import counted
from cdc_rangefeed_postgres.blocks import survey
from cdc_rangefeed_postgres.catalog import Catalog, Leaf, Table
from cdc_rangefeed_postgres.connection import Connection
from cdc_rangefeed_postgres.token import Part, PostgresToken, Scan

__all__ = ["with_new_partitions"]

log = logging.getLogger(__name__)

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


def with_new_partitions(connection: Connection, catalog: Catalog, token: PostgresToken) -> PostgresToken:
    """Return *token* with the partitions of *catalog*. New partitions that may have rows of their own are scanned.

    Rows that a table had before it was attached are in no log. PostgreSQL logs no deletes for a partition that was
    removed, so its rows remain at consumers; this function only logs a warning.
    """
    states = dict(token.tables)
    parts: list[Part] = []
    for name, state in token.tables.items():
        table = catalog.tables[name]
        present, known = {leaf.oid for leaf in table.partitions}, set(state.leaves)
        if present == known:
            continue
        if gone := known - present:
            log.warning(
                "table %s: %s removed; the rows are not deleted at the sink", name, counted(len(gone), "partition")
            )
        new = [leaf for leaf in table.partitions if leaf.oid not in known]
        parts += _with_rows(connection, table, new)
        states[name] = replace(state, leaves=tuple(sorted(present)))
    if parts:
        blocks = sum(part.blocks for part in parts)
        log.info("attached %s with rows, %s to scan", counted(len(parts), "partition"), counted(blocks, "block"))
        scan = token.scan or Scan(parts=())
        scan = replace(scan, parts=(*scan.parts, *parts), total=scan.total + blocks)
        return replace(token, tables=states, scan=scan)
    return token if states == token.tables else replace(token, tables=states)


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
