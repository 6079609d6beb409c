"""The plans of steps: along the log, and of the initial scan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cdc_core import Slice, StepLimit, Timestamp
from cdc_rangefeed_postgres.blocks import Density, pieces_between, split
from cdc_rangefeed_postgres.catalog import Catalog
from cdc_rangefeed_postgres.log_slice import LogSlice
from cdc_rangefeed_postgres.past_names import renamed
from cdc_rangefeed_postgres.scan_slice import ScanSlice
from cdc_rangefeed_postgres.scan_values import has_key_texts
from cdc_rangefeed_postgres.slot import Slot
from cdc_rangefeed_postgres.token import PostgresToken, Scan, Snapshot, TableState
from cdc_rangefeed_postgres.versions import Versions

_MIN_ROW_BYTES = 64


@dataclass(frozen=True, kw_only=True)
class LogPlan:
    """A step that has one slice: a slot serves one reader at a time."""

    slot: Slot
    start: PostgresToken
    end: PostgresToken
    catalog: Catalog
    versions: Versions
    until: Timestamp | None
    mark: Timestamp | None
    resolved: bool
    following: int | None = None
    """Where the step after this one ends, if the log has a whole one."""

    def slices(self, *, after: Timestamp) -> list[Slice]:
        versions = {self.catalog.tables[name].oid: found for name, found in self.versions.lists.items() if found}
        scan = self.start.scan
        lacking = {name: self._lacking(name, state) for name, state in sorted(self.start.tables.items())}
        lacking |= dict.fromkeys(part.table for part in scan.parts) if scan is not None else {}
        payload = LogSlice(
            slot=self.slot,
            start=self.start.lsn,
            end=self.end.lsn,
            after=after,
            until=self.until,
            mark=self.mark,
            resolved=self.resolved,
            lacking={name: columns for name, columns in lacking.items() if columns is None or columns},
            binary=self.versions.binary,
            versions=versions,
            tables=tuple(table.name.full for table in self.catalog.tables.values()),
            endpoint=self.end.endpoint,
        )
        return [Slice(lower=after.next(), payload=payload)]

    def _lacking(self, table: str, state: TableState) -> tuple[str, ...] | None:
        """Return `LogSlice.lacking` of *table*, which no scan reads.

        Nothing where rows cannot be looked up: a move or another name cannot be undone, and must end nothing.
        """
        versions = self.versions.lists.get(table, ())
        if not all(has_key_texts(version.schema) for version in versions):
            return ()
        if state.left_out:
            return None
        columns = sorted({column.name for version in versions for column in version.columns})
        return () if state.layout is None else tuple(renamed(state.layout, columns))


def log_end(start: PostgresToken, limit: StepLimit) -> int:
    """Return where a step after *start* may end at most. None crosses the point from which tables have known shapes."""
    end = start.lsn + log_bytes(limit)
    return min(end, start.settled) if start.lsn < start.settled else end


def log_bytes(limit: StepLimit) -> int:
    """Return how much log a step may hold. The limit on rows is approximate: by the least size of a row in the log."""
    return max(1, min(limit.bytes, limit.rows * _MIN_ROW_BYTES))


@dataclass(frozen=True, kw_only=True)
class ScanPlan:
    """A step that reads blocks under one snapshot, in about as many slices as can be read at the same time."""

    start: Scan
    end: PostgresToken
    snapshot: Snapshot
    catalog: Catalog
    versions: Versions
    densities: Mapping[int, Density]
    commit_times: bool
    parallelism: int
    slice_bytes: int

    def slices(self) -> list[Slice]:
        pieces = pieces_between(self.start, self.end.scan, self.catalog.tables)
        shares = split(pieces, self.densities, count=self.parallelism, bytes_=self.slice_bytes)
        return [
            Slice(
                lower=self.snapshot.at,
                payload=ScanSlice(
                    snapshot=self.snapshot.id,
                    at=self.snapshot.at,
                    pieces=tuple(share),
                    versions={piece.table: self.versions.lists[piece.table][0] for piece in share},
                    commit_times=self.commit_times,
                    endpoint=self.end.endpoint,
                ),
            )
            for share in shares
        ]
