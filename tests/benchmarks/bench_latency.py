"""From commit to durable file at 1,000 changes a second: quiet, and behind many changes of an open transaction."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from benchmarks.context import Bench
from benchmarks.file_feed import FileFeed
from benchmarks.report import Figure, Target, percentile
from benchmarks.workload import commit_evenly, create_table, insert_rows, writing_transaction

_KEYS = 10_000
_WARM_UP_S = 4.0
_BEGIN_S = 25.0
"""By then, the server has decoded the log behind the open transaction for the connection that is kept."""
_MOST = 1.2
"""How many times as long it may take behind an open transaction."""


def run(bench: Bench) -> Iterator[Figure]:
    """Measure, for each change, from just before its commit to when its file was renamed into place.

    Each transaction is one statement that writes the database's clock into its rows, so the time in a row lies a little
    before its commit: the latency shown is never too small by that. A file is renamed after its data was synced; the
    kernel notes when (`ctime`), so nothing needs to watch the directory and take time from what is measured. Then the
    same again while a transaction is open that began before many other changes, all of which are delivered.
    """
    options = {"min_checkpoint_frequency": "0s", "partition_format": "flat"}
    with bench.database("bench_latency") as uri, bench.scratch("latency") as scratch:
        create_table(uri, _KEYS)
        feed = FileFeed(scratch, uri, options=options)
        feed.run_once()
        with feed.running() as usage:
            quiet = _measured(bench, uri, feed, warm_up_s=_WARM_UP_S)
            with writing_transaction(uri):
                insert_rows(uri, bench.sizes.held_changes, after=_KEYS)
                feed.await_resolved(time.time())
                held = _measured(bench, uri, feed, warm_up_s=_BEGIN_S)
    details = {"changes": len(quiet), "greatest_s": max(quiet), "peak_rss_by_role": usage.peak_by_role()}
    for share, limit in ((0.5, 0.5), (0.99, 1.5)):
        yield Figure(
            name=f"latency from commit to durable file, p{share * 100:.0f}",
            value=percentile(quiet, share),
            unit="s",
            target=Target(below=limit),
            peak_rss=usage.peak,
            details=details,
        )
    for share in (0.5, 0.99):
        yield Figure(
            name=f"the same behind {bench.sizes.held_changes:,} changes of an open transaction, p{share * 100:.0f}",
            value=percentile(held, share),
            unit="s",
            peer=percentile(quiet, share),
            peer_name="quiet",
            target=Target(per_peer=1 / _MOST),
            details={"changes": len(held), "greatest_s": max(held)},
        )


def _measured(bench: Bench, uri: str, feed: FileFeed, *, warm_up_s: float) -> list[float]:
    """Return how long each change took."""
    commit_evenly(uri, warm_up_s, keys=_KEYS)
    began = time.time()
    commit_evenly(uri, bench.sizes.latency_s, keys=_KEYS)
    ended = time.time()
    feed.await_resolved(ended)
    files = [path for path in feed.data_files() if path.stat().st_ctime >= began]
    latencies = [latency for path in files for latency in _latencies(path, since=began)]
    assert latencies, f"no change was delivered; {feed.log_path} says why"
    return latencies


def _latencies(path: Path, *, since: float) -> Iterator[float]:
    visible = path.stat().st_ctime
    for line in path.read_bytes().splitlines():
        created = datetime.fromisoformat(json.loads(line)["after"]["created"]).timestamp()
        if created >= since:
            yield visible - created
