"""What a node does about the jobs that it sees."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import pytest
from cdc_testing.stored import node as joining

from cdc_core.jobs.adoption import Choices, choose
from cdc_core.jobs.running_jobs import BackOff
from cdc_core.locality import Locality
from cdc_core.store.job_values import NOT_NOW, RUNNABLE, JobRecord, JobState, NodeRecord, Overview


def node(name: str, locality: str = "", *, max_jobs: int = 20, draining: bool = False) -> NodeRecord:
    return replace(joining(name, locality), node_id=name, max_jobs=max_jobs, draining=draining)


def job(state: JobState, locality: str = "") -> JobRecord:
    return JobRecord(name="orders", state=state, owner="ann", created=0.0, locality=Locality.parse(locality))


def choices(job: JobRecord, *nodes: NodeRecord, may_run: bool = True) -> Choices:
    """Return what the first node does about a job that has been free for some polls."""
    overview = Overview(now=0.0, jobs=[job], nodes=nodes)
    return choose(overview, nodes[0], may_run=lambda _: may_run, free_for={"orders": 2})


@pytest.mark.parametrize("state", sorted(set(get_args(JobState)) & RUNNABLE - {"running"}))
def test_a_job_that_is_to_end_does_not_wait_for_a_node_that_matches(state: JobState) -> None:
    found = choices(job(state, "region=eu"), node("us", "region=us"), node("leaving", "region=eu", draining=True))
    assert found == Choices(["orders"], [], [], [])


@pytest.mark.parametrize("state", ["cancel-requested", "reverting"])
def test_a_node_that_matches_comes_first(state: JobState) -> None:
    us, eu = node("us", "region=us"), node("eu", "region=eu")
    assert choices(job(state, "region=eu"), us, eu) == Choices([], [], [], [])
    assert choices(job(state, "region=eu"), eu, us) == Choices(["orders"], [], [], [])


def test_a_running_job_waits_for_a_node_that_matches() -> None:
    assert choices(job("running", "region=eu"), node("us", "region=us")) == Choices([], ["orders"], [], [])


def test_any_node_notes_that_a_job_is_paused_and_only_an_able_one_drops_its_history() -> None:
    assert choices(job("pause-requested"), node("us"), may_run=False).adopt == ["orders"]
    assert choices(job("reverting"), node("us"), may_run=False).adopt == []


@pytest.mark.parametrize("state", ["cancel-requested", "reverting"])
def test_a_node_that_is_full_ends_jobs_all_the_same(state: JobState) -> None:
    running = JobRecord(name="users", state="running", owner="ann", created=0.0, node_id="us", node="us")
    us = node("us", max_jobs=1)
    for ending, adopted in ((job(state), ["orders"]), (job("running"), [])):
        overview = Overview(now=0.0, jobs=[ending, running], nodes=[us])
        assert choose(overview, us, may_run=lambda _: True, free_for={"orders": 2}).adopt == adopted


def test_a_job_that_was_offered_to_a_node_is_its_own_for_a_moment() -> None:
    running = JobRecord(name="users", state="running", owner="ann", created=0.0, node_id="one", node="one")
    one, two = node("one"), node("two")
    offered = replace(job("running"), offered_to="one", offered_until=10.0)

    def adopted(me: NodeRecord, offered: JobRecord, *nodes: NodeRecord, now: float = 9.0) -> list[str]:
        overview = Overview(now=now, jobs=[offered, running], nodes=nodes)
        return list(choose(overview, me, may_run=lambda _: True, free_for={}).adopt)

    assert adopted(one, replace(offered, offered_to=None), one, two) == []  # it has its share already
    assert adopted(one, offered, one, two) == ["orders"]
    assert adopted(two, offered, one, two) == []
    assert adopted(one, offered, one, two, now=10.0) == []
    assert adopted(two, offered, one, two, now=10.0) == ["orders"]
    assert adopted(two, offered, two) == ["orders"]
    full = replace(one, max_jobs=1)
    assert (adopted(full, offered, full, two), adopted(two, offered, full, two)) == ([], [])
    for unable in (
        replace(one, draining=True),
        replace(one, owners=["bob"]),
        replace(one, problems={"orders": "this node has no sink"}),
        replace(one, locality=Locality.parse("region=us")),
    ):
        wanted = replace(offered, locality=Locality.parse("region=eu" if unable.locality.tiers else ""))
        there = replace(two, locality=wanted.locality)
        assert adopted(there, wanted, unable, there) == ["orders"]


def test_a_wait_for_a_match_ends_with_a_match() -> None:
    waiting = job("waiting", "region=eu")
    us, eu = node("us", "region=us"), node("eu", "region=eu", max_jobs=0)
    assert choices(waiting, us) == Choices([], [], [], [])
    assert choices(waiting, us, eu) == Choices([], [], ["orders"], [])


@pytest.mark.parametrize("state", ["cancel-requested", "reverting"])
def test_what_no_living_node_can_revert_is_left(state: JobState) -> None:
    us, eu = node("us", "region=us"), node("eu", "region=eu")
    lacks: dict[str, Any] = {"problems": {"orders": "no plugin"}}
    wanted = job(state, "region=eu")
    assert choices(wanted, replace(eu, **lacks), replace(us, **lacks)) == Choices([], [], [], ["orders"])
    assert choices(wanted, replace(eu, **lacks), replace(us, owners=("bob",))) == Choices([], [], [], ["orders"])
    assert choices(wanted, replace(eu, **lacks), replace(us, draining=True)) == Choices([], [], [], ["orders"])
    assert choices(wanted, us, replace(eu, **lacks)) == Choices(["orders"], [], [], [])
    assert choices(wanted, replace(us, **lacks), eu) == Choices([], [], [], [])
    failed: dict[str, Any] = {"problems": {"orders": f"{NOT_NOW}no memory"}}
    assert choices(wanted, replace(us, **lacks), replace(eu, **failed)) == Choices([], [], [], [])
    assert choices(job("running"), replace(us, **lacks)).unreverted == []


def test_a_job_that_fails_again_and_again_waits_longer_each_time_and_a_minute_at_most() -> None:
    now = [100.0]
    back_off = BackOff(lambda: now[0])
    assert back_off.why_not("a") is None
    waits = []
    for _ in range(8):
        back_off.ended("a", "stopped", "its source is gone")
        begun = now[0]
        while back_off.why_not("a") == "its source is gone":
            now[0] += 1.0
        waits.append(now[0] - begun)
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]
    assert back_off.why_not("b") is None
    back_off.ended("a", "stopped", "its source is gone")
    back_off.ended("a", "stopped", None)  # as it was told to
    assert back_off.why_not("a") is None
