"""Rounds of the initial scan: which snapshot the planner holds, and when the next one replaces it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

import psycopg

from cdc_core import Timestamp
from cdc_rangefeed_postgres.blocks import Density, filenodes, survey
from cdc_rangefeed_postgres.catalog import Catalog
from cdc_rangefeed_postgres.connection import Connection, Server
from cdc_rangefeed_postgres.options import PostgresOptions
from cdc_rangefeed_postgres.slot import Slot
from cdc_rangefeed_postgres.snapshot import ExportedSnapshot, SnapshotMaker
from cdc_rangefeed_postgres.token import Part, Scan, Snapshot

log = logging.getLogger(__name__)

Found = Mapping[int, tuple[int, int, Density]]


class ScanRounds:
    """Holds at most one snapshot, and takes at most one at a time.

    The tables are looked up *before* a snapshot is requested. A table that is rewritten or altered after that differs
    from what was found, and the round is not used.
    """

    def __init__(self, server: Server, slot: Slot, options: PostgresOptions) -> None:
        self._round_s: float = options.scan_round
        self._maker = SnapshotMaker(server, f"{slot.name[:46]}_r", limit_s=options.snapshot_wait)
        self._held: ExportedSnapshot | None = None
        self._used = False
        self._found: tuple[str, Found] = ("", {})
        """The catalog's fingerprint and the tables, as found before the held snapshot was requested."""
        self._requested: tuple[str, Found] = ("", {})
        """The same for the snapshot that is being taken."""
        self._looked_up: set[int] = set()
        """The tables and partitions that were looked up for it."""

    @property
    def held(self) -> bool:
        """Whether a snapshot is held and still exists on the server."""
        return self._held is not None and self._held.alive

    @property
    def densities(self) -> dict[int, Density]:
        """How much blocks hold on average, by table or partition."""
        return {oid: density for oid, (_, _, density) in self._found[1].items()}

    def holds(self, snapshot: Snapshot) -> bool:
        """Whether *snapshot* is the held one and still exists on the server."""
        return self._held is not None and self._held.id == snapshot.id and self._held.alive

    def over(self) -> bool:
        """Whether the held snapshot was used for the length of a round. A snapshot that was never used is not over.

        Otherwise the scan would never continue when following the log takes longer than a round.
        """
        return self._held is None or (self._used and time.monotonic() - self._held.since >= self._round_s)

    def use(self) -> None:
        """Note that a step of the scan is read under the held snapshot."""
        self._used = True

    def can_read(self, connection: Connection, scan: Scan, catalog: Catalog) -> bool:
        """Whether the rest of *scan* can be read under the held snapshot: no table was altered or rewritten."""
        if catalog.fingerprint != self._found[0]:
            return False
        present = filenodes(connection, [part.oid for part in scan.parts])
        return all(present.get(part.oid) == part.filenode for part in scan.parts)

    def next(
        self,
        connection: Connection,
        scan: Scan,
        refresh: Callable[[], Catalog],
        *,
        wait_s: float,
        not_before: int,
    ) -> Scan | None:
        """Request a snapshot and wait for it up to *wait_s*. Return *scan* under it, or None while there is none,
        as while a table is locked.

        A snapshot from before the LSN *not_before* is not used: newer row versions than it shows were already emitted.
        Nor is one that was requested before a part of *scan* was known.
        """
        oids = [part.oid for part in scan.parts]
        if not self._maker.waiting:
            catalog = refresh()
            try:
                found = survey(connection, oids)
            except psycopg.errors.LockNotAvailable:
                return None
            self._requested, self._looked_up = (catalog.fingerprint, found), set(oids)
            self._maker.request()
        made = self._maker.fetch(wait_s)
        if made is None:
            if self._maker.full:
                self.drop()
            return None
        usable = made.lsn >= not_before and self._looked_up.issuperset(oids)
        if not usable or refresh().fingerprint != self._requested[0]:
            made.close()
            return None
        self.drop()
        self._held, self._found, self._used = made, self._requested, False
        present = self._found[1]
        snapshot = Snapshot(id=made.id, at=Timestamp(made.clock_us * 1000 + 999), lsn=made.lsn)
        following = replace(_updated(scan, present), round=scan.round + 1, snapshot=snapshot)
        log.info("scan: started round %d at block %d of %d", following.round, following.done, following.total)
        return following

    def drop(self) -> None:
        """Release the held snapshot."""
        if self._held is not None:
            self._held.close()
            self._held = None

    def close(self) -> None:
        self.drop()
        self._maker.close()


def _updated(scan: Scan, found: Found) -> Scan:
    """Return *scan* without dropped partitions. A table that was rewritten is scanned from its beginning."""
    parts: list[Part] = []
    block = scan.block
    for index, part in enumerate(scan.parts):
        filenode, blocks, _ = found.get(part.oid, (None, 0, None))
        if filenode == part.filenode:
            parts.append(part)
            continue
        if index == 0:
            block = 0
        if filenode is None:
            log.info("scan: skipped a partition of table %s that was dropped", part.table)
        else:
            log.info("scan: table %s was rewritten; its scan starts again", part.table)
        if filenode is not None and blocks:
            parts.append(replace(part, filenode=filenode, blocks=blocks))
    done = scan.done - (scan.block - block)
    total = done + sum(part.blocks for part in parts) - block
    return replace(scan, parts=tuple(parts), block=block, done=done, total=total)
