"""A source that is a standby: what it needs for logical decoding, and what only the primary can do."""

from __future__ import annotations

from cdc_core import ConfigError
from cdc_rangefeed_postgres.connection import Connection

_OLDEST = 160000


def is_standby(connection: Connection) -> bool:
    """Return whether the server is a standby at this moment: it may be promoted."""
    row = connection.execute("SELECT pg_is_in_recovery()").fetchone()
    return row is not None and bool(row[0])


def check_standby(connection: Connection, *, failover: bool) -> None:
    """Raise ConfigError when a changefeed cannot read this standby."""
    version = connection.info.server_version
    if version < _OLDEST:
        raise ConfigError(
            f"the server is a standby of PostgreSQL {version // 10000}, but logical decoding on a standby needs 16 or "
            "newer. Connect to the primary"
        )
    if failover:
        raise ConfigError(
            "the server is a standby, but only the primary's slots are synchronized to standbys. Remove option "
            "'failover', or connect to the primary"
        )
    row = connection.execute("SELECT current_setting('hot_standby_feedback')::bool").fetchone()
    if row is not None and not row[0]:
        raise ConfigError(
            "the standby has hot_standby_feedback off, so the primary would remove catalog rows that a replication slot"
            " on the standby needs, and the slot would be lost. Run ALTER SYSTEM SET hot_standby_feedback = on; and"
            " SELECT pg_reload_conf(); on the standby"
        )
