"""kill -9 of the driver, of workers and of the only broker on the way to Kafka: what a consumer reads stays whole."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass

import psutil
import pytest
from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres
from cdc_sink_kafka.demo.servers import KafkaBroker
from cdc_testing.bank import TABLES, Bank, assert_faithful_kafka, open_bank
from cdc_testing.counts import Counts
from cdc_testing.fixtures import fresh_database
from cdc_testing.kafka_fixtures import QUICK_RETURN
from cdc_testing.kafka_following import Follower
from cdc_testing.postgres import clock
from cdc_testing.runs import Feed
from cdc_testing.sockets import senders

pytestmark = pytest.mark.slow

TOPICS = [table.partition(".")[2] for table in TABLES]
OPTIONS = {"topic_partitions": 3, "retry_backoff": "100ms", "max_retry_backoff": "1s", "max_step_bytes": "1MB"}
PATIENCE_S = 0.5
SOME_ROWS = 600
"""Bytes of a produce request that is more than a question for metadata."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A feed that runs from a bank into a broker of their own, and a consumer that follows."""

    uri: str
    broker: KafkaBroker
    feed: Feed
    follower: Follower

    def bank(self, *, seed: int) -> Bank:
        """Return a bank whose tellers leave time for a feed that starts on a busy machine."""
        return Bank(self.uri, seed=seed, pause_s=0.02)

    def go_on(self, what: str, *, rows: int) -> None:
        """Return when *rows* more have arrived."""
        target = self.follower.read() + rows
        self.feed.until(f"rows after {what}", lambda: self.follower.read() >= target)

    def rows_on_their_way(self) -> psutil.Process:
        """Stop the broker while rows lie at its door, and return the worker that sent them: the moment to kill."""
        port = int(self.broker.bootstrap_servers.rpartition(":")[2])
        found: list[psutil.Process] = []

        def caught() -> bool:
            self.broker.pause()
            deadline = time.monotonic() + PATIENCE_S
            while not found and time.monotonic() < deadline:
                found.extend(senders(port, self.feed.workers(), at_least=SOME_ROWS))
            if not found:  # who is new to the broker asks before sending, and gets no answer
                self.broker.resume()
                self.go_on("a pause", rows=1)
            return bool(found)

        self.feed.until("rows on their way", caught)
        return found[0]

    def judge(self, counts: Counts, **numbers: int) -> None:
        """See that all that the bank did has arrived, whole and in order. The bank must be closed."""
        now = clock(self.uri)
        self.feed.until("the last transaction", lambda: self.follower.cut() >= now)
        found = assert_faithful_kafka(self.broker.bootstrap_servers, self.uri)
        counts(**numbers, rows=found.rows, repeats=self.follower.repeats, marks=found.marks, cuts=found.cuts)


@pytest.fixture(scope="module")
def scene(postgres_server: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """One run for all kills but that of the driver: starting one takes longer than all that follows."""
    directory = tmp_path_factory.mktemp("feed")
    with fresh_database(postgres_server) as uri, KafkaBroker(settings=QUICK_RETURN) as broker:
        open_bank(uri, filler=1000)
        sink = f"kafka://{broker.bootstrap_servers}"
        with (
            Feed(directory, uri, TABLES, sink=sink, options=OPTIONS) as feed,
            Follower(broker.bootstrap_servers, TOPICS) as follower,
        ):
            feed.start()
            feed.until("the initial scan", lambda: "initial scan begins at" in feed.log())
            yield Scene(uri=uri, broker=broker, feed=feed, follower=follower)
            feed.stop()


def test_nothing_is_lost_or_out_of_order_when_workers_are_killed(scene: Scene, counts: Counts) -> None:
    chance = random.Random(1)
    with scene.bank(seed=1) as bank:
        for _ in range(2):
            scene.go_on("the start or a kill", rows=chance.randint(20, 100))
            worker = scene.rows_on_their_way()
            worker.kill()
            scene.broker.resume()
        scene.go_on("the last kill", rows=50)
    scene.judge(counts, workers_killed=2, transactions=bank.transactions)


def test_nothing_is_lost_or_out_of_order_when_the_only_broker_is_killed(scene: Scene, counts: Counts) -> None:
    chance = random.Random(2)
    with scene.bank(seed=2) as bank:
        for _ in range(2):
            scene.go_on("the start or a kill", rows=chance.randint(20, 100))
            scene.rows_on_their_way()
            scene.broker.kill()
            scene.broker.start()
        scene.go_on("the last kill", rows=50)
    scene.judge(counts, brokers_killed=2, transactions=bank.transactions)


def test_nothing_is_lost_or_out_of_order_when_the_driver_is_killed(scene: Scene, counts: Counts) -> None:
    with scene.bank(seed=3) as bank:
        scene.go_on("the start", rows=50)
        scene.rows_on_their_way()
        scene.feed.kill_driver()
        scene.broker.resume()
        scene.feed.start()
        scene.go_on("the kill", rows=50)
    scene.judge(counts, drivers_killed=1, transactions=bank.transactions)
