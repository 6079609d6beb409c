"""The slots and publications that changefeeds have created in a database."""

from __future__ import annotations

from cdc_core import SourceObjects
from cdc_rangefeed_postgres.connection import Connection
from cdc_rangefeed_postgres.names import object_name

__all__ = ["created_in"]

_CREATED = """
SELECT o.name, array_agg(o.kind ORDER BY o.kind DESC), max(o.retained), max(o.changefeed),
       bool_or(o.active) OR EXISTS (SELECT FROM pg_stat_activity
           WHERE application_name LIKE 'cdc/%/' || right(o.name, 12) || '/%' AND pid <> pg_backend_pid())
FROM (
    SELECT s.slot_name::text AS name, 'replication slot' AS kind, s.active, NULL AS changefeed,
           pg_wal_lsn_diff(CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn()
                           ELSE pg_current_wal_flush_lsn() END, s.restart_lsn)::bigint AS retained
    FROM pg_replication_slots s
    WHERE s.database = current_database() AND s.plugin = 'pgoutput' AND NOT s.temporary
    UNION ALL
    SELECT p.pubname::text, 'publication', false,
           substring(obj_description(p.oid, 'pg_publication') FROM '^changefeed (.*)$'), NULL
    FROM pg_publication p) o
WHERE o.name ~ '^cdc_[a-z0-9_]*_[0-9a-f]{12}$'
GROUP BY o.name ORDER BY o.name
"""


def created_in(connection: Connection) -> list[SourceObjects]:
    """Return what changefeeds have created in the connection's database, by name.

    A slot is active only while it is read, so a changefeed counts as active when it has any other connection. The
    changefeed's name comes from the publication's comment (see `Slot.create_publication`), otherwise from the object.
    Without that comment, which older versions did not write, it is not sure that a changefeed created it.
    """
    found = []
    for name, kinds, retained, commented, active in connection.execute(_CREATED).fetchall():
        feed_id = name[-12:]
        known = commented is not None and object_name(commented, feed_id) == name
        found.append(
            SourceObjects(
                name=name,
                changefeed=commented if known else name[len("cdc_") : -len(f"_{feed_id}")],
                feed_id=feed_id,
                kinds=tuple(kinds),
                retained_bytes=retained,
                sure=known,
                active=active,
            )
        )
    return found
