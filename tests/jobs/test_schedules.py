"""Schedules: every run is started once, and what is done about its end."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa
from cdc_testing.stored import DEFINITION, dropped
from hypothesis import given
from hypothesis import strategies as st

from cdc_core.changefeeds.service import Changefeeds
from cdc_core.errors import ConfigError
from cdc_core.jobs.schedules import RETRY_S, Schedules, decide, run_name
from cdc_core.locality import Locality
from cdc_core.store.job_tables import JOBS, DatabaseNow
from cdc_core.store.job_values import FINISHED, FOLLOWING, JobRecord
from cdc_core.store.progress import ProgressStore
from cdc_core.store.schedule_values import ScheduledRun, ScheduleRecord
from cdc_core.store.schedules import SCHEDULE_RUNS, SCHEDULES

DAY_S = 86_400.0
NIGHTLY = ScheduleRecord(
    name="nightly", definition=DEFINITION, locality=Locality(), owner="ann", cron="0 0 1 1 *", time_zone="UTC"
)
"""Due by itself once a year."""


def create(store: ProgressStore, **values: Any) -> Schedules:
    schedules = Schedules(store)
    Changefeeds(store).create_schedule(replace(NIGHTLY, **values), at_once=True)
    return schedules


def make_due(store: ProgressStore) -> None:
    """Have the time of the next run come, and every job be named for an earlier one."""
    with store._database.transaction() as connection:
        connection.execute(sa.update(SCHEDULES).values(next_run=DatabaseNow() - 1))
        for table, column in ((JOBS, JOBS.c.name), (SCHEDULE_RUNS, SCHEDULE_RUNS.c.job)):
            for name in list(connection.execute(sa.select(column).where(column.not_like("%-before-%"))).scalars()):
                connection.execute(
                    sa.update(table).where(column == name).values({column: f"nightly-before-{name[-10:]}"})
                )


def end(store: ProgressStore, state: str, reason: str | None = None) -> None:
    """Have all jobs be in this state."""
    with store._database.transaction() as connection:
        connection.execute(sa.update(JOBS).values(state=state, reason=reason, finished=DatabaseNow()))


def running(store: ProgressStore) -> list[JobRecord]:
    return [job for job in store.jobs.all() if job.state not in FINISHED]


def test_a_run_is_a_job_of_the_schedule(store: ProgressStore) -> None:
    schedules = create(store)
    now = store.claims.overview().now
    [name] = schedules.tick()
    assert run_name("nightly", now - 60) < name <= run_name("nightly", now + 60)
    job = store.jobs.find(name)
    assert job is not None
    assert (job.schedule, job.owner, job.state) == ("nightly", "ann", "running")
    known = store.schedules.find("nightly")
    assert known.last_job == name
    assert known.next_run is not None
    assert known.next_run > now
    found = store.changefeeds.find(name)
    assert found is not None
    assert found.definition == DEFINITION
    assert schedules.tick() == []
    assert [run.job for run in store.schedules.all()[0].runs] == [name]


def test_two_nodes_never_start_a_run_twice(store: ProgressStore) -> None:
    create(store, on_previous_running="start")
    with ThreadPoolExecutor(4) as nodes:
        others = [ProgressStore(store.url) for _ in range(4)]
        for runs in range(1, 6):
            make_due(store)
            started = [name for names in nodes.map(lambda each: Schedules(each).tick(), others) for name in names]
            assert len(started) == 1
            with store._database.transaction() as connection:  # so that the next run has another name
                values = {JOBS.c.name: f"nightly-before-{runs}"}
                connection.execute(sa.update(JOBS).where(JOBS.c.name == started[0]).values(values))
                job = {SCHEDULE_RUNS.c.job: f"nightly-before-{runs}"}
                connection.execute(sa.update(SCHEDULE_RUNS).where(SCHEDULE_RUNS.c.job == started[0]).values(job))
            assert len(store.jobs.all()) == runs
        for other in others:
            other.close()


def test_a_change_by_another_node_is_not_made_again(store: ProgressStore) -> None:
    create(store)
    now, [known] = store.schedules.due()
    change = decide(now, known)
    assert change is not None
    assert store.schedules.change(known, change)
    assert not store.schedules.change(known, change)
    assert len(store.jobs.all()) == 1
    Changefeeds(store).drop_schedule("nightly")
    create(store, cron="@daily")
    assert not store.schedules.change(known, change), "it is another one of the same name"


def test_wait_starts_the_next_run_when_the_one_before_has_ended(store: ProgressStore) -> None:
    schedules = create(store, on_previous_running="wait")
    schedules.tick()
    make_due(store)
    version = store.schedules.find("nightly").version
    assert schedules.tick() == []
    assert store.schedules.find("nightly").version == version, "nothing is written while it waits"
    end(store, "succeeded")
    assert len(schedules.tick()) == 1


def test_skip_leaves_out_a_run_while_the_one_before_is_paused(store: ProgressStore) -> None:
    schedules = create(store, on_previous_running="skip")
    [first] = schedules.tick()
    Changefeeds(store).pause(first, "maintenance")
    make_due(store)
    assert schedules.tick() == []
    known = store.schedules.find("nightly")
    assert known.next_run is not None
    assert known.next_run > store.claims.overview().now
    assert str(known.reason).endswith(" was skipped: " + store.jobs.all()[0].name + " is paused")
    end(store, "succeeded")
    assert schedules.tick() == []
    assert store.schedules.find("nightly").reason is None


def test_start_starts_another_run_beside_the_one_before(store: ProgressStore) -> None:
    schedules = create(store, on_previous_running="start")
    schedules.tick()
    make_due(store)
    assert len(schedules.tick()) == 1
    assert len(running(store)) == 2


@pytest.mark.parametrize("policy", ["retry", "reschedule", "pause"])
def test_a_failed_run_is_followed_by_what_the_schedule_says(store: ProgressStore, policy: Any) -> None:
    schedules = create(store, on_execution_failure=policy)
    [name] = schedules.tick()
    planned = store.schedules.find("nightly").next_run
    assert planned is not None
    end(store, "failed", "no such table")
    assert schedules.tick() == []
    known = store.schedules.find("nightly")
    assert known.reason == f"{name} failed: no such table"
    job = store.jobs.find(name)
    assert job is not None
    if policy == "pause":
        assert known.next_run is None
        assert job.state == "failed", "a person looks"
        return
    assert job.state == "failed"
    if policy == "retry":
        assert known.next_run is not None
        assert 0 < known.next_run - store.claims.overview().now <= RETRY_S
    else:
        assert known.next_run == planned
    assert store.schedules.all()[0].runs == []


def test_the_next_run_takes_the_place_of_one_that_failed(store: ProgressStore) -> None:
    schedules = create(store, on_execution_failure="reschedule")
    [name] = schedules.tick()
    end(store, "failed", "no such table")
    schedules.tick()
    make_due(store)
    assert len(schedules.tick()) == 1
    job = store.jobs.find(f"nightly-before-{name[-10:]}")
    assert job is not None
    assert (job.state, job.reason) == (
        "cancel-requested",
        "schedule 'nightly' runs again; it had failed: no such table",
    )


def test_a_canceled_run_has_not_failed(store: ProgressStore) -> None:
    schedules = create(store, on_execution_failure="pause")
    schedules.tick()
    end(store, "canceled")
    schedules.tick()
    known = store.schedules.find("nightly")
    assert (known.reason, known.next_run is None) == (None, False)
    assert store.schedules.all()[0].runs == []


@pytest.mark.parametrize("taken", [False, True], ids=["", "`cdc run` has taken its name"])
def test_a_run_that_is_forgotten_has_ended(store: ProgressStore, taken: bool) -> None:
    schedules = create(store)
    [name] = schedules.tick()
    dropped(store, name)
    if taken:
        store.changefeeds.register(name, DEFINITION)
    make_due(store)
    assert len(schedules.tick()) == 1


@pytest.mark.parametrize("policy", ["retry", "reschedule", "pause"])
def test_a_run_that_cannot_be_created_has_failed(store: ProgressStore, policy: Any) -> None:
    schedules = create(store, on_execution_failure=policy)
    with store._database.transaction() as connection:
        connection.execute(sa.update(SCHEDULES).values(locality="region=eu"))
    assert schedules.tick() == []
    known = store.schedules.find("nightly")
    assert str(known.reason).startswith("no run could be started: changefeed 'nightly-")
    assert "no node matches execution_locality 'region=eu'" in str(known.reason)
    assert store.jobs.all() == []
    assert (known.next_run is None) == (policy == "pause")
    assert known.last_job is None


def test_a_schedule_whose_time_zone_is_unknown_here_is_paused_and_others_go_on(store: ProgressStore) -> None:
    schedules = create(store)
    with store._database.transaction() as connection:
        connection.execute(sa.update(SCHEDULES).values(time_zone="Mars/Olympus"))
    create(store, name="other")
    assert [name.partition("-")[0] for name in schedules.tick()] == ["other"]
    known = store.schedules.find("nightly")
    assert known.next_run is None
    assert "there is no time zone 'Mars/Olympus'" in str(known.reason)


def test_a_paused_schedule_starts_nothing_until_it_is_resumed(store: ProgressStore) -> None:
    schedules = create(store)
    Changefeeds(store).pause_schedule("nightly", "holidays")
    with pytest.raises(ConfigError, match="schedule 'nightly' is already paused"):
        Changefeeds(store).pause_schedule("nightly", "holidays")
    assert schedules.tick() == []
    assert store.schedules.find("nightly").reason == "holidays"
    resumed = Changefeeds(store).resume_schedule("nightly")
    assert resumed.reason is None
    assert resumed.next_run is not None
    assert resumed.next_run > store.claims.overview().now, "what was due during the pause is not made up for"
    with pytest.raises(ConfigError, match="schedule 'nightly' is not paused"):
        Changefeeds(store).resume_schedule("nightly")


def test_a_dropped_schedule_leaves_its_jobs(store: ProgressStore) -> None:
    schedules = create(store)
    [name] = schedules.tick()
    with pytest.raises(ConfigError, match="schedule 'nightly' already exists"):
        create(store)
    Changefeeds(store).drop_schedule("nightly")
    assert store.schedules.all() == []
    assert store.jobs.find(name) is not None
    with pytest.raises(ConfigError, match="there is no schedule 'nightly'; there are none"):
        Changefeeds(store).drop_schedule("nightly")


def test_a_first_run_in_the_past_is_refused(store: ProgressStore) -> None:
    with pytest.raises(ConfigError, match=r"the first run at 1970-01-01 00:00:09 UTC is in the past"):
        Changefeeds(store).create_schedule(replace(NIGHTLY, next_run=9.0))


def test_nothing_due_is_one_statement_of_reading(store: ProgressStore) -> None:
    schedules = create(store)
    schedules.tick()
    statements: list[str] = []
    sa.event.listen(store._database._opened(), "before_cursor_execute", lambda *args: statements.append(args[2]))
    schedules.tick()
    assert [text.split()[0] for text in statements if not text.startswith("BEGIN")] == ["SELECT"]


STATES = st.sampled_from([None, *sorted(FOLLOWING)])


@given(
    now=st.floats(0, 4e9),
    ahead_s=st.none() | st.floats(-3 * DAY_S, 3 * DAY_S),
    states=st.lists(STATES, max_size=3),
    previous=st.sampled_from(["start", "skip", "wait"]),
    failure=st.sampled_from(["retry", "reschedule", "pause"]),
    cron=st.sampled_from(["* * * * *", "30 2 * * *", "@weekly"]),
)
def test_what_is_decided_keeps_the_rules(
    now: float, ahead_s: float | None, states: list[Any], previous: Any, failure: Any, cron: str
) -> None:
    runs = [ScheduledRun(job=f"nightly-{number}", state=state) for number, state in enumerate(states)]
    next_run = None if ahead_s is None else now + ahead_s
    known = replace(
        NIGHTLY, cron=cron, next_run=next_run, runs=runs, on_previous_running=previous, on_execution_failure=failure
    )
    change = decide(now, known)
    failed = any(state in ("failed", "revert-failed") for state in states)
    over = {None, "failed", *FINISHED}
    busy = any(state not in over for state in states)
    if change is None:
        assert all(state not in over for state in states)
        assert next_run is None or next_run > now or (busy and previous == "wait")
        return
    assert change.ended == [run.job for run in runs if run.state in over]
    if next_run is None or (failed and failure == "pause"):
        assert (change.next_run, change.start) == (None, None)
        return
    assert change.next_run is not None
    if change.start is not None:
        assert next_run <= now
        assert not busy or previous == "start"
        assert change.next_run > now
    elif next_run > now:
        assert change.next_run <= next_run
        assert change.next_run == next_run or (failed and failure == "retry")
    settled = replace(known, next_run=change.next_run, runs=[run for run in runs if run.job not in change.ended])
    again = decide(now, settled)
    assert again is None, "deciding twice changes nothing more"
