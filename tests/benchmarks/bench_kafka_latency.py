"""The time from commit to a Kafka consumer, at 1,000 changes per second."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from benchmarks.context import Bench
from benchmarks.kafka_feed import KafkaFeed
from benchmarks.kafka_topic import KafkaTopic
from benchmarks.report import Figure, Target, percentile
from benchmarks.workload import commit_evenly, create_table

_KEYS = 10_000
_WARM_UP_S = 4.0
_AFTER_S = 3.0


def run(bench: Bench) -> Iterator[Figure]:
    """Measure, for each change, the time from just before its commit until a consumer's poll returns it.

    The consumer is a thread of this process, so one clock measures both times. It only stores the messages, which takes
    almost no time at this rate. Rows may be read twice after a failed step; none is expected here.
    """
    options = {"min_checkpoint_frequency": "0s"}
    brokers = bench.broker.bootstrap_servers
    with bench.database("bench_kafka_latency") as uri, bench.scratch("kafka_latency") as scratch:
        create_table(uri, _KEYS)
        feed = KafkaFeed(scratch, uri, brokers=brokers, name="bench_kafka_latency", options=options)
        feed.run_once()
        with feed.running() as usage, _received(feed.topic) as received:
            commit_evenly(uri, _WARM_UP_S, keys=_KEYS)
            began = time.time()
            commit_evenly(uri, bench.sizes.latency_s, keys=_KEYS)
            ended = time.time()
            time.sleep(_AFTER_S)
        latencies = list(_latencies(received, since=began))
        log = feed.log_path
        _require(latencies, log)
    bench.delete_topics(feed.topic.name)
    details = {
        "changes": len(latencies),
        "changes_per_s": len(latencies) / (ended - began),
        "greatest_s": max(latencies),
        "peak_rss_by_role": usage.peak_by_role(),
    }
    for share, limit in ((0.5, 0.5), (0.99, 1.5)):
        yield Figure(
            name=f"latency from commit to a Kafka consumer, p{share * 100:.0f}",
            value=percentile(latencies, share),
            unit="s",
            target=Target(below=limit),
            peak_rss=usage.peak,
            details=details,
        )


def _require(latencies: list[float], log: Path) -> None:
    if not latencies:
        raise RuntimeError(f"no change was delivered; see {log}")


@contextmanager
def _received(topic: KafkaTopic) -> Iterator[list[tuple[float, bytes]]]:
    """Yield a list that grows inside the block: the messages, each with its time of arrival."""
    received: list[tuple[float, bytes]] = []
    consumer = topic.consumer()
    stop = threading.Event()

    def poll() -> None:
        while not stop.is_set():
            messages = consumer.consume(1000, 0.05)
            now = time.time()
            received.extend((now, value) for message in messages if (value := message.value()) is not None)

    thread = threading.Thread(target=poll, daemon=True)
    thread.start()
    try:
        yield received
    finally:
        stop.set()
        thread.join()
        consumer.close()


def _latencies(received: list[tuple[float, bytes]], *, since: float) -> Iterator[float]:
    for at, value in received:
        after = json.loads(value).get("after")
        if after is not None:
            created = datetime.fromisoformat(after["created"]).timestamp()
            if created >= since:
                yield at - created
