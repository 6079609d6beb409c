"""A changefeed and a peer that have done the same, as figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.feed import FeedRun
from benchmarks.peer import PeerRun
from benchmarks.report import Figure, Target


def compared(
    what: str,
    ours: FeedRun,
    theirs: PeerRun,
    *,
    rows: int,
    peer: str = "Debezium",
    target: Target | None,
    details: Mapping[str, Any] | None = None,
) -> Iterator[Figure]:
    """Yield the rate of *ours* beside that of *theirs*, counted in three ways, each the same for both.

    Raises: RuntimeError when ours did not deliver *rows* rows.
    """
    if ours.rows != rows:
        raise RuntimeError(f"{ours.rows} rows delivered, {rows} expected")
    yield Figure(
        name=what,
        value=ours.rate,
        unit="rows/s",
        peer=theirs.rate,
        peer_name=peer,
        target=target,
        peak_rss=ours.peak_rss,
        details={"ours": ours.details(), "peer": theirs.details(), **(details or {})},
    )
    yield Figure(
        name=f"{what}, from the start of query and engine",
        value=ours.rate_of_query,
        unit="rows/s",
        peer=theirs.rate_of_engine,
        peer_name=peer,
    )
    yield Figure(
        name=f"{what}, from the start of the processes",
        value=ours.rate_with_start,
        unit="rows/s",
        peer=theirs.rate_with_start,
        peer_name=peer,
    )
