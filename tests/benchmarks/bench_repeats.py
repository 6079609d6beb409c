"""How many rows a consumer of Kafka sees twice when the driver is killed at random moments."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import closing

from benchmarks.context import Bench
from benchmarks.report import Figure
from benchmarks.workload import TABLE, changing, create_table
from cdc_testing.kafka_feeds import followed_feed

from cdc_core.store.progress import ProgressStore, store_url

_KEYS = 10_000
_CHANGES_PER_S = 5_000
_WITHIN_S = 5.0
"""A kill comes so long after the start of the query at most: part of them while it works off what came meanwhile."""


def run(bench: Bench) -> Iterator[Figure]:
    """Kill `cdc run` with -9, start it again, and count the versions of rows that the consumer got more than once."""
    kills = bench.sizes.kills
    options = {"topic_prefix": "bench_repeats."}
    chance = random.Random(1)
    with bench.database("bench_repeats") as uri, bench.scratch("repeats") as scratch:
        create_table(uri, _KEYS)
        brokers = bench.broker.bootstrap_servers
        with followed_feed(scratch, uri, brokers, [TABLE], options=options) as followed:
            feed, follower = followed.feed, followed.follower
            with changing(uri, keys=_KEYS, changes_per_s=_CHANGES_PER_S):
                feed.start()
                followed.reach_now()
                for _ in range(kills):
                    time.sleep(chance.random() * _WITHIN_S)
                    feed.kill_driver()
                    begun = feed.log().count(": running")
                    feed.start()
                    feed.until("the query", lambda begun=begun: feed.log().count(": running") > begun)  # type: ignore[misc]
            followed.reach_now()
            feed.stop()
            follower.read()
        with closing(ProgressStore(store_url(feed.state))) as store:
            progress = store.progress.load("test")
        assert progress is not None
        counted = progress.counters.get("rows_repeated", 0)
    bench.delete_topics(f"bench_repeats.{TABLE.partition('.')[2]}")
    details = {
        "kills": kills,
        "rows": follower.rows,
        "repeats": follower.repeats,
        "share": follower.repeats / follower.rows,
        "rows_repeated": counted,
    }
    yield Figure(name="rows delivered twice by a kill", value=follower.repeats / kills, unit="rows", details=details)
    yield Figure(
        name="rows delivered twice, of 1,000",
        value=1000 * follower.repeats / follower.rows,
        unit="rows",
        details=details,
    )
