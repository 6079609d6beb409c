"""The start of an attempt: a slot and a publication the first time, later a check that no history was lost."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from cdc_core import START_OVER, ConfigError, RangefeedContext, Timestamp, Token
from cdc_rangefeed_postgres.blocks import first_parts, survey
from cdc_rangefeed_postgres.boundaries import with_layouts
from cdc_rangefeed_postgres.catalog import Catalog, Table
from cdc_rangefeed_postgres.connection import Connection, set_lock_timeout
from cdc_rangefeed_postgres.lsn import parse_lsn
from cdc_rangefeed_postgres.slot import Slot
from cdc_rangefeed_postgres.snapshot import CLOCK_US
from cdc_rangefeed_postgres.token import PostgresToken, Scan, intent
from cdc_rangefeed_postgres.versions import first_states
from cdc_rangefeed_postgres.watched_tables import load_watched

__all__ = ["first_token", "resumed_token"]

log = logging.getLogger(__name__)


def first_token(
    connection: Connection,
    slot: Slot,
    context: RangefeedContext,
    load: Callable[[], tuple[Catalog, list[Table]]],
    save: Callable[[Token], None],
) -> PostgresToken:
    """Create the publication and the slot, and return a token at the slot's consistent point.

    The intent is saved first. After a crash this function finds and removes what the crashed attempt had created.
    """
    _, tables = load()
    set_lock_timeout(connection, context.options.lock_timeout)
    save(intent(slot.name))
    clock: Any = connection.execute(CLOCK_US).fetchone()
    slot.drop(connection)
    slot.create_publication(connection, tables)
    set_lock_timeout(connection, 0.0)  # a wait for transactions is a wait for a lock
    lsn = slot.create(connection, limit_s=context.options.snapshot_wait)
    set_lock_timeout(connection, context.options.lock_timeout)
    # Everything below is read after the consistent point, so it includes everything that existed there.
    catalog, tables = load()
    states = with_layouts(connection, catalog, first_states(connection, catalog))
    scan = None
    if context.initial_scan:
        parts = first_parts(tables, survey(connection, [leaf.oid for table in tables for leaf in table.leaves]))
        total = sum(part.blocks for part in parts)
        scan = Scan(parts=parts, total=total) if parts else None
        log.info("initial scan: tables and partitions to read: %d, blocks: %d", len(parts), total)
    row: Any = connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
    return PostgresToken(
        lsn=lsn,
        clock=Timestamp(clock[0] * 1000),
        tables=states,
        catalog=catalog.fingerprint,
        settled=parse_lsn(row[0]),
        scan=scan,
    )


def resumed_token(connection: Connection, slot: Slot, saved: PostgresToken, names: set[str]) -> PostgresToken:
    """Return the token to continue from, when the slot has all changes after *saved* and nobody else uses it."""
    if names != set(saved.tables):
        raise ConfigError(
            f"the changefeed started with the tables {', '.join(sorted(saved.tables))} but now lists "
            f"{', '.join(sorted(names))}. List the same tables. {START_OVER}"
        )
    slot.require(connection, needed=saved.lsn)
    slot.end_old_connections(connection)
    load_watched(connection, slot, saved, diff=False)
    if saved.scan is None:
        return saved
    log.info("initial scan: resumed at block %d of %d", saved.scan.done, saved.scan.total)
    return replace(saved, scan=replace(saved.scan, snapshot=None))
