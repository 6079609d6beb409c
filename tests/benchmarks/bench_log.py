"""From the log to JSON files, end to end, beside Debezium and mq-bridge on the same backlog."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.comparison import compared
from benchmarks.context import Bench
from benchmarks.file_feed import FileFeed
from benchmarks.mq_bridge import MqBridge
from benchmarks.peer import Debezium
from benchmarks.report import Figure, Target
from benchmarks.workload import TABLE, create_table, update_rows

_KEYS = 100_000


def run(bench: Bench) -> Iterator[Figure]:
    """Measure a backlog of updates, committed in transactions of 1,000 while nobody reads.

    We and Debezium have run once before: all three have their slots, and the table's contents are behind them.
    """
    changes = bench.sizes.log_changes
    with bench.database("bench_log") as uri, bench.scratch("log") as scratch:
        create_table(uri, _KEYS)
        feed = FileFeed(scratch, uri)
        feed.run_once()
        with (
            Debezium(bench.directory, uri, table=TABLE) as peer,
            MqBridge(bench.directory, uri, table=TABLE) as bridge,
        ):
            peer.run(expect=_KEYS)
            update_rows(uri, changes, keys=_KEYS)
            ours = feed.run_once()
            theirs = peer.run(expect=changes)
            bridged = bridge.run(expect=changes)
    target = Target(at_least=200_000, per_peer=8)
    yield from compared("log to JSON files", ours, theirs, rows=changes, target=target)
    yield Figure(
        name="log to JSON files",
        value=ours.rate,
        unit="rows/s",
        peer=bridged.rate,
        peer_name="mq-bridge",
        target=Target(per_peer=2.5),
        details={"peer": bridged.details()},
    )
