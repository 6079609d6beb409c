"""SIGKILL for the driver, for workers and for the only broker: consumers still see complete, ordered data."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass

import psutil
import pytest
from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres
from cdc_sink_kafka.demo.servers import KafkaBroker
from cdc_testing.bank import TABLES, Bank, open_bank
from cdc_testing.fixtures import Counts, fresh_database
from cdc_testing.kafka_feeds import FollowedFeed, followed_feed
from cdc_testing.kafka_fixtures import QUICK_RETURN
from cdc_testing.processes import senders

OPTIONS = {"topic_partitions": 3, "retry_backoff": "100ms", "max_retry_backoff": "1s", "max_step_bytes": "1MB"}
PAUSE_S = 0.5
SOME_ROWS = 600
"""A produce request of this many bytes is larger than a metadata request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A running feed from a bank to its own broker."""

    broker: KafkaBroker
    followed: FollowedFeed

    def bank(self, *, seed: int) -> Bank:
        """Return a bank that is slow enough for a feed on a busy machine."""
        return Bank(self.followed.uri, seed=seed, pause_s=0.02)

    def pause_with_rows_in_flight(self) -> psutil.Process:
        """Pause the broker while rows are in its receive buffer, and return the worker that sent them."""
        port = int(self.broker.bootstrap_servers.rpartition(":")[2])
        found: list[psutil.Process] = []

        def caught() -> bool:
            self.broker.pause()
            deadline = time.monotonic() + PAUSE_S
            while not found and time.monotonic() < deadline:
                found.extend(senders(port, self.followed.feed.workers(), at_least=SOME_ROWS))
            if not found:  # a new client asks for metadata before it sends, and gets no answer
                self.broker.resume()
                self.followed.await_rows(1, "rows after a pause")
            return bool(found)

        self.followed.feed.until("rows in flight", caught)
        return found[0]

    def verify(self, counts: Counts, **numbers: int) -> None:
        """Verify that everything the bank did has arrived, complete and in order. The bank must be closed."""
        self.followed.reach_now()
        self.followed.verify(counts, **numbers)


@pytest.fixture(scope="module")
def run(postgres_server: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """One run for all tests of this module, because a start takes longer than everything after it."""
    directory = tmp_path_factory.mktemp("feed")
    with fresh_database(postgres_server) as uri, KafkaBroker(settings=QUICK_RETURN) as broker:
        open_bank(uri, filler=1000)
        with followed_feed(directory, uri, broker.bootstrap_servers, TABLES, options=OPTIONS) as followed:
            feed = followed.feed
            feed.start()
            feed.until("the initial scan", lambda: "scan begins at" in feed.log())
            yield Run(broker=broker, followed=followed)
            feed.stop()


@pytest.mark.slow
def test_nothing_is_lost_or_out_of_order_when_a_worker_is_killed(run: Run, counts: Counts) -> None:
    chance = random.Random(1)
    with run.bank(seed=1) as bank:
        run.followed.await_rows(chance.randint(20, 100), "rows before the kill")
        worker = run.pause_with_rows_in_flight()
        worker.kill()
        run.broker.resume()
        run.followed.await_rows(50, "rows after the kill")
    run.verify(counts, workers_killed=1, transactions=bank.transactions)


@pytest.mark.slow
def test_nothing_is_lost_or_out_of_order_when_the_only_broker_is_killed(run: Run, counts: Counts) -> None:
    chance = random.Random(2)
    with run.bank(seed=2) as bank:
        run.followed.await_rows(chance.randint(20, 100), "rows before the kill")
        run.pause_with_rows_in_flight()
        run.broker.kill()
        run.broker.start()
        run.followed.await_rows(50, "rows after the kill")
    run.verify(counts, brokers_killed=1, transactions=bank.transactions)


@pytest.mark.slow
def test_nothing_is_lost_or_out_of_order_when_the_driver_is_killed(run: Run, counts: Counts) -> None:
    with run.bank(seed=3) as bank:
        run.followed.await_rows(50, "rows before the kill")
        run.pause_with_rows_in_flight()
        run.followed.feed.kill_driver()
        run.broker.resume()
        run.followed.feed.start()
        run.followed.await_rows(50, "rows after the kill")
    run.verify(counts, drivers_killed=1, transactions=bank.transactions)
