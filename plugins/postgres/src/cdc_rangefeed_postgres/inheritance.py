"""Which tables have children by INHERITS, whose rows are not theirs. Said before it begins."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from cdc_rangefeed_postgres.catalog import Table
from cdc_rangefeed_postgres.connection import Connection

log = logging.getLogger(__name__)

_CHILDREN = """
SELECT h.inhparent::bigint, count(*), min(format('%%s.%%s', n.nspname, c.relname))
FROM pg_inherits h JOIN pg_class c ON c.oid = h.inhrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE h.inhparent = ANY(%s::oid[]) AND NOT c.relispartition AND c.oid <> ALL(%s::oid[])
GROUP BY h.inhparent
"""


def warn_of_children(connection: Connection, tables: Sequence[Table]) -> None:
    """Log a warning for each of *tables* with children that are none of them."""
    by_oid = {table.oid: table for table in tables}
    for oid, count, first in connection.execute(_CHILDREN, [list(by_oid), list(by_oid)]):
        log.warning(
            "%s delivers no rows of tables that inherit from it: %s%s. To deliver their rows, add these tables to"
            " 'tables', by name or by a pattern",
            by_oid[oid].name.full,
            first,
            f" and {count - 1:,} more" if count > 1 else "",
        )
