"""A replication slot that existed before: whether a changefeed can use it, and where it begins to read."""

from __future__ import annotations

import secrets
from dataclasses import replace

import psycopg

from cdc_core import ConfigError, RangefeedContext
from cdc_rangefeed_postgres.connection import Connection
from cdc_rangefeed_postgres.lsn import lsn_text
from cdc_rangefeed_postgres.names import feed_applications
from cdc_rangefeed_postgres.slot import PLUGIN, Slot, SlotState
from cdc_rangefeed_postgres.temporary import readable

_USERS = """
SELECT a.pid, a.application_name FROM pg_replication_slots s JOIN pg_stat_activity a ON a.pid = s.active_pid
WHERE s.slot_name = %s AND a.application_name NOT LIKE %s AND a.pid <> pg_backend_pid()
"""
_PUBLICATION_MISSING = "55000"
"""SQLSTATE of the warning that PostgreSQL 18 sends instead of an error."""


def require_origin(connection: Connection, slot: Slot) -> None:
    """Return when the temporary *slot* can be a copy of the one that existed before. Raises: ConfigError."""
    assert slot.origin is not None
    _require_readable(connection, replace(slot, name=slot.origin, given=True))


def require_slot(connection: Connection, slot: Slot, context: RangefeedContext) -> None:
    """Return when the changefeed can read *slot*, which existed before. Raises: ConfigError."""
    what = f"replication slot {slot.name}"
    state = _require_readable(connection, slot)
    user = connection.execute(_USERS, [slot.name, feed_applications(slot.feed_id)]).fetchone()
    if user is not None:
        raise ConfigError(
            f"{what} is in use by server process {user[0]} (application {user[1]!r}). Stop that program, or set"
            f" slot_name to another slot",
            repairable=True,
        )
    slot.require_failover(state)
    if slot.name != slot.own and replace(slot, name=slot.own).state(connection) is not None:
        raise ConfigError(
            f"replication slot {slot.own}, which this changefeed created, would retain the log forever, because "
            f"{what} replaces it. Remove slot_name, or run SELECT pg_drop_replication_slot('{slot.own}');"
        )
    if not slot.publication.given and not context.initial_scan:
        raise ConfigError(
            f"{what} has changes older than the publication that the changefeed would create, so the changefeed could"
            " not read them. Set publication_name to a publication that is older than the slot"
        )


def _require_readable(connection: Connection, slot: Slot) -> SlotState:
    what = f"replication slot {slot.name}"
    row = connection.execute("SELECT current_database()::text").fetchone()
    assert row is not None
    database = row[0]
    create = f"SELECT pg_create_logical_replication_slot('{slot.name}', '{PLUGIN}');"
    again = f"SELECT pg_drop_replication_slot('{slot.name}'); and {create}"
    state = slot.state(connection)
    if state is None:
        raise ConfigError(f"{what} does not exist. Run {create} in database {database}")
    if not state.plugin:
        raise ConfigError(f"{what} is physical, but changefeeds need a logical slot. Set slot_name to another slot")
    if state.plugin != PLUGIN:
        raise ConfigError(
            f"{what} uses the plugin {state.plugin}, but changefeeds need {PLUGIN}. Set slot_name to another slot"
        )
    if state.database != database:
        raise ConfigError(
            f"{what} belongs to database {state.database}, but the source is database {database}. Set slot_name to"
            f" another slot"
        )
    if state.two_phase:
        raise ConfigError(f"{what} has two_phase, so it sends transactions that are not committed yet. Run {again}")
    if state.invalid is not None:
        raise ConfigError(f"{what} was invalidated ({state.invalid}), so its log is lost. Run {again}")
    return state


def first_position(connection: Connection, slot: Slot, *, limit_s: float) -> int:
    """Return the LSN from which *slot* has all changes: for a first start, after `require_slot`.

    That is the slot's confirmed position. When the changefeed created the publication just now, it is the first
    position from which its changes can be read, and the slot is moved there. The initial scan has what was before.

    Raises: ConfigError when the publication is newer than the slot. RetryableRangefeedError when open write
    transactions take longer than *limit_s*.
    """
    if slot.publication.given:
        _require_older_publication(connection, slot)
        state = slot.state(connection)
        assert state is not None
        return state.confirmed
    # A new slot waits for every transaction that the publication's creation may have overlapped.
    helper = replace(slot, name=f"{slot.own[:54]}_{secrets.token_hex(4)}", given=False)
    lsn = helper.create(connection, limit_s=limit_s, temporary=True)
    connection.execute("SELECT pg_drop_replication_slot(%s)", [helper.name])
    connection.execute("SELECT pg_replication_slot_advance(%s, %s::pg_lsn)", [slot.name, lsn_text(lsn)])
    return lsn


def _require_older_publication(connection: Connection, slot: Slot) -> None:
    """Return when the publication existed at the first change that the slot has. Raises: ConfigError.

    The log is decoded with the catalog of its time. Where the publication does not exist yet, PostgreSQL fails, or
    since version 18 skips the changes with a warning. This reads to the end of the first transaction that is published.
    """
    warnings: list[str | None] = []

    def note(diagnostic: psycopg.errors.Diagnostic) -> None:
        warnings.append(diagnostic.sqlstate)

    connection.add_notice_handler(note)
    try:
        with readable(connection, slot) as log:
            connection.execute(f"SELECT count(*) FROM {log.peek(None, binary=False, changes=1)}")
        missing = _PUBLICATION_MISSING in warnings
    except psycopg.errors.UndefinedObject:
        missing = True
    finally:
        connection.remove_notice_handler(note)
    if missing:
        raise ConfigError(
            f"replication slot {slot.shown} has changes older than publication {slot.publication.name}, so these"
            f" changes cannot be read. Run SELECT pg_drop_replication_slot('{slot.shown}'); and SELECT"
            f" pg_create_logical_replication_slot('{slot.shown}', '{PLUGIN}');"
        )
