"""During a run, partitions are added and the broker throttles the feed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres
from cdc_sink_kafka.demo.servers import KafkaBroker
from cdc_testing.bank import TABLES, Bank, open_bank
from cdc_testing.fixtures import Counts, fresh_database
from cdc_testing.kafka_feeds import FollowedFeed, followed_feed
from cdc_testing.kafka_following import Follower
from cdc_testing.kafka_reading import add_partitions, create_topic
from cdc_testing.thread_host import KeptThreads
from confluent_kafka import Producer, ThrottleEvent

pytestmark = pytest.mark.slow

CLIENT = "slow-lane"
THROTTLED_S = 1.0
ADDED = [("accounts", 2), ("accounts", 3)]
QUOTA = ("--entity-type", "clients", "--entity-name", CLIENT)
OPTIONS = {
    "topic_partitions": 2,
    "retry_backoff": "100ms",
    "kafka_sink_config": {"ClientID": CLIENT},
    "librdkafka.topic.metadata.refresh.interval.ms": 500,
}


@dataclass(slots=True)
class Probe:
    """A client with the name of the feed's client. The broker throttles both and tells this one how long to wait."""

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
        """Return the longest wait that the broker has asked for so far."""
        if len(self._producer) == 0:
            self._producer.produce("probe", value=b"?")
        self._producer.poll(0.05)
        return self.throttled_s

    def _note(self, event: ThrottleEvent) -> None:
        self.throttled_s = max(self.throttled_s, event.throttle_time)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The run after partitions were added and the quota was removed."""

    followed: FollowedFeed
    throttled_s: float
    transactions: int


@pytest.fixture(scope="module")
def outcome(
    kept_threads: KeptThreads, postgres_server: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Outcome]:
    """One run for both tests: a bank at work while partitions are added, and then while the broker throttles."""
    directory = tmp_path_factory.mktemp("feed")
    with fresh_database(postgres_server) as uri, KafkaBroker() as broker:
        open_bank(uri)
        servers = broker.bootstrap_servers
        create_topic(servers, "probe")
        probe = Probe(servers)
        bank = Bank(uri, pause_s=0.02)
        with followed_feed(directory, uri, servers, TABLES, options=OPTIONS) as followed:
            feed = followed.feed

            def work() -> None:
                with bank:
                    followed.reach_now()
                    add_partitions(servers, "accounts", 4)
                    feed.until("rows in the new partitions", lambda: has_rows(followed.follower, ADDED))
                    followed.reach_now()
                    broker.change_configs(*QUOTA, "--add-config", "producer_byte_rate=5000")
                    feed.until("throttling by the broker", lambda: probe.throttled() > THROTTLED_S)
                    followed.await_rows(10, "rows of a throttled feed")
                broker.change_configs(*QUOTA, "--delete-config", "producer_byte_rate")
                followed.reach_now()

            feed.during(kept_threads, work)
            yield Outcome(followed=followed, throttled_s=probe.throttled_s, transactions=bank.transactions)


def test_added_partitions_get_rows_and_marks(outcome: Outcome, counts: Counts) -> None:
    assert set(ADDED) <= outcome.followed.follower.places
    numbers = {"partitions_added": len(ADDED), "transactions": outcome.transactions}
    assert outcome.followed.verify(counts, moving_keys=True, **numbers).partitions == 6


def test_a_throttled_feed_continues_and_loses_nothing(outcome: Outcome, counts: Counts) -> None:
    assert outcome.throttled_s > THROTTLED_S
    numbers = {"ms_throttled": int(outcome.throttled_s * 1000), "transactions": outcome.transactions}
    outcome.followed.verify(counts, moving_keys=True, **numbers)


def has_rows(follower: Follower, places: list[tuple[str, int]]) -> bool:
    follower.cut()
    return follower.places.issuperset(places)
