"""Executors as processes of their own on the driver's host, which Spark itself starts."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from cdc_conformance.simulated import SimulatedDatabase
from cdc_testing.files import delivered
from cdc_testing.processes import command
from cdc_testing.runs import Feed
from cdc_testing.spark_cluster import JAVA_OPTIONS
from cdc_testing.strangers import listening

pytestmark = pytest.mark.slow

ROWS = 200


def secrets(run: psutil.Process) -> set[str]:
    """Return the secrets that executors of *run* have for the others."""
    found = set()
    for process in run.children(recursive=True):
        with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            found |= {value for name, value in process.environ().items() if name == "_SPARK_AUTH_SECRET"}
    return found


def test_a_local_cluster_delivers_every_row_writes_only_beside_the_state_and_answers_no_stranger(
    make_db: Callable[[Path], SimulatedDatabase], tmp_path: Path
) -> None:
    """It begins without executors, as their allocation is dynamic: it has to get its first one."""
    db = make_db(tmp_path / "db")
    out = tmp_path / "out"
    names = ("spark.dynamicAllocation.enabled", "spark.dynamicAllocation.shuffleTracking.enabled")
    spark = {
        "master": "local-cluster[2,1,1024]",
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": JAVA_OPTIONS,
        **dict.fromkeys(names, "true"),
    }
    with Feed(tmp_path, db.uri, ["t"], options={"scan_chunk_rows": 10}, spark=spark, sink=f"file://{out}") as feed:
        feed.start("--once")
        assert feed.process is not None
        run = psutil.Process(feed.process.pid)
        feed.until("an executor", lambda: bool(secrets(run)))
        assert {place.removeprefix("::ffff:") for place in listening(run.children(recursive=True)).values()} == {
            "127.0.0.1"
        }
        [secret] = secrets(run)
        assert len(secret) == 64
        assert not [words for words in map(command, psutil.process_iter()) if secret in words]
        assert feed.wait() == 0, feed.log_tail()
        assert re.search(r" (1 executor|2 executors) with \d task slot", feed.log()), feed.log()
        assert "checking executors" in feed.log()
    assert sorted(row["key"][0] for row in delivered(out, "t")) == list(range(ROWS))
    assert list((tmp_path / "state").glob("*.spark.tmp/spark-home/work/*"))
    assert subprocess.run(["grep", "-rlF", secret, tmp_path], capture_output=True).stdout == b""
