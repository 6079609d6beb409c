"""Records of running transactions in the log, which let the restart points of slots move."""

from __future__ import annotations

from cdc_rangefeed_postgres.connection import Connection

# Whether the role may call the function is a statement of its own: the server refuses one that contains a call without
# the privilege, also where no branch reaches it.
_MAY_LOG = """
SELECT CASE WHEN NOT pg_is_in_recovery() THEN has_function_privilege('pg_log_standby_snapshot()', 'EXECUTE') END
"""
_SINCE = 160000


def log_running_transactions(connection: Connection) -> bool:
    """Let the server write such a record now, if it can and the role may; return whether it did.

    Otherwise the server does so by itself: at checkpoints, and every 15 seconds while there are writes.
    """
    may = may_log_running_transactions(connection)
    if may:
        connection.execute("SELECT pg_log_standby_snapshot()")
    return bool(may)


def may_log_running_transactions(connection: Connection) -> bool | None:
    """Return whether the role may let the server write such a record; None when this server cannot."""
    if connection.info.server_version < _SINCE:
        return None
    row = connection.execute(_MAY_LOG).fetchone()
    return None if row is None else row[0]
