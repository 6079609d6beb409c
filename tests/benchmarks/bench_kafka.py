"""From the log to JSON messages in Kafka, compared with Debezium in Kafka Connect and with Debezium without a sink."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.comparison import compared
from benchmarks.context import Bench
from benchmarks.kafka_connect import KafkaConnect
from benchmarks.kafka_feed import KafkaFeed
from benchmarks.peer import Debezium
from benchmarks.processes import Usage, watched
from benchmarks.report import Figure, Target
from benchmarks.workload import TABLE, create_table, update_rows

_KEYS = 100_000


def run(bench: Bench) -> Iterator[Figure]:
    """Measure a backlog of updates, committed in transactions of 1,000 while no reader runs.

    All three have run once before, so their slots, topics and offsets exist and their initial scans are complete. The
    first runs give the figures of the initial scan. One broker, three partitions, `acks=all`.
    """
    changes = bench.sizes.log_changes
    brokers = bench.broker.bootstrap_servers
    with bench.database("bench_kafka") as uri, bench.scratch("kafka") as scratch:
        create_table(uri, _KEYS)
        feed = KafkaFeed(scratch, uri, brokers=brokers, name="bench_kafka")
        connect = KafkaConnect(scratch, uri, table=TABLE, brokers=brokers)
        with Debezium(bench.directory, uri, table=TABLE) as engine:
            scan = feed.run_once()
            engine.run(expect=_KEYS)
            connect_scan = connect.run(expect=_KEYS)
            update_rows(uri, changes, keys=_KEYS)
            with watched(bench.server.pid) as server, watched(bench.broker.pid) as broker:
                ours = feed.run_once()
            theirs = engine.run(expect=changes)
            connected = connect.run(expect=changes)
        bench.delete_topics(feed.topic.name, connect.topic.name)
    begin, end = ours.started + ours.saves[0][0], ours.started + ours.complete_s
    yield from compared(
        "log to JSON in Kafka",
        ours,
        theirs,
        rows=changes,
        target=Target(at_least=150_000, per_peer=5),
        details={"cpu_s_of_server": _seconds(server, begin, end), "cpu_s_of_broker": _seconds(broker, begin, end)},
    )
    yield Figure(
        name="log to JSON in Kafka, beside Kafka Connect",
        value=ours.rate,
        unit="rows/s",
        peer=connected.rate,
        peer_name="Connect",
        peak_rss=ours.peak_rss,
        details={"peer": connected.details()},
    )
    yield Figure(
        name="log to JSON in Kafka, beside Kafka Connect, from the start of the processes",
        value=ours.rate_with_start,
        unit="rows/s",
        peer=connected.rate_with_start,
        peer_name="Connect",
    )
    yield Figure(
        name="initial scan to JSON in Kafka, beside Kafka Connect",
        value=scan.rate,
        unit="rows/s",
        peer=connect_scan.rate,
        peer_name="Connect",
        details={"ours": scan.details(), "peer": connect_scan.details()},
    )


def _seconds(usage: Usage, begin: float, end: float) -> float:
    return round(sum(usage.cpu_between(begin, end).values()), 2)
