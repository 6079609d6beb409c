"""Tables and partitions that were unlogged for a while: the log lacks what was changed meanwhile.

PostgreSQL refuses SET UNLOGGED for a table that a publication lists, but not for a partition, or where all tables or
those of a schema are published. After SET LOGGED the catalog shows a new file, as after VACUUM FULL and CLUSTER. But
these keep the transactions that wrote the rows, and ALTER TABLE inserts every row again. So does TRUNCATE together with
INSERT, of which the log tells, and SET ACCESS METHOD, which is not told from it where the rows are in a heap again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

import psycopg
from psycopg import sql

from cdc_core import TerminalRangefeedError
from cdc_rangefeed_postgres.catalog import Leaf
from cdc_rangefeed_postgres.connection import Connection
from cdc_rangefeed_postgres.remedies import READ_ANEW

log = logging.getLogger(__name__)

# The first blocks are enough, as the rows were written in their order. A new file of the table is one of its indexes
# too, and the oldest of their rows in pg_class is that of the transaction that made the files.
_INSERTED_ANEW = """
SELECT EXISTS (SELECT FROM ONLY {} AS t WHERE t.ctid < '(1000,0)' AND t.xmin = (
    SELECT c.xmin FROM pg_class c
    WHERE c.oid = %(oid)s::oid OR c.oid IN (SELECT i.indexrelid FROM pg_index i WHERE i.indrelid = %(oid)s::oid)
    ORDER BY age(c.xmin) DESC LIMIT 1))
FROM pg_class c JOIN pg_am a ON a.oid = c.relam WHERE c.oid = %(oid)s::oid AND a.amname = 'heap'
"""


def require_always_logged(
    connection: Connection,
    written_anew: Iterable[tuple[Leaf, int]],
    search: Callable[[Sequence[tuple[Leaf, int]]], Sequence[Leaf]],
) -> None:
    """Return when none of the leaves *written_anew*, which have these new files, was unlogged meanwhile.

    Waits for a lock on one of them. *search* returns which of them were truncated. Raises: TerminalRangefeedError.
    """
    inserted = [(leaf, file) for leaf, file in written_anew if _is_inserted_anew(connection, leaf)]
    truncated = search(inserted) if inserted else ()
    for leaf, _ in inserted:
        if leaf not in truncated:
            raise TerminalRangefeedError(
                f"table {leaf.qualified}: ALTER TABLE rewrote it, as SET UNLOGGED and SET LOGGED do, so "
                f"changes may not be in the log. {READ_ANEW}"
            )


def _is_inserted_anew(connection: Connection, leaf: Leaf) -> bool:
    name = sql.Identifier(leaf.schema, leaf.name)
    try:
        row = connection.execute(sql.SQL(_INSERTED_ANEW).format(name), {"oid": leaf.oid}).fetchone()
    except psycopg.errors.InsufficientPrivilege:
        log.warning(
            "table %s has a new file, and this role may not read the table to check whether it was unlogged in the"
            " meantime",
            leaf.qualified,
        )
        return False
    return row is not None and bool(row[0])
