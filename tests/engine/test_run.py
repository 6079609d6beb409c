"""A run when nothing goes wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from cdc_testing.thread_host import ThreadEngine

TOTAL = 3000


@pytest.fixture(scope="module")
def finished(make_engine: Callable[[], ThreadEngine]) -> ThreadEngine:
    """A run with `once` that has ended: three steps, and one without rows for the rest of the clock."""
    engine = make_engine()
    assert engine.run(total=TOTAL, rows_per_step=1000) == 0
    return engine


def test_a_run_with_once_ends_when_all_is_delivered_and_resolved(finished: ThreadEngine) -> None:
    assert finished.journal.faults(total=TOTAL) == []
    assert finished.journal.resolved[-1] == TOTAL + 1
    assert finished.saved == TOTAL + 1


def test_without_faults_nothing_is_delivered_twice(finished: ThreadEngine) -> None:
    delivered = [n for event in finished.journal.of("rows") for _, n in event[4]]
    assert len(delivered) == len(set(delivered)) == TOTAL


def test_a_step_without_rows_carries_its_marks(finished: ThreadEngine) -> None:
    *_, last = (event for event in finished.journal.of("rows") if event[3] == 0)
    assert last[4] == []
    assert finished.journal.resolved[-1] == TOTAL + 1


def test_each_step_is_resolved_and_then_released_also_the_last(finished: ThreadEngine) -> None:
    turns = [event for event in finished.journal.events if event[0] in ("resolved", "release")]
    ends = [1000, 2000, 3000, 3001]
    expected = [turn for end in ends for turn in (["resolved", 1, end], ["release", end])]
    assert turns[: len(expected)] == expected
    assert turns[len(expected) :] in ([], [["resolved", 1, 3001]])


def test_a_run_goes_through_the_phases_that_the_status_names(finished: ThreadEngine) -> None:
    assert finished.phases == ["starting Spark", "warming up", "running", "stopping"]


def test_the_status_tells_how_far_it_is(finished: ThreadEngine) -> None:
    last = finished.statuses[-1]
    assert (last.rows, last.files) == (TOTAL, 8)
    assert last.high_water.wall == TOTAL + 1
    assert last.waiting_for is None


def test_the_scratch_of_a_run_is_for_its_user_alone(make_engine: Callable[[], ThreadEngine]) -> None:
    """Also in a state directory that others may read."""
    engine, modes = make_engine(), set()
    engine.directory.chmod(0o755)
    scratch = engine.directory / "t.run"
    assert engine.run(total=10, rows_per_step=10, before_step=lambda: modes.add(scratch.stat().st_mode & 0o777)) == 0
    assert modes == {0o700}


def test_a_run_leaves_no_scratch_behind(finished: ThreadEngine) -> None:
    left = {path.name for path in finished.directory.iterdir() if not path.name.startswith("progress.sqlite")}
    assert left == {"journal", "t.lock", "t.tasks.lock"}


def test_the_next_run_goes_on_where_the_last_one_ended(finished: ThreadEngine) -> None:
    before = len(finished.journal.events)
    assert finished.run(total=TOTAL + 500) == 0
    delivered = {n for event in finished.journal.events[before:] if event[0] == "rows" for _, n in event[4]}
    assert delivered == set(range(TOTAL + 2, TOTAL + 501))  # the first run's clock had passed TOTAL + 1
