"""The start of an attempt: a slot and a publication the first time, later a check that no history was lost."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

from cdc_core import RangefeedContext, Timestamp, Token
from cdc_rangefeed_postgres.blocks import first_parts, survey
from cdc_rangefeed_postgres.boundaries import scanned_again, with_layouts
from cdc_rangefeed_postgres.catalog import Catalog, Table
from cdc_rangefeed_postgres.catalog_queries import load_tables
from cdc_rangefeed_postgres.connection import Connection, set_lock_timeout
from cdc_rangefeed_postgres.cursor import cursor_position
from cdc_rangefeed_postgres.external_slot import first_position, require_origin, require_slot
from cdc_rangefeed_postgres.filtered import Filtered
from cdc_rangefeed_postgres.filtered_tables import RowFilters
from cdc_rangefeed_postgres.lsn import lsn_text, newest
from cdc_rangefeed_postgres.members import log_renamed
from cdc_rangefeed_postgres.moving import begun
from cdc_rangefeed_postgres.primary import Primary
from cdc_rangefeed_postgres.publication_changes import compared, require_unaltered
from cdc_rangefeed_postgres.selection import Selection, choice
from cdc_rangefeed_postgres.slot import Slot
from cdc_rangefeed_postgres.snapshot import CLOCK_US
from cdc_rangefeed_postgres.temporary import TemporaryObjects
from cdc_rangefeed_postgres.timeline import timeline
from cdc_rangefeed_postgres.token import Part, PostgresToken, Scan, TableState, intent
from cdc_rangefeed_postgres.versions import first_states, present_types
from cdc_rangefeed_postgres.watched_catalog import load_watched

log = logging.getLogger(__name__)


def require_given(connection: Connection, slot: Slot, context: RangefeedContext, tables: Sequence[Table]) -> None:
    """Return when the slot and the publication that existed before serve the changefeed. Raises: ConfigError.

    *tables* are the watched ones.
    """
    if slot.publication.given:
        slot.publication.require(connection, tables)
    if slot.given:
        require_slot(connection, slot, context)
    if slot.origin is not None:
        require_origin(connection, slot)


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The start of one attempt, by *connection*. *load* reads the watched tables again; *save* saves a token."""

    connection: Connection
    slot: Slot
    context: RangefeedContext
    primary: Primary
    load: Callable[[], Catalog]
    save: Callable[[Token], None]

    def first(self, *, drop: Callable[[], None], hold: Callable[[], TemporaryObjects]) -> PostgresToken:
        """Create the publication and the slot that are not given, and return a token where reading begins.

        The intent is saved first. *drop* removes what a crashed attempt had created. *hold* opens what holds a
        temporary slot and its publication.
        """
        connection, slot, context = self.connection, self.slot, self.context
        published = self.load()
        tables = list(published.tables.values())
        require_given(connection, slot, context, tables)
        begin = None if slot.temporary else cursor_position(connection, slot, context)
        set_lock_timeout(connection, context.options.lock_timeout)
        self.save(intent(slot.name))
        clock: Any = connection.execute(CLOCK_US).fetchone()
        drop()
        held = hold() if slot.temporary else None
        filtered: Mapping[str, Filtered] = {}
        if not slot.publication.given:
            with self._publishing() as publisher, publisher.transaction():
                slot.publication.create(publisher, tables)
                filtered = RowFilters(context, slot.publication).apply(publisher, connection, published)
        lsn = self._position(begin, held)
        # Everything below is read after the consistent point, so it includes everything that existed there.
        names, found = {table.name.qualified for table in tables}, self.load()
        # A table that was created meanwhile is not published. It joins later.
        catalog = replace(found, tables={name: table for name, table in found.tables.items() if name in names})
        tables = list(catalog.tables.values())
        states = _filtered(with_layouts(connection, catalog, first_states(connection, catalog)), filtered)
        scan = None
        if context.initial_scan:
            parts = self._parts(tables)
            total = sum(part.blocks for part in parts)
            scan = Scan(parts=parts, total=total) if parts else None
            log.info("initial scan: tables and partitions to read: %d, blocks: %d", len(parts), total)
        return PostgresToken(
            lsn=lsn,
            # What a slot has from before the start keeps its commit times.
            clock=None if slot.given or slot.origin else Timestamp(clock[0] * 1000),
            tables=states,
            catalog=catalog.fingerprint,
            settled=newest(connection),
            types=present_types(connection, catalog).types,
            scan=scan,
            timeline=timeline(connection),
        )

    def resumed(self, saved: PostgresToken) -> PostgresToken:
        """Return the token to continue from, when the slot has all changes after *saved* and nothing else uses it.

        Tables that *saved* does not have are published and scanned; tables that are no longer watched leave it. A token
        is saved before row filters are changed.
        """
        connection, slot = self.connection, self.slot
        slot.require(connection, needed=saved.lsn)
        slot.end_old_connections(connection)
        if slot.given:
            require_slot(connection, slot, self.context)
        if saved.left:
            log.info("moved from %s to %s", lsn_text(saved.left), lsn_text(saved.lsn))
            slot.release(connection, saved.lsn, released=None, last_record=0)
            saved = begun(saved)
        catalog, selection = self.load(), Selection.parse(self.context.tables)
        require_unaltered(slot.publication, catalog, saved)
        saved = self._refiltered(catalog, saved)
        if {name: table.oid for name, table in catalog.tables.items()} != {
            name: state.oid for name, state in saved.tables.items()
        }:
            saved = self._with_tables(selection, saved)
        present = load_watched(connection, slot, saved, selection, diff=False)
        log_renamed(present.tables.values())
        saved = compared(saved, present)
        if saved.scan is None:
            return saved
        log.info("scan: resumed at block %d of %d", saved.scan.done, saved.scan.total)
        return replace(saved, scan=replace(saved.scan, snapshot=None))

    def _publishing(self) -> AbstractContextManager[Connection]:
        """Return the connection on which the publication can be changed: see `Primary.publishing`."""
        options = self.context.options
        set_lock_timeout(self.connection, options.lock_timeout)
        return self.primary.publishing(
            self.connection, lock_timeout_s=options.lock_timeout, wait_s=options.snapshot_wait
        )

    def _position(self, begin: int | None, held: TemporaryObjects | None) -> int:
        """Create the slot if it is not given, and return where reading begins: at *begin*, if that is known."""
        connection, slot, limit_s = self.connection, self.slot, self.context.options.snapshot_wait
        set_lock_timeout(connection, 0.0)  # a wait for transactions is a wait for a lock
        with self.primary.logging_transactions(connection):
            if held is not None:
                lsn = held.create_slot(limit_s=limit_s)
                if slot.origin is not None:
                    begin = cursor_position(connection, slot, self.context)
                    lsn = first_position(connection, slot, limit_s=limit_s) if begin is None else begin
            elif begin is not None:
                lsn = begin
            elif slot.given:
                lsn = first_position(connection, slot, limit_s=limit_s)
            else:
                lsn = slot.create(connection, limit_s=limit_s)
        set_lock_timeout(connection, self.context.options.lock_timeout)
        return lsn

    def _parts(self, tables: Sequence[Table]) -> tuple[Part, ...]:
        """Return what a scan of *tables* has to read."""
        return first_parts(tables, survey(self.connection, [leaf.oid for table in tables for leaf in table.leaves]))

    def _with_tables(self, selection: Selection, saved: PostgresToken) -> PostgresToken:
        """Return *saved* with the tables that are watched now. Repeatable: a crash may come before it is saved.

        A table that matches a pattern may hold rows that were written before it was published: it is scanned, unless
        something else was chosen for the pattern.
        """
        connection, publication = self.connection, self.slot.publication
        catalog = self.load()
        kept = _kept(saved, catalog)
        removed = {name: state for name, state in saved.tables.items() if name not in kept}
        added = [table for name, table in catalog.tables.items() if name not in kept]
        oids = {state.oid for state in removed.values()} - catalog.by_oid.keys()
        gone = load_tables(connection, publication=publication.name, oids=oids)
        set_lock_timeout(connection, self.context.options.lock_timeout)
        filtered: Mapping[str, Filtered] = {}
        if not publication.given:
            with self._publishing() as publisher, publisher.transaction():
                publication.change(publisher, add=added, drop=())
                new = replace(catalog, tables={table.name.qualified: table for table in added})
                filtered = RowFilters(self.context, publication).apply(publisher, connection, new)
        # Read again: everything that existed when the tables were published is in it.
        present = self.load().tables
        added = [present[table.name.qualified] for table in added if table.name.qualified in present]
        names = sorted(table.name.qualified for table in added)
        new = Catalog({name: present[name] for name in names}, "")
        layouts = with_layouts(connection, new, first_states(connection, new))
        types = {**present_types(connection, new).types, **saved.types}
        states = kept | _filtered(layouts, filtered)
        parts = self._parts([table for table in added if _is_scanned(table.name.qualified, self.context, selection)])
        scan = saved.scan or (Scan(parts=()) if parts else None)
        if scan is not None:
            left = {part.oid for part in scan.parts if part.table in removed}
            scan = scan.with_parts(parts, instead_of=left | {part.oid for part in parts})
        log.info("tables added: %s; removed: %s", ", ".join(names) or "none", ", ".join(sorted(removed)) or "none")
        token = replace(saved, tables=states, settled=newest(connection), types=types, scan=scan)
        if gone.tables and not publication.given:
            with self._publishing() as publisher, publisher.transaction():
                publication.change(publisher, add=(), drop=list(gone.tables.values()))
                # If this attempt fails, and these tables are watched again, they join like others.
                self.save(token.following(saved).to_json())
        return token

    def _refiltered(self, catalog: Catalog, saved: PostgresToken) -> PostgresToken:
        """Return *saved* with the row filters that the options ask for, and a scan of tables that need one for that."""
        filters, state = RowFilters(self.context, self.slot.publication), self.slot.state(self.connection)
        restart = 0 if state is None else state.restart
        saved, again = filters.resumed(self.connection, catalog, saved, self.save, self._publishing, restart=restart)
        tables = [catalog.tables[name] for name in sorted(again)]
        return saved.scanning(again, scanned_again(self.connection, tables, saved.scan))


def _filtered(states: Mapping[str, TableState], filtered: Mapping[str, Filtered]) -> dict[str, TableState]:
    return {name: replace(state, filtered=filtered.get(name)) for name, state in states.items()}


def _is_scanned(name: str, context: RangefeedContext, selection: Selection) -> bool:
    chosen = choice(context.initial_scans, name)
    return (context.initial_scan or not selection.lists(name)) if chosen is None else chosen


def _kept(saved: PostgresToken, catalog: Catalog) -> dict[str, TableState]:
    """Return the tables of *saved* that *catalog* still has under the same name."""
    oids = {name: table.oid for name, table in catalog.tables.items()}
    return {name: state for name, state in saved.tables.items() if oids.get(name) == state.oid}
