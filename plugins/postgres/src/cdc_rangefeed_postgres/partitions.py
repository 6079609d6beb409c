"""Partitions that come and go while a changefeed runs."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from cdc_rangefeed_postgres.catalog import Catalog, Leaf, Table
from cdc_rangefeed_postgres.connection import Connection
from cdc_rangefeed_postgres.position import Part, Position, Scan
from cdc_rangefeed_postgres.scan import survey

__all__ = ["with_new_partitions"]

log = logging.getLogger(__name__)

# All rows of a table that was created as a partition are in the log. ATTACH PARTITION, which may bring a filled table,
# rewrites the pg_attribute row of every column: none is left that is as old as the table's type.
_BORN_HERE = """
SELECT l.oid::bigint FROM unnest(%(leaves)s::oid[]) AS l(oid)
WHERE (SELECT bool_and(i.xmin = t.xmin AND EXISTS (
           SELECT FROM pg_attribute c
           WHERE c.attrelid = a.relid AND c.attnum > 0 AND c.xmin = t.xmin AND c.cmin = t.cmin))
       FROM pg_partition_ancestors(l.oid) AS a
       JOIN pg_inherits i ON i.inhrelid = a.relid JOIN pg_type t ON t.typrelid = a.relid
       WHERE a.relid NOT IN (SELECT p.relid FROM pg_partition_ancestors(%(root)s::oid) AS p))
"""


def with_new_partitions(connection: Connection, catalog: Catalog, position: Position) -> Position:
    """Return *position* with partitions known that were not before; those that may bring rows of their own get a scan.

    Rows that a table had before it was attached are in no log. A partition that is gone leaves its rows at the
    consumer, as PostgreSQL logs no deletes for it: that is only said.
    """
    states = dict(position.tables)
    parts: list[Part] = []
    for name, state in position.tables.items():
        table = catalog.tables[name]
        present, known = {leaf.oid for leaf in table.partitions}, set(state.leaves)
        if present == known:
            continue
        if gone := known - present:
            log.warning("%d partitions of table %s are gone; their rows are not deleted at the sink", len(gone), name)
        new = [leaf for leaf in table.partitions if leaf.oid not in known]
        parts += _filled(connection, table, new)
        states[name] = replace(state, leaves=tuple(sorted(present)))
    if parts:
        blocks = sum(part.blocks for part in parts)
        log.info("%d partitions with rows of their own were attached: scanning their %d blocks", len(parts), blocks)
        scan = position.scan or Scan(parts=())
        scan = replace(scan, parts=(*scan.parts, *parts), total=scan.total + blocks)
        return replace(position, tables=states, scan=scan)
    return position if states == position.tables else replace(position, tables=states)


def _filled(connection: Connection, table: Table, leaves: Sequence[Leaf]) -> list[Part]:
    if not leaves:
        return []
    parameters = {"leaves": [leaf.oid for leaf in leaves], "root": table.oid}
    born_here = {row[0] for row in connection.execute(_BORN_HERE, parameters)}
    found = survey(connection, [leaf.oid for leaf in leaves if leaf.oid not in born_here])
    return [
        Part(table=table.name.qualified, oid=oid, filenode=filenode, blocks=blocks)
        for oid, (filenode, blocks, _) in found.items()
        if blocks
    ]
