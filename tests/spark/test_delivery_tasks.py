"""A log that one task reads and several deliver, on the real Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import psutil
import pytest
from cdc_testing.engine import counter_feed, stop_runs
from cdc_testing.processes import command, kill
from cdc_testing.runs import eventually
from cdc_testing.scripted import Script
from cdc_testing.spark_cluster import JAVA_OPTIONS
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from cdc_core.engine.attempt_config import AttemptConfig
from cdc_core.errors import TerminalError, to_wire
from cdc_core.spark.query import RunningQuery, StartSessions, _open_rows
from cdc_core.telemetry.status import Status

if TYPE_CHECKING:
    Engine = Any

TASKS = 3
LOG: dict[str, Any] = {"slices": 1, "keys": 101, "options": {"delivery_tasks": TASKS}}
STEPS = {**LOG, "total": 10_000_000, "rows_per_step": 500, "batch_rows": 50}
PLACES = ["read-late", "emit", "flush", "before-report"]
"""Where workers are killed: while one reads the log, and while one of several emits, flushes, and after the flush."""


@pytest.fixture(scope="module")
def finished(make_engine: Callable[[], Engine]) -> Engine:
    engine = make_engine()
    assert engine.run(**LOG, total=60_000, rows_per_step=20_000, batch_rows=500) == 0
    return engine


def test_each_key_is_delivered_in_order_and_by_one_task_of_a_step(finished: Engine) -> None:
    assert finished.journal.faults(total=60_000) == []
    tasks: dict[tuple[int, int], set[int]] = {}
    for _, _, step, index, rows in finished.journal.of("rows"):
        numbers = [n for _, n in rows]
        assert numbers == sorted(numbers)
        for key in {key for key, _ in rows}:
            tasks.setdefault((step, key), set()).add(index)
    assert {len(indices) for indices in tasks.values()} == {1}


def test_all_tasks_deliver_a_share_and_nothing_twice(finished: Engine) -> None:
    events = finished.journal.of("rows")
    assert Counter(index for _, _, step, index, _ in events if step == 0) == dict.fromkeys(range(TASKS), 1)
    assert sum(len(rows) for *_, rows in events) == 60_000
    assert min(len(rows) for _, _, step, _, rows in events if step == 0) > 20_000 / TASKS / 2


def test_the_files_of_exchanged_rows_are_removed_after_their_step(finished: Engine) -> None:
    eventually("files are gone", lambda: not [*finished.spark.directory.rglob("shuffle_*.data")])


def test_the_time_of_reading_is_counted_once(finished: Engine) -> None:
    counters = finished.store.progress.load("t").counters
    assert counters["rows"] == 60_000
    assert 0 < counters["seconds.source"] < counters["step/sum"]


def test_killed_workers_lose_nothing_and_reorder_nothing(engine: Engine) -> None:
    def kills() -> Iterator[None]:
        for place in PLACES:
            engine.script.order(place, "kill")
            while engine.script.pending(place):
                yield
            before = engine.saved
            while engine.saved <= before:
                yield
        stop_runs()

    def watch(_: Status) -> None:
        next(steps, None)

    steps = kills()
    assert engine.run(once=False, watch=watch, **STEPS) == 0
    assert engine.journal.faults(total=engine.saved) == []
    assert engine.journal.resolved == sorted(engine.journal.resolved)
    assert engine.journal.epochs == {1}, "a killed worker costs a task attempt"


def test_a_killed_reader_of_a_large_slice_costs_a_task_attempt(engine: Engine) -> None:
    engine.script.order("read-late", "kill")
    assert engine.run(**LOG, total=160_000, rows_per_step=160_000, batch_rows=8000) == 0
    assert engine.journal.faults(total=160_000) == []
    assert sum(len(rows) for *_, rows in engine.journal.of("rows")) == 160_000
    assert engine.journal.epochs == {1}


def test_on_one_host_no_more_tasks_deliver_than_the_slots_that_a_changefeed_has(
    session: SparkSession, script: Script
) -> None:
    feed = counter_feed(script.directory, options={"delivery_tasks": 7})
    feed = feed.for_attempt(feed_id="0" * 12, epoch=1, state="sqlite://", parallelism=2)
    config = AttemptConfig(feed=feed, state_dir=script.directory, run_dir=script.directory)
    with StartSessions(session).lent(evaluates=False) as own:
        plan = _open_rows(own, config)._jdf.queryExecution().analyzed().toString()
    assert plan.startswith("~Repartition 2, false\n")


def test_what_a_query_gives_is_delivered_by_several_in_order(engine: Engine) -> None:
    query = "SELECT id, n * 10 AS n FROM counter WHERE n % 2 = 0"
    assert engine.run(**LOG, total=20_000, rows_per_step=20_000, batch_rows=6000, query=query) == 0
    shares = [[n for _, n in rows] for _, _, step, _, rows in engine.journal.of("rows") if step == 0]
    assert [share == sorted(share) and len(share) > 1000 for share in shares] == [True] * TASKS
    assert sorted(n for share in shares for n in share) == list(range(20, 200_001, 20))


@pytest.mark.slow
def test_executors_that_are_lost_with_rows_to_deliver_cost_one_attempt_of_the_run(engine: Engine) -> None:
    spark = {
        "master": "local-cluster[2,1,1024]",
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": JAVA_OPTIONS,
    }

    def watch(_: Status) -> None:
        if engine.script.pending("hold-emit.held"):
            for process in psutil.Process().children(recursive=True):
                if "CoarseGrainedExecutorBackend" in command(process):
                    kill(process)
            (engine.directory / "hold-emit").unlink(missing_ok=True)
            (engine.directory / "hold-emit.held").unlink(missing_ok=True)

    engine.script.order("hold-emit")
    assert engine.run(watch=watch, own_spark=True, spark=spark, **LOG, total=2000, rows_per_step=1000) == 0
    assert engine.journal.faults(total=2000) == []
    assert max(engine.journal.epochs) == 2
    waits = [status.waiting_for for status in engine.statuses if status.waiting_for]
    assert any("rows that were read did not reach the tasks that deliver them" in wait for wait in waits), waits


def failure(text: str) -> Exception:
    return RunningQuery(Mock(**{"exception.return_value": StreamingQueryException(text)})).failure()


def test_rows_that_cannot_be_fetched_are_reported_with_the_reason_and_a_remedy() -> None:
    spark = (
        "has failed the maximum allowable number of times: 1. Most recent failure reason:\norg.apache.spark.shuffle."
    )
    text = str(failure(f"Job aborted: {spark}FetchFailedException: Failed to connect to /10.0.0.2:7079\n\tat org…"))
    assert "(Failed to connect to /10.0.0.2:7079); the step is repeated" in text
    assert "cannot reach its spark.blockManager.port" in text


def test_an_error_of_ours_comes_before_rows_that_cannot_be_fetched() -> None:
    ours = TerminalError("the host lacks a file")
    assert str(failure(f"FetchFailed(…) {to_wire(ours)}")) == "the host lacks a file"
