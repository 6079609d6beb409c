"""The plan of a step of the initial scan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cdc_core import Slice
from cdc_rangefeed_postgres.blocks import Density, pieces_between, split
from cdc_rangefeed_postgres.catalog import Catalog
from cdc_rangefeed_postgres.scan_slice import ScanSlice
from cdc_rangefeed_postgres.token import PostgresToken, Scan, Snapshot
from cdc_rangefeed_postgres.versions import Versions

__all__ = ["ScanPlan"]


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
