"""A changefeed on the real Spark whose processes are killed, and what Spark makes of a failure.

What the run itself makes of failures is in tests/engine/test_troubles.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from cdc_testing.engine import stop_runs
from pyspark import SparkContext

from cdc_core.options import Duration
from cdc_core.telemetry.status import Status

if TYPE_CHECKING:
    Engine = Any

STEPS: dict[str, Any] = {"total": 10_000_000, "rows_per_step": 500, "batch_rows": 50}
LARGE: dict[str, Any] = {"total": 160_000, "rows_per_step": 160_000, "batch_rows": 8000}
WORKERS = ["read-late", "emit", "flush", "before-report"]
"""Where workers are killed: while they read a slice, emit, flush, and after the flush."""
BUSY = "RetryableSinkError too many requests retry_after_s=1.5"
ORDERS = [
    *((place, "kill") for place in WORKERS),
    ("flush", BUSY),
    ("advance", "kill"),  # the planner
    ("resolved", "kill"),  # the coordinator
]


def troubles(engine: Engine, epochs: list[int]) -> Iterator[None]:
    """Give the orders, one when a step was saved since the last one was obeyed, and kill the JVM; then stop the run.

    Note the epoch of each of those steps in *epochs*. Yields for the next status.
    """

    def await_step() -> Iterator[None]:
        before = engine.saved
        while engine.saved <= before:
            yield
        epochs.append(engine.store.changefeeds.find("t").epoch)

    for name, text in ORDERS:
        engine.script.order(name, text)
        while engine.script.pending(name):
            yield
        yield from await_step()
    engine.script.order("hold-emit")
    while not (engine.script.pending("hold-emit.held") and engine.statuses[-1].waiting_on == "sink 'journal'"):
        yield
    engine.spark.kill_jvm()
    (engine.directory / "hold-emit").unlink()
    yield from await_step()
    stop_runs()


@pytest.fixture(scope="module")
def killed(make_engine: Callable[[], Engine]) -> tuple[Engine, list[int]]:
    """A run in which everything was killed once, and the epochs after each of these troubles."""
    engine, epochs = make_engine(), []
    steps = troubles(engine, epochs)
    assert engine.run(once=False, watch=lambda _: next(steps, None), **STEPS) == 0
    assert len(epochs) == len(ORDERS) + 1
    return engine, epochs


def test_killed_processes_lose_nothing(killed: tuple[Engine, list[int]]) -> None:
    engine, _ = killed
    assert engine.journal.faults(total=engine.saved) == []
    assert engine.journal.resolved == sorted(engine.journal.resolved)


def test_a_killed_worker_costs_only_a_task_attempt(killed: tuple[Engine, list[int]]) -> None:
    _, epochs = killed
    assert epochs[: len(WORKERS)] == [1] * len(WORKERS)


def test_a_failure_and_a_killed_planner_coordinator_or_jvm_cost_one_attempt_of_the_run(
    killed: tuple[Engine, list[int]],
) -> None:
    engine, epochs = killed
    assert epochs[len(WORKERS) :] == [2, 3, 4, 5]
    assert engine.phases.count("waiting to retry") == 4


def test_the_wait_that_the_sink_asks_for_is_kept(killed: tuple[Engine, list[int]]) -> None:
    engine, _ = killed
    waits = [status.next_attempt_s for status in engine.statuses if status.waiting_for == "too many requests"]
    assert waits[0] == pytest.approx(1.5, abs=0.5)  # without it, 0.2 at most


def test_a_killed_jvm_is_replaced(killed: tuple[Engine, list[int]]) -> None:
    engine, _ = killed
    assert engine.phases.count("starting Spark") == 2
    assert [text for status in engine.statuses if (text := status.waiting_for) and "JVM is gone: it was killed" in text]


def test_nothing_is_published_of_a_slice_whose_reader_was_killed(engine: Engine) -> None:
    # Spark passes on what came before the death, in pieces of some 100 KB, and ends the writer's rows as if all were
    # well: most of these 80,000 rows reach the sink before the reader dies with the last batch in hand.
    engine.script.order("read-late", "kill")
    assert engine.run(**LARGE) == 0
    slices = [event for event in engine.journal.of("rows") if event[4]]
    assert [len(rows) for _, _, _, _, rows in slices] == [80_000] * 2
    assert engine.journal.epochs == {1}


@pytest.mark.slow
def test_a_sink_that_fails_early_in_a_large_slice_costs_one_attempt_of_the_run(engine: Engine) -> None:
    engine.script.order("emit", "RetryableSinkError busy")
    assert engine.run(**LARGE) == 0
    assert max(engine.journal.epochs) == 2
    assert engine.journal.faults(total=160_000) == []


@pytest.mark.slow
def test_a_step_that_ends_the_jvm_again_pauses_the_changefeed_and_names_the_memory(engine: Engine) -> None:
    killed = []

    def watch(status: Status) -> None:
        if status.phase == "paused":
            stop_runs()
        elif engine.script.pending("hold-emit.held"):
            gateway = SparkContext._gateway
            if gateway is not None and gateway.proc.poll() is None and gateway.proc.pid not in killed:
                killed.append(gateway.proc.pid)
                gateway.proc.kill()

    engine.script.order("hold-emit")
    options = {"on_error": "pause", "max_attempts": 2, "give_up_after": Duration(0.0)}
    assert engine.run(once=False, watch=watch, options=options, own_spark=True, **STEPS) == 0
    assert len(killed) == 2
    reason = engine.store.changefeeds.find("t").paused.reason
    assert re.fullmatch(
        r"the same step failed 2 times in \S+ s because Spark's JVM ended; it was killed \(SIGKILL\)\."
        r" If memory ran out, give this host or container more than its \S+ GB",
        reason,
    )
