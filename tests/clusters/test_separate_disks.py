"""Executors that do not share a disk: no row may be lost without a word."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
from cdc_conformance.simulated import SimulatedDatabase
from cdc_testing.files import delivered
from cdc_testing.kept_spark import KeptSpark
from cdc_testing.runs import Feed
from cdc_testing.spark_cluster import SparkCluster

pytestmark = pytest.mark.slow

ROWS = 200
HOST = r"does not exist on executor \d+ on host 127\.0\.0\.[23]; mount a shared file system"


def test_a_directory_that_executors_do_not_share_is_refused_before_anything_is_created(
    cluster: SparkCluster, spark: KeptSpark, db: SimulatedDatabase, feed: Callable[..., Feed]
) -> None:
    out = cluster.private / "out"
    there = list(cluster.private.iterdir())
    running = feed(db, out)
    error = running.refusal(spark)
    assert f"sink 'cloudstorage' uses directory {out}" in error
    assert re.search(HOST, error)
    assert "warming up" not in running.log()
    assert list(cluster.private.iterdir()) == there
    assert not db.protected()


def test_dead_letters_that_executors_would_not_share_are_refused(
    cluster: SparkCluster, spark: KeptSpark, db: SimulatedDatabase, out: Path, feed: Callable[..., Feed]
) -> None:
    dead = cluster.private / "dead"
    error = feed(db, out, on_error="dead_letter", dead_letter=f"file://{dead}").refusal(spark)
    assert f"uses directory {dead}" in error
    assert re.search(HOST, error)
    assert not out.exists()


def test_a_source_in_files_that_executors_do_not_share_is_refused(
    cluster: SparkCluster,
    spark: KeptSpark,
    make_db: Callable[[Path], SimulatedDatabase],
    out: Path,
    feed: Callable[..., Feed],
) -> None:
    db = make_db(cluster.private / "db")
    error = feed(db, out).refusal(spark)
    assert f"rangefeed 'simulated' uses directory {db.directory}" in error
    assert re.search(HOST, error)


def test_a_progress_store_in_a_file_that_executors_do_not_share_is_refused(
    cluster: SparkCluster, spark: KeptSpark, db: SimulatedDatabase, out: Path, feed: Callable[..., Feed]
) -> None:
    running = feed(db, out, directory=cluster.private / "feed")
    error = running.refusal(spark)
    assert f"the progress store is the SQLite file {running.state}/progress.sqlite on the driver's machine" in error
    assert re.search(r"executor \d+ on host 127\.0\.0\.[23] cannot use; set --state to the URL of a database", error)
    assert not db.protected()


def test_a_shared_directory_gets_every_row_from_all_executors(
    cluster: SparkCluster, spark: KeptSpark, db: SimulatedDatabase, out: Path, feed: Callable[..., Feed]
) -> None:
    running = feed(db, out)
    running.once(spark)
    assert sorted(row["key"][0] for row in delivered(out, "t")) == list(range(ROWS))
    assert "2 executors with 2 task slots" in running.log()
    assert not list(cluster.shared.rglob(".cdc-probe-*"))


def test_an_executor_that_joins_later_is_refused_before_it_writes(
    cluster: SparkCluster, spark: KeptSpark, db: SimulatedDatabase, feed: Callable[..., Feed]
) -> None:
    out, numbers = cluster.first / "out", count(ROWS)
    late = cluster.workers[1]
    running = feed(db, out, executor_wait="2s")

    def refused() -> bool:
        db.put("t", id=next(numbers), n=0)
        return f"on host {late.host}; mount a shared file system" in running.log()

    def work() -> None:
        running.until("all rows", lambda: len(delivered(out, "t")) >= ROWS)
        late.start()
        running.until("the refusal", refused)

    with cluster.without(late):
        running.during(spark, work)
    assert not list(cluster.first.rglob(".cdc-probe-*"))
