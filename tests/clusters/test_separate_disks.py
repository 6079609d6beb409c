"""Executors that do not share a disk: no row may be lost without a word."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
from cdc_conformance.simulated import SimulatedDatabase
from cdc_testing.ndjson_rows import delivered
from cdc_testing.runs import Feed, eventually
from cdc_testing.spark_cluster import SparkCluster

pytestmark = pytest.mark.slow

ROWS = 200
HOST = r"executor \d+ on host 127\.0\.0\.[23] does not see the one of the driver's host there; mount a file system"


def refused(feed: Feed) -> str:
    """Run *feed*, see that it ends with a configuration error, and return that."""
    feed.start("--once")
    assert feed.wait() == 2, feed.log_tail()
    (error,) = [line for line in feed.log().splitlines() if line.startswith("error: ")]
    return error


def test_a_directory_that_executors_do_not_share_is_refused_before_anything_is_created(
    cluster: SparkCluster, db: SimulatedDatabase, feed: Callable[..., Feed]
) -> None:
    out = cluster.private / "out"
    error = refused(feed(db, out))
    assert f"sink 'cloudstorage' uses the directory {out}" in error
    assert re.search(HOST, error)
    assert not list(cluster.private.iterdir())
    assert not db.protected()


def test_dead_letters_that_executors_would_not_share_are_refused(
    cluster: SparkCluster, db: SimulatedDatabase, feed: Callable[..., Feed], tmp_path: Path
) -> None:
    dead = cluster.private / "dead"
    error = refused(feed(db, cluster.shared / "out", on_error="dead_letter", dead_letter=f"file://{dead}"))
    assert f"uses the directory {dead}" in error
    assert re.search(HOST, error)
    assert not (cluster.shared / "out").exists()


def test_a_source_in_files_that_executors_do_not_share_is_refused(
    cluster: SparkCluster, make_db: Callable[[Path], SimulatedDatabase], feed: Callable[..., Feed]
) -> None:
    db = make_db(cluster.private / "db")
    error = refused(feed(db, cluster.shared / "out"))
    assert f"rangefeed 'simulated' uses the directory {db.directory}" in error
    assert re.search(HOST, error)


def test_a_progress_store_in_a_file_that_executors_do_not_share_is_refused(
    cluster: SparkCluster, db: SimulatedDatabase
) -> None:
    with Feed(
        cluster.private / "feed", db.uri, ["t"], spark=cluster.settings, sink=f"file://{cluster.shared}/out"
    ) as feed:
        error = refused(feed)
    assert f"the progress store is the SQLite file {feed.state}/progress.sqlite of the driver's machine" in error
    assert re.search(r"executor \d+ on host 127\.0\.0\.[23] cannot use that; keep the progress in a database", error)
    assert not db.protected()


def test_a_shared_directory_gets_every_row_from_all_executors(
    cluster: SparkCluster, db: SimulatedDatabase, feed: Callable[..., Feed]
) -> None:
    out = cluster.shared / "out"
    running = feed(db, out, spark={"spark.executor.instances": "2"})
    running.to_its_end(None, "--once")
    assert sorted(row["key"][0] for row in delivered(out, "t")) == list(range(ROWS))
    assert "2 executors with 2 task slots" in running.log()
    assert not list(cluster.shared.rglob(".cdc-probe-*"))


def test_an_executor_that_joins_later_is_refused_before_it_writes(
    cluster: SparkCluster, db: SimulatedDatabase, feed: Callable[..., Feed]
) -> None:
    out, numbers = cluster.first / "out", count(ROWS)
    late = cluster.workers[1]
    with cluster.without(late):
        running = feed(db, out)
        running.start()
        running.until("all rows", lambda: len(delivered(out, "t")) >= ROWS)
        late.start()

        def ended() -> bool:
            db.put("t", id=next(numbers), n=0)
            assert running.process is not None
            return running.process.poll() is not None

        eventually("the refusal", ended)
    assert running.wait() == 2, running.log_tail()
    assert f"on host {late.host} does not see the one of the driver's host" in running.log()
    assert not list(cluster.first.rglob(".cdc-probe-*"))
