"""Partitions that are added, and a broker that slows a feed down, while it runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field

import pytest
from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres
from cdc_sink_kafka.demo.servers import KafkaBroker
from cdc_testing.bank import TABLES, Bank, Faithful, assert_faithful_kafka, open_bank
from cdc_testing.counts import Counts
from cdc_testing.fixtures import fresh_database
from cdc_testing.kafka_following import Follower
from cdc_testing.kafka_reading import add_partitions, create_topic
from cdc_testing.kept_spark import KeptSpark
from cdc_testing.postgres import clock
from cdc_testing.runs import Feed
from confluent_kafka import Producer, ThrottleEvent

pytestmark = pytest.mark.slow

TOPICS = [table.partition(".")[2] for table in TABLES]
CLIENT = "slow-lane"
SLOW_S = 1.0
ADDED = [("accounts", 2), ("accounts", 3)]
QUOTA = ("--entity-type", "clients", "--entity-name", CLIENT)
OPTIONS = {
    "topic_partitions": 2,
    "retry_backoff": "100ms",
    "kafka_sink_config": {"ClientID": CLIENT},
    "librdkafka.topic.metadata.refresh.interval.ms": 500,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What is there when it is over."""

    uri: str
    bootstrap_servers: str
    follower: Follower
    probe: Probe
    transactions: int

    def judge(self, counts: Counts, **numbers: int) -> Faithful:
        """See that all that the bank did has arrived, whole and in order."""
        found = assert_faithful_kafka(self.bootstrap_servers, self.uri, moving_keys=True)
        counts(
            **numbers,
            transactions=self.transactions,
            rows=found.rows,
            repeats=self.follower.repeats,
            marks=found.marks,
            cuts=found.cuts,
        )
        return found


@pytest.fixture(scope="module")
def scene(
    kept_spark: KeptSpark, postgres_server: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scene]:
    """One run for all: a bank at work while partitions are added, and then while the broker slows the feed down."""
    with fresh_database(postgres_server) as uri, KafkaBroker() as broker, ExitStack() as stack:
        open_bank(uri)
        servers = broker.bootstrap_servers
        sink = f"kafka://{servers}"
        feed = stack.enter_context(Feed(tmp_path_factory.mktemp("feed"), uri, TABLES, sink=sink, options=OPTIONS))
        follower = stack.enter_context(Follower(servers, TOPICS))
        create_topic(servers, "probe")
        probe = Probe(servers)
        bank = Bank(uri, pause_s=0.02)

        def reach_now() -> None:
            now = clock(uri)
            feed.until(f"all up to {now}", lambda: follower.cut() >= now)

        def work() -> None:
            with bank:
                reach_now()
                add_partitions(servers, "accounts", 4)
                feed.until("rows in the new partitions", lambda: has_rows(follower, ADDED))
                reach_now()
                broker.change_configs(*QUOTA, "--add-config", "producer_byte_rate=5000")
                feed.until("the broker to slow the feed down", lambda: probe.throttled() > SLOW_S)
                rows = follower.read() + 10
                feed.until("rows in spite of that", lambda: follower.read() >= rows)
            broker.change_configs(*QUOTA, "--delete-config", "producer_byte_rate")
            reach_now()

        feed.during(kept_spark, work)
        yield Scene(uri=uri, bootstrap_servers=servers, follower=follower, probe=probe, transactions=bank.transactions)


def test_partitions_that_are_added_get_rows_and_marks_behind_them(scene: Scene, counts: Counts) -> None:
    assert set(ADDED) <= scene.follower.places
    assert scene.judge(counts, partitions_added=len(ADDED)).partitions == 6


def test_a_feed_that_the_broker_slows_down_goes_on_and_loses_nothing(scene: Scene, counts: Counts) -> None:
    assert scene.probe.throttled_s > SLOW_S
    scene.judge(counts, ms_throttled=int(scene.probe.throttled_s * 1000))


def has_rows(follower: Follower, places: list[tuple[str, int]]) -> bool:
    follower.cut()
    return follower.places.issuperset(places)


@dataclass(slots=True)
class Probe:
    """A client of the same name as the feed's: the broker slows both down, and tells this one."""

    bootstrap_servers: str
    throttled_s: float = 0.0
    _producer: Producer = field(init=False)

    def __post_init__(self) -> None:
        settings = {
            "bootstrap.servers": self.bootstrap_servers,
            "client.id": CLIENT,
            "throttle_cb": self._note,
            "log_level": 0,
        }
        self._producer = Producer(settings)

    def throttled(self) -> float:
        """Return the longest wait so far that the broker asked for."""
        if len(self._producer) == 0:
            self._producer.produce("probe", value=b"?")
        self._producer.poll(0.05)
        return self.throttled_s

    def _note(self, event: ThrottleEvent) -> None:
        self.throttled_s = max(self.throttled_s, event.throttle_time)
