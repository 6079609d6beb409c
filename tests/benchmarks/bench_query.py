"""From the log to JSON files with a query, beside the same backlog without one."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.context import Bench
from benchmarks.feed import FeedRun
from benchmarks.file_feed import FileFeed
from benchmarks.report import Figure, Target
from benchmarks.workload import TABLE, create_table, update_rows

__all__ = ["run"]

_KEYS = 100_000
_QUERY = f"SELECT *, upper(status) AS label FROM {TABLE} WHERE amount * 2 >= 0"
"""Every row, every column and a computed one: nothing is saved by what is left out."""


def run(bench: Bench) -> Iterator[Figure]:
    """Measure a backlog of updates, as `bench_log` does, with either changefeed."""
    without, ours = (_backlog(bench, name, query=query) for name, query in (("plain", None), ("query", _QUERY)))
    yield Figure(
        name="log to JSON files with a query",
        value=ours.rate,
        unit="rows/s",
        peer=without.rate,
        peer_name="without",
        target=Target(per_peer=0.6),
        details={"ours": ours.details(), "peer": without.details()},
    )


def _backlog(bench: Bench, name: str, *, query: str | None) -> FeedRun:
    with bench.database(f"bench_query_{name}") as uri, bench.scratch(name) as scratch:
        create_table(uri, _KEYS)
        feed = FileFeed(scratch, uri, query=query)
        feed.run_once()
        update_rows(uri, bench.sizes.log_changes, keys=_KEYS)
        return feed.run_once()
