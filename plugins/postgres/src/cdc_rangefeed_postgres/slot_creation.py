"""The creation of a slot or a snapshot waits for every open transaction that writes: for how long, and for which."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from cdc_rangefeed_postgres.connection import Connection
from cdc_rangefeed_postgres.standby import is_standby


@contextmanager
def canceled_after(connection: Connection, limit_s: float) -> Iterator[None]:
    """Cancel the statement on *connection* when this block takes longer than *limit_s*.

    The server's statement_timeout has no effect on the creation of a slot.
    """
    timer = threading.Timer(limit_s, connection.cancel_safe, kwargs={"timeout": 5.0})
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


def why_waiting(connection: Connection) -> tuple[str, str]:
    """Return why the creation of a slot or a snapshot takes long, and the remedy."""
    if is_standby(connection):
        reason = "the primary has not logged its running transactions, or has open write transactions"
        return reason, "Run SELECT pg_log_standby_snapshot(); on the primary, or wait"
    return f"write transactions are still open ({_oldest_writer(connection)})", "End them, or wait"


def _oldest_writer(connection: Connection) -> str:
    """Describe the oldest open transaction that has written, for messages."""
    row = connection.execute(
        "SELECT pid, extract(epoch FROM clock_timestamp() - xact_start)::int, application_name FROM pg_stat_activity "
        "WHERE backend_xid IS NOT NULL AND pid <> pg_backend_pid() ORDER BY age(backend_xid) DESC LIMIT 1"
    ).fetchone()
    if row is not None:
        age = "" if row[1] is None else f"{row[1]} s old, "  # only members of its role see that
        return f"oldest: process {row[0]}, {age}application {row[2]!r}"
    row = connection.execute("SELECT gid FROM pg_prepared_xacts ORDER BY prepared LIMIT 1").fetchone()
    return "none that this role can see" if row is None else f"oldest: prepared transaction {row[0]!r}"
