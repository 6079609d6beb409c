"""A changefeed on the real Spark, when nothing goes wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from cdc_testing.dead_letter_rig import TOTAL, Rig
from cdc_testing.engine import abandon_runs, run_feed, stop_runs
from cdc_testing.kept_spark import KeptSpark

from cdc_core.engine.fencing import at_work
from cdc_core.telemetry.status import Status

if TYPE_CHECKING:
    Engine = Any

STEPS: dict[str, Any] = {"total": 2000, "rows_per_step": 500}


def delivered(engine: Engine) -> list[int]:
    return [n for event in engine.journal.of("rows") for _, n in event[4]]


@pytest.fixture(scope="module")
def finished(make_engine: Callable[[], Engine]) -> Engine:
    """A run with `once` that has ended: three steps, and one without rows for the rest of the clock."""
    engine = make_engine()
    assert engine.run(total=3000, rows_per_step=1000) == 0
    return engine


def test_a_run_with_once_ends_when_all_is_delivered_and_resolved(finished: Engine) -> None:
    assert finished.journal.faults(total=3000) == []
    assert finished.journal.resolved[-1] == 3001
    assert finished.saved == 3001
    assert finished.statuses[-1].rows == 3000


def test_without_faults_nothing_is_delivered_twice(finished: Engine) -> None:
    assert sorted(delivered(finished)) == list(range(1, 3001))


def test_sinks_stay_open_between_steps(finished: Engine) -> None:
    opened = [event[2] for event in finished.journal.of("open")]
    assert len(opened) == len(set(opened))  # no process opened a second one
    assert len(opened) < len(finished.journal.of("rows"))


def test_where_the_time_of_workers_goes_is_measured(finished: Engine) -> None:
    counters = finished.store.progress.load("t").counters
    assert counters["seconds.sink"] > 0
    assert counters["seconds.source"] > 0


@pytest.fixture(scope="module")
def ended_early(make_engine: Callable[[], Engine]) -> Engine:
    """A run that was stopped in its first step, and one that was abandoned in the second."""
    engine = make_engine()

    def stop(status: Status) -> None:
        if status.phase == "running" and engine.script.pending("hold-emit.held"):
            stop_runs()
        if status.phase == "stopping":
            (engine.directory / "hold-emit").unlink(missing_ok=True)

    def abandon(_: Status) -> None:
        if engine.script.pending("hold-emit.held"):
            abandon_runs()

    engine.script.order("hold-emit")
    assert engine.run(once=False, watch=stop, **STEPS) == 0
    assert (engine.saved, sorted(delivered(engine))) == (500, list(range(1, 501)))  # and no step was planned any more
    engine.script.order("hold-emit")
    assert engine.run(once=False, watch=abandon, **STEPS) == 130
    return engine


def test_a_stop_lets_the_running_step_end_and_an_abandoned_one_is_left_to_the_next_run(ended_early: Engine) -> None:
    engine = ended_early
    assert engine.saved == 500
    assert engine.journal.resolved[-1] == 500
    assert engine.journal.released == [500]


def test_a_run_waits_until_the_tasks_of_an_earlier_one_have_ended(ended_early: Engine) -> None:
    engine, ended = ended_early, []
    (engine.directory / "hold-emit").unlink()
    task = at_work(engine.directory / "t.tasks.lock", run_dir=engine.directory / "t.run" / "0")
    task.__enter__()

    def watch(status: Status) -> None:
        if status.phase == "waiting for tasks of an earlier attempt to end" and not ended:
            ended.append(engine.journal.epochs)
            task.__exit__(None, None, None)

    assert engine.run(watch=watch, **STEPS) == 0
    assert len(ended) == 1
    assert max(ended[0]) < max(engine.journal.epochs) == 3  # an abandoned task may deliver until it has ended
    assert engine.journal.faults(total=2000) == []


def test_bad_rows_become_dead_letters_and_are_sent_again_once_they_are_taken(
    tmp_path: Path, kept_spark: KeptSpark
) -> None:
    rig = Rig(tmp_path)
    rig.refuse(17, 205)
    with kept_spark.lent():
        assert run_feed(rig.feed(), store=rig.store, state_dir=tmp_path, once=True) == 0
    assert rig.waiting() == [(17, "encode"), (205, "encode")]
    assert sorted(rig.delivered()) == [n for n in range(1, TOTAL + 1) if n not in (17, 205)]
    rig.correct()
    result, missing = rig.replay()
    assert (len(result.sent), len(result.kept), missing) == (2, 0, 0)
    assert rig.delivered()[-2:] == [17, 205]


def test_a_query_is_evaluated_between_source_and_sink(engine: Engine) -> None:
    assert engine.run(total=1000, query="SELECT id, n * 10 AS n FROM counter WHERE n % 2 = 0") == 0
    assert sorted(delivered(engine)) == list(range(20, 10_001, 20))


@pytest.mark.slow
def test_order_inside_a_slice_survives_batches_larger_than_spark_rows(engine: Engine) -> None:
    total = 400_000
    assert engine.run(total=total, rows_per_step=total, batch_rows=total, slices=1) == 0
    first, *_ = engine.journal.of("rows")
    assert [n for _, n in first[4]] == list(range(1, total + 1))
