"""A cluster of three brokers in which a leader is killed: leaders move, and consumers see complete, ordered data."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

import psycopg
import pytest
from cdc_conformance.validators import OrderValidator, VersionValidator, validate
from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres
from cdc_sink_kafka.demo.servers import KafkaBroker, admin_client
from cdc_testing.bank import TABLES, Bank, open_bank
from cdc_testing.decoders import KEYED, json_decoder
from cdc_testing.fixtures import Counts, fresh_database
from cdc_testing.kafka_cluster import KafkaCluster
from cdc_testing.kafka_feeds import FollowedFeed, followed_feed
from cdc_testing.kafka_reading import read_topics
from cdc_testing.postgres import Sql, clock, writing
from cdc_testing.processes import unread
from cdc_testing.runs import Feed
from cdc_testing.thread_host import KeptThreads
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource

pytestmark = pytest.mark.slow

OPTIONS = {"topic_partitions": 3, "topic_replication_factor": 3, "retry_backoff": "100ms", "max_retry_backoff": "1s"}
PAUSE_S = 0.5
SOME_ROWS = 2000
"""A produce request of this many bytes is larger than the requests between brokers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The run after all failures."""

    followed: FollowedFeed
    moved: bool
    transactions: int


def kill_with_rows_unread(feed: Feed, broker: KafkaBroker) -> None:
    """Kill *broker* while rows are in its receive buffer: the client must send them to another one, in order."""
    port = int(broker.bootstrap_servers.rpartition(":")[2])

    def caught() -> bool:
        broker.pause()
        deadline = time.monotonic() + PAUSE_S
        while time.monotonic() < deadline:
            if max(unread(port).values(), default=0) >= SOME_ROWS:
                return True
        broker.resume()
        return False

    feed.until("rows in flight", caught)
    broker.kill()


def require_replicas(servers: str, count: int) -> None:
    """Set min.insync.replicas of the hot topic. With 3, brokers refuse its rows while one broker is down."""
    entry = ConfigEntry("min.insync.replicas", str(count), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, "hot", incremental_configs=[entry])
    with admin_client(servers) as admin:
        admin.incremental_alter_configs([resource])[resource].result()


@pytest.fixture(scope="module")
def outcome(
    kept_threads: KeptThreads, postgres_server: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Outcome]:
    """A bank and two writers of a single row, while the leader of that row's partition is killed."""
    pause = threading.Event()
    moved = False

    def write(connection: Sql, number: int) -> None:
        connection.execute("UPDATE hot SET version = version + 1, note = %s", [f"writer {number % 2}"])
        pause.wait(0.01)

    directory = tmp_path_factory.mktemp("feed")
    with fresh_database(postgres_server) as uri, KafkaCluster() as cluster:
        open_bank(uri)
        with psycopg.connect(uri, autocommit=True) as connection:
            connection.execute("CREATE TABLE hot (id int PRIMARY KEY, version int NOT NULL, note text)")
            connection.execute("INSERT INTO hot VALUES (7, 1, 'first')")
        servers = cluster.bootstrap_servers
        bank = Bank(uri, pause_s=0.02)
        with followed_feed(directory, uri, servers, [*TABLES, "hot"], options=OPTIONS) as followed:
            feed, follower = followed.feed, followed.follower

            def work() -> None:
                nonlocal moved
                with bank, writing(uri, write):
                    followed.reach_now()
                    place = next(place for place in follower.places if place[0] == "hot")
                    leader = cluster.leader(*place)
                    assert leader is not None
                    kill_with_rows_unread(feed, leader)
                    followed.reach_now()  # two brokers are enough
                    moved = cluster.leader(*place) is not leader
                    require_replicas(servers, 3)
                    refused_from = clock(uri)
                    target = bank.transactions + 30
                    feed.until("refused rows", lambda: bank.transactions >= target)
                    assert follower.cut() < refused_from, "rows were accepted with too few replicas"
                    require_replicas(servers, 2)
                    followed.reach_now()
                    leader.start()
                    cluster.elect_preferred_leaders()
                    followed.reach_now()
                followed.reach_now()

            feed.during(kept_threads, work)
            yield Outcome(followed=followed, moved=moved, transactions=bank.transactions)


def test_nothing_is_lost_or_out_of_order_while_leaders_move(outcome: Outcome, counts: Counts) -> None:
    assert outcome.moved
    outcome.followed.verify(counts, leaders_killed=1, transactions=outcome.transactions)


def test_a_hot_key_keeps_its_order_and_every_version_while_its_leader_moves(outcome: Outcome, counts: Counts) -> None:
    order, versions = OrderValidator(), VersionValidator("hot", "version")
    messages = (message.stored for message in read_topics(outcome.followed.bootstrap_servers, ["hot"]))
    arrived = validate(messages, json_decoder(), {"hot": KEYED}, [order, versions])
    assert order.failures() == []
    assert versions.failures() == []
    with psycopg.connect(outcome.followed.uri) as connection:
        row = connection.execute("SELECT version FROM hot").fetchone()
    assert row == (versions.newest,)
    counts(
        leaders_killed=1,
        times_refused=1,
        versions=versions.newest,
        rows=arrived.rows.total(),
        marks=arrived.marks.total(),
    )
