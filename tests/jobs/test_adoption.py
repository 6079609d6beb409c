"""Which node adopts which job: everything that some node can run is run soon, by one that may, and shared fairly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from types import SimpleNamespace
from typing import Any

from cdc_testing.stored import node as joining
from hypothesis import given
from hypothesis import strategies as st

from cdc_core.jobs.adoption import choose, successor, surplus
from cdc_core.jobs.running_jobs import Balance
from cdc_core.locality import Locality
from cdc_core.store.job_values import JobRecord, NodeRecord, Overview

PLACES = ("", "region=a", "region=b", "region=a,zone=1", "region=a,zone=2")
OFFER_S = 10.0
PLENTY = 99


def node(name: str, locality: str = "", *, max_jobs: int = PLENTY, draining: bool = False) -> NodeRecord:
    return replace(joining(name, locality), node_id=name, max_jobs=max_jobs, draining=draining)


def job(name: str, locality: str = "", state: str = "running", **values: object) -> JobRecord:
    return JobRecord(name=name, state=state, owner="ann", created=0.0, locality=Locality.parse(locality), **values)  # type: ignore[arg-type]


class Cluster:
    """Jobs and nodes as the store has them, and the polls of the nodes."""

    def __init__(self, nodes: Sequence[NodeRecord], jobs: Sequence[JobRecord]) -> None:
        self.nodes = list(nodes)
        self.jobs = {each.name: each for each in jobs}
        self.now = 0.0
        self.unmatched: set[str] = set()
        self._free_for: dict[str, Counter[str]] = {each.node_id: Counter() for each in nodes}

    @property
    def overview(self) -> Overview:
        return Overview(now=self.now, jobs=[self.jobs[name] for name in sorted(self.jobs)], nodes=self.nodes)

    def load(self) -> Counter[str | None]:
        return Counter(each.node for each in self.jobs.values() if each.node is not None)

    def poll(self, me: NodeRecord) -> None:
        """Do what a node does at a poll; see that it does only what it may."""
        self.now += 0.25
        free = {each.name for each in self.jobs.values() if each.node is None}
        waits = self._free_for[me.node_id]
        for name in free:
            waits[name] += 1
        for name in waits.keys() - free:
            del waits[name]
        choices = choose(self.overview, me, may_run=lambda each: each.name not in me.problems, free_for=waits)
        for name in choices.adopt:
            wanted = self.jobs[name]
            assert wanted.node is None
            assert me.locality.matches(wanted.locality)
            assert name not in me.problems
            self.jobs[name] = replace(
                wanted, node_id=me.node_id, node=me.name, clean=False, offered_to=None, offered_until=None
            )
        assert self.load()[me.node_id] <= me.max_jobs
        self.unmatched |= set(choices.unmatched)

    def able(self, wanted: JobRecord) -> list[NodeRecord]:
        return [each for each in self.nodes if each.locality.matches(wanted.locality) and not each.draining]


@st.composite
def clusters(draw: st.DrawFn, *, limited: bool) -> Cluster:
    places = draw(st.lists(st.sampled_from(PLACES), min_size=1, max_size=5))
    most = st.integers(1, 4) if limited else st.just(PLENTY)
    nodes = [node(f"n{number}", place, max_jobs=draw(most)) for number, place in enumerate(places)]
    wanted = draw(st.lists(st.sampled_from(PLACES), max_size=15))
    return Cluster(nodes, [job(f"j{number:02}", place) for number, place in enumerate(wanted)])


@given(clusters(limited=False), st.data())
def test_two_polls_of_each_node_leave_no_job_that_one_matches(cluster: Cluster, data: st.DataObject) -> None:
    turns = data.draw(st.permutations(cluster.nodes * 2))
    for me in turns:
        cluster.poll(me)
    for each in cluster.jobs.values():
        assert (each.node is None) == (not cluster.able(each)), each
        assert (each.name in cluster.unmatched) == (not cluster.able(each)), each


@given(clusters(limited=True), st.data())
def test_a_job_stays_free_only_while_every_node_that_matches_is_full(cluster: Cluster, data: st.DataObject) -> None:
    for _ in range(4):
        for me in data.draw(st.permutations(cluster.nodes)):
            cluster.poll(me)
        cluster.now += OFFER_S  # no offer stands for longer
    load = cluster.load()
    for each in cluster.jobs.values():
        if each.node is None:
            assert all(load[able.name] == able.max_jobs for able in cluster.able(each)), each
        assert (each.name in cluster.unmatched) == (not cluster.able(each)), each


@given(st.integers(1, 5), st.integers(0, 20), st.integers(0, 10), st.data())
def test_nodes_that_are_alike_share_alike(many: int, running: int, paused: int, data: st.DataObject) -> None:
    waiting = [job(f"p{number:02}", state="paused") for number in range(paused)]
    cluster = Cluster(
        [node(f"n{number}") for number in range(many)], [job(f"r{number:02}") for number in range(running)] + waiting
    )
    for me in data.draw(st.permutations(cluster.nodes)):
        cluster.poll(me)
    load = cluster.load()
    assert load.total() == running
    assert max(load.values(), default=0) <= ceil(running / many)


@given(clusters(limited=True), st.data())
def test_the_jobs_of_a_node_that_dies_find_another(cluster: Cluster, data: st.DataObject) -> None:
    for _ in range(3):
        for me in cluster.nodes:
            cluster.poll(me)
        cluster.now += OFFER_S
    dead = cluster.nodes.pop(data.draw(st.integers(0, len(cluster.nodes) - 1)))
    for each in list(cluster.jobs.values()):
        if each.node == dead.name:
            cluster.jobs[each.name] = replace(each, node=None)
    for _ in range(4):
        for me in data.draw(st.permutations(cluster.nodes)):
            cluster.poll(me)
        cluster.now += OFFER_S
    load = cluster.load()
    for each in cluster.jobs.values():
        if each.node is None:
            assert all(load[able.name] == able.max_jobs for able in cluster.able(each)), each


@given(clusters(limited=True), st.data())
def test_a_successor_matches_and_has_room(cluster: Cluster, data: st.DataObject) -> None:
    for me in cluster.nodes:
        cluster.poll(me)
    leaving = data.draw(st.sampled_from(cluster.nodes))
    for each in cluster.jobs.values():
        load = Counter(other.node_id or other.offered_to for other in cluster.jobs.values() if other is not each)
        others = [
            able for able in cluster.able(each) if able.node_id != leaving.node_id and load[able.name] < able.max_jobs
        ]
        found = successor(cluster.overview, each, leaving=leaving)
        assert (found is None) == (not others)
        if found is not None:
            assert found in others
            assert load[found.name] == min(load[other.name] for other in others)


def test_a_job_is_left_to_a_node_that_has_what_it_needs() -> None:
    lacking = replace(node("n0"), problems={"j": "this node has no source 'x'"})
    cluster = Cluster([lacking, node("n1")], [job("j")])
    for _ in range(3):
        cluster.poll(lacking)
    assert cluster.jobs["j"].node is None
    assert successor(cluster.overview, cluster.jobs["j"], leaving=cluster.nodes[1]) is None
    for _ in range(2):
        cluster.poll(cluster.nodes[1])
    assert cluster.jobs["j"].node == "n1"


@given(clusters(limited=True), st.sampled_from(PLACES), st.data())
def test_jobs_move_to_a_node_that_joins_until_none_has_too_many(
    cluster: Cluster, place: str, data: st.DataObject
) -> None:
    for _ in range(3):
        for me in cluster.nodes:
            cluster.poll(me)
    cluster.nodes.append(node("new", place))
    moved = 0
    while moves := [
        (me, found) for me in cluster.nodes if (found := surplus(cluster.overview, me, sorted(cluster.jobs)))
    ]:
        me, (name, to) = data.draw(st.sampled_from(moves))
        before = cluster.load()
        assert to in cluster.able(cluster.jobs[name])
        assert before[to.name] + 1 < before[me.name]
        assert before[to.name] < to.max_jobs
        cluster.jobs[name] = replace(cluster.jobs[name], node_id=to.node_id, node=to.name)
        moved += 1
        assert moved <= len(cluster.jobs) * len(cluster.nodes), "they go back and forth"


def test_nodes_that_are_alike_end_up_alike() -> None:
    jobs = [job(f"j{number}", node_id="n0", node="n0") for number in range(7)]
    cluster = Cluster([node("n0"), node("n1"), node("n2")], jobs)
    while found := surplus(cluster.overview, cluster.nodes[0], sorted(cluster.jobs)):
        name, to = found
        cluster.jobs[name] = replace(cluster.jobs[name], node_id=to.node_id, node=to.name)
    assert sorted(cluster.load().values()) == [2, 2, 3]


def test_a_job_goes_only_to_a_node_that_takes_its_owner() -> None:
    picky = replace(node("n1"), owners=("bob",))
    cluster = Cluster([node("n0"), picky], [job(f"j{number}", node_id="n0", node="n0") for number in range(4)])
    assert surplus(cluster.overview, cluster.nodes[0], sorted(cluster.jobs)) is None
    assert successor(cluster.overview, cluster.jobs["j0"], leaving=cluster.nodes[0]) is None
    cluster.jobs["j0"] = replace(cluster.jobs["j0"], owner="bob")
    assert successor(cluster.overview, cluster.jobs["j0"], leaving=cluster.nodes[0]) is picky


def test_a_job_is_moved_only_when_it_has_run_for_some_polls() -> None:
    """Another one that runs already is not the reason to move it as soon as it has begun."""
    me, other = node("me"), node("other")
    jobs = [job(name, node_id="me", node="me") for name in ("a", "b", "c")]
    overview = Overview(now=0.0, jobs=jobs, nodes=[me, other])
    running: Any = {name: SimpleNamespace(is_movable=name == "c", moves_to=None) for name in ("a", "b", "c")}
    balance, moved = Balance(), []
    for poll in range(100):
        running["a"].is_movable = poll >= 20
        moved += [(poll, name) for name, _ in filter(None, [balance.next_move(overview, me, running)])]
        if moved:
            break
    assert moved == [(20 + 29, "a")]
