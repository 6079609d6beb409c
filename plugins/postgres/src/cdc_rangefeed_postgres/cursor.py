"""The option `cursor`: whether a slot has all changes after it, and where in the log that is."""

from __future__ import annotations

from cdc_core import ConfigError, RangefeedContext, Timestamp
from cdc_rangefeed_postgres.connection import Connection, any_bytes
from cdc_rangefeed_postgres.external_slot import first_position
from cdc_rangefeed_postgres.lsn import commit_of, is_lsn, lsn_text, newest, parse_lsn
from cdc_rangefeed_postgres.slot import PLUGIN, Slot
from cdc_rangefeed_postgres.temporary import readable


def check_cursor(context: RangefeedContext, slot: Slot) -> None:
    """Return when the changefeed has no cursor, or one that PostgreSQL may have. Raises: ConfigError."""
    cursor = context.cursor
    if cursor is None:
        return
    if not is_lsn(cursor) and _timestamp(cursor) is None:
        raise ConfigError(f"cursor '{cursor}' is neither a time, such as 2026-01-31T12:00:00Z, nor an LSN")
    given = slot.given or context.options.slot_name is not None
    if not given or not slot.publication.given:
        missing = "slot_name" if not given else "publication_name"
        raise ConfigError(
            f"cursor {cursor} needs a replication slot older than the cursor, and a publication older than the slot,"
            f" because a slot and a publication that the changefeed creates have only later changes. Set {missing}, or"
            " remove cursor. To make later cursors possible, create a publication and run SELECT"
            f" pg_create_logical_replication_slot('NAME', '{PLUGIN}');"
        )


def cursor_position(connection: Connection, slot: Slot, context: RangefeedContext) -> int | None:
    """Return the LSN where a changefeed with a cursor begins to read, None without one: for a first start.

    A position of the log means the transactions whose commit begins there or later. For a time, the engine leaves out
    what is not later. Raises: ConfigError when *slot* is not known to have everything after the cursor.

    The server does not record the time of a slot's position. It is known to be early enough when the slot still has a
    transaction that is not later than the cursor.
    """
    cursor = context.cursor
    if cursor is None:
        return None
    position = first_position(connection, slot, limit_s=context.options.snapshot_wait)
    if (at := _timestamp(cursor)) is None:
        return _within_log(connection, slot, parse_lsn(cursor), begin=position)
    begin, first = lsn_text(position), _first_commit(connection, slot)
    if first is None:
        raise ConfigError(
            f"cursor {cursor} is a time, but replication slot {slot.shown} has no transaction yet, so the time of "
            f'its oldest change is unknown. Set cursor = "{begin}", the position of the slot, to start with all '
            "its changes"
        )
    if first > at:
        raise ConfigError(
            f"cursor {cursor} is earlier than {first} ({first.to_datetime().isoformat()}), the first transaction of "
            f"replication slot {slot.shown}, so changes before it may be missing. Set that time or a later time, or"
            f' cursor = "{begin}", the position of the slot, to start with all its changes'
        )
    return position


def _within_log(connection: Connection, slot: Slot, lsn: int, *, begin: int) -> int:
    end = newest(connection)
    if lsn < begin:
        raise ConfigError(
            f"cursor {lsn_text(lsn)} is before {lsn_text(begin)}, the position of replication slot {slot.shown}, and"
            f' the changes between them are gone. Set cursor = "{lsn_text(begin)}" or a later position'
        )
    if lsn > end:
        raise ConfigError(f"cursor {lsn_text(lsn)} is after the end of the log, {lsn_text(end)}. Set an earlier cursor")
    return lsn


def _first_commit(connection: Connection, slot: Slot) -> Timestamp | None:
    """Return when the first transaction that *slot* has was committed. It is read to its end."""
    with readable(connection, slot) as log, any_bytes(connection):
        query = f"SELECT data FROM {log.peek(None, binary=False, changes=1)} LIMIT 1"
        row = connection.execute(query.encode()).fetchone()
    return None if row is None else commit_of(row[0])[1]


def _timestamp(cursor: str) -> Timestamp | None:
    try:
        return Timestamp.parse(cursor)
    except ValueError:
        return None
