"""The slots and publications that changefeeds have created in a database."""

from __future__ import annotations

from cdc_core import ConfigError, RangefeedContext, SourceObjects
from cdc_rangefeed_postgres.connection import Connection
from cdc_rangefeed_postgres.names import object_name, object_pattern
from cdc_rangefeed_postgres.slot import Slot

SLOT = "replication slot"
"""What `created_in` calls one."""

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
_NAMESAKES = """
SELECT o.name, bool_or(o.slot) FROM (
    SELECT slot_name::text AS name, true AS slot FROM pg_replication_slots
    WHERE database = current_database() AND NOT temporary
    UNION ALL SELECT pubname::text, false FROM pg_publication) o
LEFT JOIN pg_publication p ON p.pubname = o.name
WHERE o.name ~ %s AND o.name <> ALL(%s::text[]) AND coalesce(obj_description(p.oid, 'pg_publication'), %s) = %s
GROUP BY o.name ORDER BY o.name
"""


def created_in(connection: Connection) -> list[SourceObjects]:
    """Return what changefeeds have created in the connection's database, by name.

    A slot is active only while it is read, so a changefeed counts as active when it has any other connection. The
    changefeed's name comes from the publication's comment (see `Publication.create`), otherwise from the object.
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


def require_no_namesake(connection: Connection, context: RangefeedContext, slot: Slot) -> None:
    """Return when the database has nothing of another changefeed with the same name. A temporary one leaves nothing.

    That changefeed may be this one with its progress lost. Then a new start would deliver every row again, and the
    old slot would retain the log forever. Raises: ConfigError.
    """
    if context.temporary:
        return
    name, comment = context.changefeed, f"changefeed {context.changefeed}"
    ours = [slot.name, slot.own, slot.publication.name]
    found = connection.execute(_NAMESAKES, [object_pattern(name), ours, comment, comment]).fetchone()
    if found is not None:
        what = f"replication slot {found[0]} retains the log" if found[1] else f"publication {found[0]} remains"
        raise ConfigError(
            f"{what} for an earlier changefeed '{name}' that the progress store does not know. To continue it, restore"
            " its store, or name its store with --state or --store. To start over, remove what it owns with `cdc drop"
            f" --orphans URI --only {found[0]}`, or use another name for the changefeed"
        )
