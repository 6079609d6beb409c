"""The start of an attempt: a slot and a publication the first time, later a check that no history was lost."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from cdc_core import RangefeedContext, Timestamp, Token
from cdc_rangefeed_postgres.blocks import first_parts, survey
from cdc_rangefeed_postgres.boundaries import with_layouts
from cdc_rangefeed_postgres.catalog import Catalog, Table, load_tables
from cdc_rangefeed_postgres.connection import Connection, set_lock_timeout
from cdc_rangefeed_postgres.given_slot import first_position, require_slot
from cdc_rangefeed_postgres.lsn import parse_lsn
from cdc_rangefeed_postgres.slot import Slot
from cdc_rangefeed_postgres.snapshot import CLOCK_US
from cdc_rangefeed_postgres.token import Part, PostgresToken, Scan, intent
from cdc_rangefeed_postgres.versions import first_states
from cdc_rangefeed_postgres.watched_tables import load_watched

__all__ = ["first_token", "require_given", "resumed_token"]

log = logging.getLogger(__name__)

_NEWEST = """
SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_insert_lsn() END::text
"""


def require_given(connection: Connection, slot: Slot, context: RangefeedContext, tables: Sequence[Table]) -> None:
    """Return when the slot and the publication that were made beforehand serve the changefeed. Raises: ConfigError.

    *tables* are the watched ones.
    """
    if slot.publication.given:
        slot.publication.require(connection, tables)
    if slot.given:
        require_slot(connection, slot, context)


def first_token(
    connection: Connection,
    slot: Slot,
    context: RangefeedContext,
    load: Callable[[], tuple[Catalog, list[Table]]],
    save: Callable[[Token], None],
) -> PostgresToken:
    """Create the publication and the slot that are not given, and return a token at the position where reading begins.

    The intent is saved first. After a crash this function finds and removes what the crashed attempt had created.
    """
    _, tables = load()
    require_given(connection, slot, context, tables)
    set_lock_timeout(connection, context.options.lock_timeout)
    save(intent(slot.name))
    clock: Any = connection.execute(CLOCK_US).fetchone()
    slot.drop(connection)
    if not slot.publication.given:
        slot.publication.create(connection, tables)
    set_lock_timeout(connection, 0.0)  # a wait for transactions is a wait for a lock
    limit_s = context.options.snapshot_wait
    lsn = first_position(connection, slot, limit_s=limit_s) if slot.given else slot.create(connection, limit_s=limit_s)
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
    row: Any = connection.execute(_NEWEST).fetchone()
    return PostgresToken(
        lsn=lsn,
        # What a slot has from before the start keeps its commit times.
        clock=None if slot.given else Timestamp(clock[0] * 1000),
        tables=states,
        catalog=catalog.fingerprint,
        settled=parse_lsn(row[0]),
        scan=scan,
    )


def resumed_token(
    connection: Connection,
    slot: Slot,
    context: RangefeedContext,
    saved: PostgresToken,
    load: Callable[[], tuple[Catalog, list[Table]]],
) -> PostgresToken:
    """Return the token to continue from, when the slot has all changes after *saved* and nothing else uses it.

    Tables that *saved* does not have are published and scanned; tables that are no longer watched leave it.
    """
    slot.require(connection, needed=saved.lsn)
    slot.end_old_connections(connection)
    if slot.given:
        require_slot(connection, slot, context)
    catalog, _ = load()
    if catalog.tables.keys() != saved.tables.keys():
        saved = _with_tables(connection, slot, context, saved, load)
    load_watched(connection, slot, saved, diff=False)
    if saved.scan is None:
        return saved
    log.info("scan: resumed at block %d of %d", saved.scan.done, saved.scan.total)
    return replace(saved, scan=replace(saved.scan, snapshot=None))


def _with_tables(
    connection: Connection,
    slot: Slot,
    context: RangefeedContext,
    saved: PostgresToken,
    load: Callable[[], tuple[Catalog, list[Table]]],
) -> PostgresToken:
    """Return *saved* with the tables that are watched now. Repeatable: a crash may come before it is saved."""
    catalog, tables = load()
    added = [table for table in tables if table.name.qualified not in saved.tables]
    removed = {name: state for name, state in saved.tables.items() if name not in catalog.tables}
    oids = {state.oid for state in removed.values()} - {table.oid for table in tables}
    gone = load_tables(connection, publication=slot.publication.name, oids=oids)
    set_lock_timeout(connection, context.options.lock_timeout)
    slot.publication.change(connection, add=added, drop=list(gone.tables.values()))
    # Read again: everything that existed when the tables were published is in it.
    catalog, tables = load()
    added = [table for table in tables if table.name.qualified not in saved.tables]
    names = {table.name.qualified for table in added}
    states = {name: state for name, state in saved.tables.items() if name not in removed}
    first = first_states(connection, Catalog({name: catalog.tables[name] for name in sorted(names)}, ""))
    states |= with_layouts(connection, catalog, first)
    parts: tuple[Part, ...] = ()
    if context.initial_scan:
        parts = first_parts(added, survey(connection, [leaf.oid for table in added for leaf in table.leaves]))
    scan = saved.scan or (Scan(parts=()) if parts else None)
    if scan is not None:
        left = {part.oid for part in scan.parts if part.table in removed}
        scan = scan.with_parts(parts, instead_of=left | {part.oid for part in parts})
    log.info("tables added: %s; removed: %s", ", ".join(sorted(names)) or "none", ", ".join(sorted(removed)) or "none")
    row: Any = connection.execute(_NEWEST).fetchone()
    return replace(saved, tables=states, settled=parse_lsn(row[0]), scan=scan)
