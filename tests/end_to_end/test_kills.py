"""kill -9 of a run and of its database, at random moments: nothing is lost, order holds, cuts are consistent.

Other processes of Spark are killed in tests/spark/test_engine_kills.py, test_bad_rows.py and test_kafka_kills.py.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres
from cdc_testing.bank import TABLES, Bank, assert_faithful, open_bank
from cdc_testing.copied_postgres import CopiedPostgres
from cdc_testing.files import last_resolved
from cdc_testing.runs import Feed

from cdc_core.store.progress import ProgressStore, store_url

SMALL_STEPS = {"max_step_bytes": "256KB", "scan_round": "500ms"}


pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("workers_find_the_tests")]


@pytest.fixture
def own_server() -> Iterator[EmbeddedPostgres]:
    """A server that a test may kill. What it wrote is with the operating system, which lives: no need to sync it."""
    with CopiedPostgres(settings={"fsync": "off"}) as server:
        yield server


def files(feed: Feed) -> int:
    return sum(1 for _ in feed.files.rglob("*.ndjson"))


def scanned(feed: Feed) -> int:
    """Return how much of the initial scan is saved."""
    with closing(ProgressStore(store_url(feed.state))) as store:
        progress = store.progress.load("test")
    scan = None if progress is None else progress.token.get("scan")  # before the first save it is an intent
    return 0 if scan is None else int(scan["done"])


def finish(feed: Feed, uri: str) -> None:
    """Let a feed come to the end of what the bank did, and see that it has all of it."""
    feed.once()
    assert assert_faithful(feed.files, uri) > 0


def test_nothing_is_lost_when_the_driver_is_killed_during_the_initial_scan_and_while_it_follows_the_log(
    database: str, tmp_path: Path
) -> None:
    chance = random.Random(1)
    open_bank(database, filler=30_000)
    with Feed(tmp_path, database, TABLES, options=SMALL_STEPS, threads=True) as feed, Bank(database):
        feed.start()
        feed.until("a step that is saved", lambda: feed.freeze(lambda: scanned(feed) > 0))
        feed.kill_driver()
        feed.start()
        feed.until("a resolved mark", lambda: bool(last_resolved(feed.files)))
        more = files(feed) + chance.randint(1, 10)
        feed.until("more files", lambda: files(feed) >= more)
        feed.kill_driver()
    finish(feed, database)
    begins = [tuple(map(int, found)) for found in re.findall(r"scan begins at (\d+) of (\d+)", feed.log())]
    assert begins[0][0] == 0
    assert any(0 < done < total for done, total in begins[1:]), begins


def test_a_killed_database_is_waited_for(own_server: EmbeddedPostgres, tmp_path: Path) -> None:
    chance = random.Random(4)
    uri = own_server.uri()
    open_bank(uri, filler=30_000)
    options = {**SMALL_STEPS, "retry_backoff": "100ms", "max_retry_backoff": "1s"}
    with Feed(tmp_path, uri, TABLES, options=options, threads=True) as feed, Bank(uri):
        feed.start()
        for _ in range(2):
            target = files(feed) + chance.randint(1, 10)
            feed.until("more files", lambda target=target: files(feed) >= target)  # type: ignore[misc]
            own_server.kill()
            own_server.start()
        target = files(feed) + 5
        feed.until("files after the last kill", lambda: files(feed) >= target)
        feed.stop()
    finish(feed, uri)
