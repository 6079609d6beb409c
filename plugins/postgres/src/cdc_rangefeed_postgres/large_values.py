"""Which tables do not log the large values that an update leaves unchanged. Said before it begins."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from cdc_rangefeed_postgres.catalog import Leaf, Table
from cdc_rangefeed_postgres.connection import Connection

log = logging.getLogger(__name__)

_MAX_NAMED = 5
# A table without a TOAST table cannot have a row that is long enough.
_COLUMNS = """
SELECT c.oid::bigint, a.attname::text
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
WHERE c.oid = ANY(%s::oid[]) AND c.relreplident <> 'f' AND c.reltoastrelid <> 0
  AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' AND a.attlen = -1 AND a.attstorage IN ('x', 'e', 'm')
"""
_OUTCOMES = {
    "unavailable": "list them in 'unavailable'",
    "lookup": "have the current values",
}


def log_large_values(connection: Connection, tables: Sequence[Table], *, unchanged_toast: str) -> None:
    """Log one line, if any of *tables* or their partitions can lack values, with the statement that changes that."""
    by_oid = {leaf.oid: (table, leaf) for table in tables for leaf in table.leaves}
    found: dict[int, Leaf] = {}
    for oid, column in connection.execute(_COLUMNS, [list(by_oid)]):
        table, leaf = by_oid[oid]
        if column not in table.key:
            found[oid] = leaf
    if not found:
        return
    leaves = sorted(found.values(), key=lambda leaf: leaf.qualified)
    names = ", ".join(leaf.qualified for leaf in leaves[:_MAX_NAMED])
    more = f" and {len(leaves) - _MAX_NAMED} more" if len(leaves) > _MAX_NAMED else ""
    log.info(
        "%s%s: updates do not log large (TOAST) values that they leave unchanged, so messages %s. To log them, run"
        " ALTER TABLE %s REPLICA IDENTITY FULL;",
        names,
        more,
        _OUTCOMES[unchanged_toast],
        leaves[0].sql if len(leaves) == 1 else "…",
    )
