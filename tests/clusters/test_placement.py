"""Executors with localities: each reads the ranges that are near, and every row arrives once and in order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from cdc_conformance.simulated import SimulatedDatabase
from cdc_testing.files import delivered
from cdc_testing.kept_spark import KeptSpark
from cdc_testing.runs import Feed
from cdc_testing.spark_cluster import LOCALITIES, SparkCluster

pytestmark = pytest.mark.slow

ROWS, RANGE, ROUNDS = 160, 10, 3


@pytest.fixture
def db(cluster: SparkCluster, tmp_path: Path) -> SimulatedDatabase:
    """A node in each region, both with replicas of all ranges, and the lease of every other range."""
    db = SimulatedDatabase.create(cluster.shared / tmp_path.name, seed=3, localities=LOCALITIES)
    db.create_table("t")
    for id_ in range(ROWS):
        db.put("t", id=id_, n=0)
    for number, start in enumerate(range(0, ROWS, RANGE)):
        if number:
            db.split("t", at=start)
        db.transfer_lease("t", at=start, to=number % 2 + 1)
    return db


def test_executors_read_near_ranges_and_every_row_arrives_once_and_in_order(
    spark: KeptSpark, db: SimulatedDatabase, out: Path, feed: Callable[..., Feed]
) -> None:
    running = feed(db, out, scan_chunk_rows=RANGE)

    def work() -> None:
        for n in range(1, ROUNDS + 1):
            running.until("the rows of the round", lambda n=n: len(delivered(out, "t")) >= n * ROWS)
            with db.transaction() as txn:
                for id_ in range(ROWS):
                    txn.put("t", id=id_, n=n)
        running.until("all rows", lambda: len(delivered(out, "t")) >= (ROUNDS + 1) * ROWS)

    running.during(spark, work)
    rows = delivered(out, "t")
    values = {id_: [row["after"]["n"] for row in rows if row["key"] == [id_]] for id_ in range(ROWS)}
    assert values == {id_: list(range(ROUNDS + 1)) for id_ in range(ROWS)}

    reads = db.served()
    assert len({(read.span, read.after, read.upto) for read in reads}) == len(reads), "no slice was read twice"
    assert {(read.host, str(read.locality)) for read in reads} == {
        ("127.0.0.2", "region=eu"),
        ("127.0.0.3", "region=us"),
    }
    near = Counter(read.locality == read.wanted for read in reads)
    assert near[True] >= 0.8 * len(reads), near  # about half where executors take any slice
    followers = [read for read in reads if read.after is not None]
    assert all(read.node_locality == read.locality for read in followers), "the replica of the reader's own region"
