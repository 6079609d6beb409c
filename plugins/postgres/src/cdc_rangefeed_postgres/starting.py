"""How a run starts: a slot and a publication the first time, and a check that nothing was lost later."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from cdc_core import ConfigError, RangefeedContext, Timestamp, Token
from cdc_rangefeed_postgres.catalog import Catalog, Table
from cdc_rangefeed_postgres.connection import Connection, set_lock_timeout
from cdc_rangefeed_postgres.planner import load_watched
from cdc_rangefeed_postgres.position import CREATING, Position, Scan, parse_lsn
from cdc_rangefeed_postgres.scan import first_parts, survey
from cdc_rangefeed_postgres.slot import Slot
from cdc_rangefeed_postgres.snapshot import CLOCK_US
from cdc_rangefeed_postgres.versions import first_states

__all__ = ["first_position", "resumed_position"]

log = logging.getLogger(__name__)


def first_position(
    connection: Connection,
    slot: Slot,
    context: RangefeedContext,
    load: Callable[[], tuple[Catalog, list[Table]]],
    save: Callable[[Token], None],
) -> Position:
    """Create the publication and the slot, and return the slot's consistent point.

    The intent is saved first, so that what a crash leaves behind is found and removed here the next time.
    """
    _, tables = load()
    set_lock_timeout(connection, context.options.lock_timeout)
    save({"state": CREATING, "slot": slot.name})
    clock: Any = connection.execute(CLOCK_US).fetchone()
    slot.drop(connection)
    slot.create_publication(connection, tables)
    set_lock_timeout(connection, 0.0)  # waiting for transactions counts as waiting for a lock
    lsn = slot.create(connection, limit_s=context.options.snapshot_wait)
    set_lock_timeout(connection, context.options.lock_timeout)
    # Everything below is read after the consistent point: what was there by then is seen.
    catalog, tables = load()
    states = first_states(connection, catalog)
    scan = None
    if context.initial_scan:
        parts = first_parts(tables, survey(connection, [leaf.oid for table in tables for leaf in table.leaves]))
        total = sum(part.blocks for part in parts)
        scan = Scan(parts=parts, total=total) if parts else None
        log.info("initial scan: %d blocks of %d tables and partitions to read", total, len(parts))
    row: Any = connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
    return Position(
        lsn=lsn,
        clock=Timestamp(clock[0] * 1000),
        tables=states,
        catalog=catalog.fingerprint,
        settled=parse_lsn(row[0]),
        scan=scan,
    )


def resumed_position(connection: Connection, slot: Slot, saved: Position, names: set[str]) -> Position:
    """Return the position to go on from, when the slot has all that follows *saved* and nobody else uses it."""
    if names != set(saved.tables):
        raise ConfigError(
            f"the changefeed began with the tables {', '.join(sorted(saved.tables))}, and now "
            f"{', '.join(sorted(names))} are listed: list the same tables, or start a changefeed under another name"
        )
    slot.require(connection, needed=saved.lsn)
    slot.end_leftovers(connection)
    load_watched(connection, slot, saved, diff=False)
    if saved.scan is None:
        return saved
    log.info("initial scan: resuming at block %d of %d", saved.scan.done, saved.scan.total)
    return replace(saved, scan=replace(saved.scan, snapshot=None))
