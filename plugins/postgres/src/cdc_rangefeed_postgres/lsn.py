"""LSNs: places in PostgreSQL's log, as integers and as PostgreSQL writes them, and where the log ends now.

The log of a standby ends behind the part that was replayed.
"""

from __future__ import annotations

import re
import struct
from typing import Any

from cdc_core import Timestamp
from cdc_rangefeed_postgres.connection import Connection
from cdc_rangefeed_postgres.datetimes import TIMESTAMP_EPOCH_US

_NOW = """
SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_flush_lsn() END::text,
       (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
       CASE WHEN pg_is_in_recovery() THEN false ELSE pg_current_wal_insert_lsn() > pg_current_wal_flush_lsn() END
"""
_PAGE_BYTES = 8192
"""The server flushes whole pages on its own, so the durable log may end in the middle of a record."""
_COMPLETE = "SELECT pg_current_xact_id()"
"""A transaction without changes. Its commit is made durable within `wal_writer_delay`, and all that is before it."""
_NEWEST = """
SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_insert_lsn() END::text
"""
_LSN = re.compile(r"[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8}")
_BEGIN = struct.Struct(">cqq")
"""The message that begins a transaction: its kind, the position of its commit, and the commit's time."""


def is_lsn(text: str) -> bool:
    """Return whether PostgreSQL would read *text* as an LSN."""
    return _LSN.fullmatch(text) is not None


def parse_lsn(text: str) -> int:
    """Return the LSN that PostgreSQL writes as `16/B374D848`."""
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) | int(low, 16)


def lsn_text(lsn: int) -> str:
    """Return *lsn* as PostgreSQL writes it."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def commit_of(begin: bytes) -> tuple[int, Timestamp]:
    """Return position and time of the commit that *begin*, the first message of a transaction, announces."""
    _, lsn, time_us = _BEGIN.unpack_from(begin)
    return lsn, Timestamp((time_us + TIMESTAMP_EPOCH_US) * 1000)


def flushed_and_clock(connection: Connection) -> tuple[int, Timestamp]:
    """Return where the durable log ends, and the server's clock: no commit before that is later than it.

    Decoding waits for the rest of a record that is durable in part, on a quiet server for up to 15 seconds. Then the
    server is made to complete it.
    """
    row: Any = connection.execute(_NOW).fetchone()
    flushed = parse_lsn(row[0])
    if row[2] and flushed % _PAGE_BYTES == 0:
        connection.execute(_COMPLETE)
    return flushed, Timestamp(row[1] * 1000 + 999)


def newest(connection: Connection) -> int:
    """Return where the log ends, with what is not durable yet."""
    row: Any = connection.execute(_NEWEST).fetchone()
    return parse_lsn(row[0])
