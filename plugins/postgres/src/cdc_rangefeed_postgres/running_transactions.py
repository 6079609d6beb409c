"""Records of running transactions in the log, which let the restart points of slots move."""

from __future__ import annotations

from cdc_rangefeed_postgres.connection import Connection

__all__ = ["log_running_transactions"]

# Whether the role may call the function is a statement of its own: the server refuses one that contains a call without
# the privilege, also where no branch reaches it.
_MAY_LOG = """
SELECT has_function_privilege('pg_log_standby_snapshot()', 'EXECUTE') AND NOT pg_is_in_recovery()
"""
_SINCE = 160000


def log_running_transactions(connection: Connection) -> bool:
    """Let the server write such a record now, if it can and the role may; return whether it did.

    Otherwise the server does so by itself: at checkpoints, and every 15 seconds while there are writes.
    """
    if connection.info.server_version < _SINCE:
        return False
    row = connection.execute(_MAY_LOG).fetchone()
    if row is None or not row[0]:
        return False
    connection.execute("SELECT pg_log_standby_snapshot()")
    return True
