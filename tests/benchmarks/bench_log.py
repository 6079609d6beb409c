"""From the log to JSON files, end to end, beside those who do the same with the same backlog."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from statistics import median

from benchmarks.commands import RecvLogical, Rivet
from benchmarks.comparison import compared
from benchmarks.context import Bench
from benchmarks.feed import FeedRun
from benchmarks.file_feed import FileFeed
from benchmarks.mq_bridge import MqBridge
from benchmarks.peer import Debezium, PeerRun
from benchmarks.processes import processor_seconds
from benchmarks.report import Figure, Target
from benchmarks.workload import TABLE, create_table, update_rows

LOG_TO_FILES = "log to JSON files"
_KEYS = 100_000
_TARGETS = {"Debezium": Target(at_least=200_000, per_peer=11), "mq-bridge": Target(per_peer=1.7)}


def run(bench: Bench) -> Iterator[Figure]:
    """Measure how fast each reader works off the same backlog of updates, in several rounds.

    A round commits its updates in transactions of 1,000 before anyone reads. Then the readers take turns, each with a
    slot of its own; another one begins each round. We and Debezium have scanned the table before. The figures are those
    of each reader's round of median rate, and the medians of what the server used.
    """
    changes = bench.sizes.log_changes
    sides: dict[str, list[FeedRun | PeerRun]] = {}
    harm: dict[str, list[float]] = {}
    with bench.database("bench_log") as uri, bench.scratch("log") as scratch, ExitStack() as stack:
        create_table(uri, _KEYS)
        feed = FileFeed(scratch, uri)
        feed.run_once()
        debezium = stack.enter_context(Debezium(bench.directory, uri, table=TABLE))
        debezium.run(expect=_KEYS)
        peers: dict[str, Debezium | MqBridge | Rivet | RecvLogical] = {
            "Debezium": debezium,
            "mq-bridge": stack.enter_context(MqBridge(bench.directory, uri, table=TABLE)),
            "rivet": stack.enter_context(Rivet(bench.directory, uri, table=TABLE)),
            "pg_recvlogical": stack.enter_context(
                RecvLogical(bench.directory, uri, table=TABLE, binaries=bench.server.binaries)
            ),
        }
        names = ["ours", *peers]
        for number in range(bench.sizes.log_rounds):
            update_rows(uri, changes, keys=_KEYS)
            for name in names[number % len(names) :] + names[: number % len(names)]:
                before = processor_seconds(bench.server.pid)
                done = feed.run_once() if name == "ours" else peers[name].run(expect=changes)
                used = processor_seconds(bench.server.pid) - before
                sides.setdefault(name, []).append(done)
                harm.setdefault(name, []).append(used / changes * 1e6)
    ours = _of_median_rate(sides.pop("ours"))
    assert isinstance(ours, FeedRun)
    for name, runs in sides.items():
        theirs = _of_median_rate(runs)
        assert isinstance(theirs, PeerRun)
        details = {
            "server_s_per_million": {"ours": median(harm["ours"]), "peer": median(harm[name])},
            "memory": {"ours": ours.usage.private, "peer": theirs.peak_rss},
            "rates": [each.rate for each in runs],
        }
        target = _TARGETS.get(name)
        yield from compared(LOG_TO_FILES, ours, theirs, rows=changes, peer=name, target=target, details=details)


def _of_median_rate(runs: list[FeedRun | PeerRun]) -> FeedRun | PeerRun:
    return sorted(runs, key=lambda each: each.rate)[len(runs) // 2]
