"""Three brokers of which one after the other is killed: leaders move, and what a consumer reads stays whole."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import psycopg
import pytest
from cdc_conformance.validators import OrderValidator, VersionValidator, validate
from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres
from cdc_sink_kafka.demo.servers import KafkaBroker, KafkaCluster, admin_client
from cdc_testing.bank import TABLES, Bank, assert_faithful_kafka, open_bank
from cdc_testing.counts import Counts
from cdc_testing.decoders import KEYED, json_decoder
from cdc_testing.fixtures import fresh_database
from cdc_testing.kafka_following import Follower
from cdc_testing.kafka_reading import read_topics
from cdc_testing.kept_spark import KeptSpark
from cdc_testing.postgres import Sql, clock, writing
from cdc_testing.runs import Feed
from cdc_testing.sockets import unread
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource

from cdc_core import Timestamp

pytestmark = pytest.mark.slow

TOPICS = [*(table.partition(".")[2] for table in TABLES), "hot"]
OPTIONS = {"topic_partitions": 3, "topic_replication_factor": 3, "retry_backoff": "100ms", "max_retry_backoff": "1s"}
KILLS = 2
REFUSALS = 1
"""How often, after each kill, the brokers refuse rows for a while with an error that is worth another attempt."""
PATIENCE_S = 0.5
SOME_ROWS = 2000
"""Bytes of a produce request that is more than what brokers ask each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordeal:
    """What is there when it is over."""

    uri: str
    bootstrap_servers: str
    repeats: int
    moves: int
    transactions: int


def reach(feed: Feed, follower: Follower, timestamp: Timestamp) -> None:
    """Return when the consumer has every partition up to *timestamp*."""
    feed.until(f"all up to {timestamp}", lambda: follower.cut() >= timestamp)


def kill_with_rows_unread(feed: Feed, broker: KafkaBroker) -> None:
    """Kill *broker* while rows lie at its door: they must be sent again, to another, and in the same order."""
    port = int(broker.bootstrap_servers.rpartition(":")[2])

    def caught() -> bool:
        broker.pause()
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            if max(unread(port).values(), default=0) >= SOME_ROWS:
                return True
        broker.resume()
        return False

    feed.until("rows on their way", caught)
    broker.kill()


def demand_replicas(servers: str, count: int) -> None:
    """Have the brokers refuse rows of the hot key unless *count* replicas are in sync: two are, while one is down."""
    entry = ConfigEntry("min.insync.replicas", str(count), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, "hot", incremental_configs=[entry])
    with admin_client(servers) as admin:
        admin.incremental_alter_configs([resource])[resource].result(timeout=30)


@pytest.fixture(scope="module")
def ordeal(
    kept_spark: KeptSpark, postgres_server: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Ordeal]:
    """A bank and two writers of a single row, while the leader of that row's partition is killed again and again."""
    pause = threading.Event()
    moves = 0

    def write(connection: Sql, number: int) -> None:
        connection.execute("UPDATE hot SET version = version + 1, note = %s", [f"writer {number % 2}"])
        pause.wait(0.01)

    with fresh_database(postgres_server) as uri, KafkaCluster() as cluster, ExitStack() as stack:
        open_bank(uri)
        with psycopg.connect(uri, autocommit=True) as connection:
            connection.execute("CREATE TABLE hot (id int PRIMARY KEY, version int NOT NULL, note text)")
            connection.execute("INSERT INTO hot VALUES (7, 1, 'first')")
        servers = cluster.bootstrap_servers
        tables, sink = [*TABLES, "hot"], f"kafka://{servers}"
        feed = stack.enter_context(Feed(tmp_path_factory.mktemp("feed"), uri, tables, sink=sink, options=OPTIONS))
        follower = stack.enter_context(Follower(servers, TOPICS))
        bank = Bank(uri, pause_s=0.02)

        def work() -> None:
            nonlocal moves
            with bank, writing(uri, write):
                for _ in range(KILLS):
                    reach(feed, follower, clock(uri))
                    place = next(place for place in follower.places if place[0] == "hot")
                    leader = cluster.leader(*place)
                    assert leader is not None
                    kill_with_rows_unread(feed, leader)
                    reach(feed, follower, clock(uri))  # two brokers are enough
                    moves += cluster.leader(*place) is not leader
                    for _ in range(REFUSALS):
                        demand_replicas(servers, 3)
                        refused_from = clock(uri)
                        target = bank.transactions + 30
                        feed.until("rows that are refused", lambda target=target: bank.transactions >= target)  # type: ignore[misc]
                        assert follower.cut() < refused_from, "rows without enough replicas were taken"
                        demand_replicas(servers, 2)
                        reach(feed, follower, clock(uri))
                    leader.start()
                    cluster.await_in_sync()
                cluster.elect_preferred_leaders()
                reach(feed, follower, clock(uri))
            reach(feed, follower, clock(uri))

        feed.during(kept_spark, work)
        yield Ordeal(
            uri=uri,
            bootstrap_servers=servers,
            repeats=follower.repeats,
            moves=moves,
            transactions=bank.transactions,
        )


def test_nothing_is_lost_or_out_of_order_while_leaders_move(ordeal: Ordeal, counts: Counts) -> None:
    found = assert_faithful_kafka(ordeal.bootstrap_servers, ordeal.uri)
    assert ordeal.moves == KILLS
    counts(
        leaders_killed=KILLS,
        transactions=ordeal.transactions,
        rows=found.rows,
        repeats=ordeal.repeats,
        marks=found.marks,
        cuts=found.cuts,
    )


def test_a_hot_key_keeps_its_order_and_every_version_while_its_leader_moves(ordeal: Ordeal, counts: Counts) -> None:
    order, versions = OrderValidator(), VersionValidator("hot", "version")
    messages = (message.stored for message in read_topics(ordeal.bootstrap_servers, ["hot"]))
    arrived = validate(messages, json_decoder(), {"hot": KEYED}, [order, versions])
    assert order.failures() == []
    assert versions.failures() == []
    with psycopg.connect(ordeal.uri) as connection:
        row = connection.execute("SELECT version FROM hot").fetchone()
    assert row == (versions.newest,)
    counts(
        leaders_killed=KILLS,
        times_refused=KILLS * REFUSALS,
        versions=versions.newest,
        rows=arrived.rows.total(),
        marks=arrived.marks.total(),
    )
