"""A changefeed on the real Spark, when nothing goes wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    Engine = Any

TOTAL = 3000


@pytest.fixture(scope="module")
def finished(make_engine: Callable[[], Engine]) -> Engine:
    """A run with `once` that has ended: three steps, and one without rows for the rest of the clock."""
    engine = make_engine()
    assert engine.run(total=TOTAL, rows_per_step=1000, own_spark=True) == 0
    return engine


def test_a_run_with_once_ends_when_all_is_delivered_and_resolved(finished: Engine) -> None:
    assert finished.journal.faults(total=TOTAL) == []
    assert finished.journal.resolved[-1] == TOTAL + 1
    assert finished.saved == TOTAL + 1


def test_without_faults_nothing_is_delivered_twice(finished: Engine) -> None:
    delivered = [n for event in finished.journal.of("rows") for _, n in event[4]]
    assert len(delivered) == len(set(delivered)) == TOTAL


def test_a_step_without_rows_carries_its_marks(finished: Engine) -> None:
    *_, last = (event for event in finished.journal.of("rows") if event[3] == 0)
    assert last[4] == []
    assert finished.journal.resolved[-1] == TOTAL + 1


def test_each_step_is_resolved_and_then_released_also_the_last(finished: Engine) -> None:
    turns = [event for event in finished.journal.events if event[0] in ("resolved", "release")]
    ends = [1000, 2000, 3000, 3001]
    expected = [turn for end in ends for turn in (["resolved", 1, end], ["release", end])]
    assert turns[: len(expected)] == expected
    assert turns[len(expected) :] in ([], [["resolved", 1, 3001]])


def test_sinks_stay_open_between_steps(finished: Engine) -> None:
    opened = [event[2] for event in finished.journal.of("open")]
    assert len(opened) == len(set(opened))  # no process opened a second one
    assert len(opened) < len(finished.journal.of("rows"))


def test_a_run_goes_through_the_phases_that_the_status_names(finished: Engine) -> None:
    assert finished.phases == ["starting Spark", "warming up", "running", "stopping"]


def test_the_status_tells_how_far_it_is(finished: Engine) -> None:
    last = finished.statuses[-1]
    assert (last.rows, last.files) == (TOTAL, 8)
    assert last.high_water.wall == TOTAL + 1
    assert last.waiting_for is None


def test_a_run_leaves_no_scratch_behind(finished: Engine) -> None:
    """That it leaves no process either is tested where its JVM ends: in test_engine_processes.py."""
    left = {path.name for path in finished.directory.iterdir() if not path.name.startswith("progress.sqlite")}
    assert left - {"spark-home"} == {"journal", "t.lock", "t.tasks.lock", "t.spark.log", "t.spark.tmp"}


def test_the_next_run_goes_on_where_the_last_one_ended(finished: Engine) -> None:
    before = len(finished.journal.events)
    assert finished.run(total=TOTAL + 500) == 0
    delivered = {n for event in finished.journal.events[before:] if event[0] == "rows" for _, n in event[4]}
    assert delivered == set(range(TOTAL + 2, TOTAL + 501))  # the first run's clock had passed TOTAL + 1
