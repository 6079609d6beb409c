"""Rounds of the initial scan: which snapshot the planner holds, and when the next one takes its place."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from cdc_core import RangefeedContext, Timestamp
from cdc_rangefeed_postgres.catalog import Catalog
from cdc_rangefeed_postgres.connection import Connection, Server
from cdc_rangefeed_postgres.position import Part, Scan, Snapshot
from cdc_rangefeed_postgres.scan import Density, filenodes, survey
from cdc_rangefeed_postgres.slot import Slot
from cdc_rangefeed_postgres.snapshot import Exported, SnapshotMaker

__all__ = ["Rounds"]

log = logging.getLogger(__name__)

Found = Mapping[int, tuple[int, int, Density]]


class Rounds:
    """At most one snapshot held, and at most one being taken.

    What a round may read is looked up *before* its snapshot is asked for: a table that is rewritten or altered in
    between then differs from what was seen, and the round is not used.
    """

    def __init__(self, server: Server, context: RangefeedContext, slot: Slot) -> None:
        self._round_s: float = context.options.scan_round
        self._maker = SnapshotMaker(server, f"{slot.name[:46]}_r", limit_s=context.options.snapshot_wait)
        self._held: Exported | None = None
        self._used = False
        self._seen: tuple[str, Found] = ("", {})
        self._asked: tuple[str, Found] = ("", {})

    @property
    def held(self) -> bool:
        """Whether there is a snapshot that lives."""
        return self._held is not None and self._held.alive

    @property
    def densities(self) -> dict[int, Density]:
        """What blocks hold on average, by table or partition."""
        return {oid: density for oid, (_, _, density) in self._seen[1].items()}

    def holds(self, snapshot: Snapshot) -> bool:
        """Whether *snapshot* is the one that is held, and lives."""
        return self._held is not None and self._held.id == snapshot.id and self._held.alive

    def over(self) -> bool:
        """Whether the held snapshot has served for as long as a round may last; one that served for nothing has not.

        Otherwise a log that takes longer to follow than a round lasts would keep the scan from ever going on.
        """
        return self._held is None or (self._used and time.monotonic() - self._held.since >= self._round_s)

    def use(self) -> None:
        """Note that a step of the scan is read under the held snapshot."""
        self._used = True

    def still_fit(self, connection: Connection, scan: Scan, catalog: Catalog) -> bool:
        """Whether what is left of *scan* can be read under the held snapshot: nothing was altered or rewritten."""
        if catalog.fingerprint != self._seen[0]:
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
        """Return *scan* under a new snapshot, None while there is none; ask for one, and wait for it up to *wait_s*.

        A snapshot from before *not_before* comes too late: newer row versions than it shows were emitted already.
        """
        if not self._maker.waiting:
            catalog = refresh()
            self._asked = (catalog.fingerprint, survey(connection, [part.oid for part in scan.parts]))
            self._maker.ask()
        made = self._maker.fetch(wait_s)
        if made is None:
            if self._maker.full:
                self.drop()
            return None
        if made.lsn < not_before or refresh().fingerprint != self._asked[0]:
            made.close()
            return None
        self.drop()
        self._held, self._seen, self._used = made, self._asked, False
        found = self._seen[1]
        snapshot = Snapshot(id=made.id, at=Timestamp(made.clock_us * 1000 + 999), lsn=made.lsn)
        following = replace(_reconciled(scan, found), round=scan.round + 1, snapshot=snapshot)
        log.info("initial scan: round %d begins at block %d of %d", following.round, following.done, following.total)
        return following

    def drop(self) -> None:
        """Let go of the held snapshot."""
        if self._held is not None:
            self._held.close()
            self._held = None

    def close(self) -> None:
        self.drop()
        self._maker.close()


def _reconciled(scan: Scan, found: Found) -> Scan:
    """Return *scan* with tables that were rewritten back at their beginning, and those that are gone left out."""
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
            log.info("initial scan: a partition of table %s is gone, so it is not scanned", part.table)
        else:
            log.info("initial scan: table %s was rewritten, so it is scanned from its beginning", part.table)
        if filenode is not None and blocks:
            parts.append(replace(part, filenode=filenode, blocks=blocks))
    done = scan.done - (scan.block - block)
    total = done + sum(part.blocks for part in parts) - block
    return replace(scan, parts=tuple(parts), block=block, done=done, total=total)
