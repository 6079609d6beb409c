"""Jobs: any order of commands, adoptions, settlements and deaths of nodes leaves one runner at a time, and sense."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest
from cdc_testing.stored import DEFINITION, die, dropped, node, progress
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from cdc_core import Timestamp
from cdc_core.changefeeds.altering import configure
from cdc_core.changefeeds.service import Changefeeds
from cdc_core.errors import ConfigError, FencedError
from cdc_core.locality import Locality
from cdc_core.store.job_values import FINISHED, FOLLOWING, RESTING, REVERTED, Ended, Pending
from cdc_core.store.progress import ProgressStore

ENDINGS: tuple[Ended, ...] = ("stopped", "succeeded", "failed", "paused", "reverted", "not reverted")


@pytest.fixture
def store(url: str) -> Iterator[ProgressStore]:
    with closing(ProgressStore(url)) as store:
        yield store


def create(store: ProgressStore, name: str = "orders", locality: str = "") -> None:
    store.jobs.create(name, DEFINITION, owner="ann", locality=Locality.parse(locality))


def states(store: ProgressStore, name: str = "orders") -> list[str]:
    return [event.state for event in store.jobs.events(name)]


def test_a_job_goes_through_its_states_with_a_history(store: ProgressStore) -> None:
    one = store.nodes.join(node("one"), lease_s=60)
    create(store)
    adopted = store.claims.adopt("orders", one)
    assert adopted is not None
    assert (adopted.epoch, adopted.clean, adopted.state) == (1, True, "running")
    assert Changefeeds(store).pause("orders", "maintenance").state == "pause-requested"
    assert store.claims.settle("orders", one, "stopped") == "paused"
    assert Changefeeds(store).resume("orders").state == "running"
    again = store.claims.adopt("orders", one)
    assert again is not None
    assert (again.epoch, again.clean) == (2, True)
    Changefeeds(store).cancel("orders", "no longer needed")
    assert store.claims.settle("orders", one, "stopped") == "reverting"
    assert store.claims.settle("orders", one, "reverted") == "canceled"
    assert states(store) == [
        "running",
        "running",
        "pause-requested",
        "paused",
        "running",
        "running",
        "cancel-requested",
        "reverting",
        "canceled",
    ]
    assert {event.node for event in store.jobs.events("orders")} == {None, "one"}


def test_a_reason_may_quote_what_no_database_holds(store: ProgressStore) -> None:
    one = store.nodes.join(node("one"), lease_s=60)
    create(store)
    assert store.claims.adopt("orders", one) is not None
    assert store.claims.settle("orders", one, "failed", "bad row: \0 \ud800 é") == "failed"
    job = store.jobs.find("orders")
    assert job is not None
    assert job.reason == store.jobs.events("orders")[-1].reason == store.events.read("orders")[-1].message
    assert job.reason == r"bad row: \x00 \ud800 é"


def test_a_job_is_adopted_once(store: ProgressStore) -> None:
    one, two = store.nodes.join(node("one"), lease_s=60), store.nodes.join(node("two"), lease_s=60)
    create(store)
    assert store.claims.adopt("orders", one) is not None
    assert store.claims.adopt("orders", two) is None
    die(store, one)
    taken = store.claims.adopt("orders", two)
    assert taken is not None
    assert (taken.epoch, taken.clean) == (2, False)
    assert store.claims.settle("orders", one, "stopped") is None


def test_an_expired_session_stays_expired(store: ProgressStore) -> None:
    one = store.nodes.join(node("one"), lease_s=60)
    assert store.nodes.renew(one.node_id, lease_s=60, problems={}) is not None
    die(store, one)
    assert store.nodes.renew(one.node_id, lease_s=60, problems={}) is None
    create(store)
    assert store.claims.adopt("orders", one) is None


def test_only_the_node_that_was_offered_a_job_adopts_it_while_it_lives(store: ProgressStore) -> None:
    one, two = store.nodes.join(node("one"), lease_s=60), store.nodes.join(node("two", "region=eu"), lease_s=60)
    create(store)
    assert store.claims.adopt("orders", one) is not None
    assert store.claims.settle("orders", one, "stopped", offer_to=two, offer_s=60) == "running"
    assert store.claims.adopt("orders", one) is None
    die(store, two)
    assert store.claims.adopt("orders", one) is not None


def test_a_job_of_nodes_is_not_run_by_a_command_and_the_other_way_round(store: ProgressStore) -> None:
    create(store)
    with pytest.raises(ConfigError, match=r"changefeed 'orders' is a job, which nodes run \(running\)"):
        store.changefeeds.register("orders", DEFINITION)
    one = store.nodes.join(node("one"), lease_s=60)
    adopted = store.claims.adopt("orders", one)
    assert adopted is not None
    assert store.changefeeds.register("orders", DEFINITION, epoch=adopted.epoch).epoch == adopted.epoch
    with pytest.raises(FencedError):
        store.changefeeds.register("orders", DEFINITION, epoch=adopted.epoch - 1)
    store.changefeeds.register("users", DEFINITION)
    assert store.jobs.find("users") is None
    assert store.claims.adopt("users", one) is None


def test_no_living_node_of_the_locality_is_said_at_once(store: ProgressStore) -> None:
    with pytest.raises(ConfigError, match=r"no node matches execution_locality 'region=eu': no node is alive"):
        create(store, locality="region=eu")
    store.nodes.join(node("one", "region=us,zone=a"), lease_s=60)
    with pytest.raises(ConfigError, match=r"the live nodes have the localities region=us,zone=a"):
        create(store, locality="region=eu")
    create(store, locality="zone=a")


@pytest.mark.parametrize("goes_on", ["resume", "alter", "restart", "cancel", "stop"])
def test_a_job_that_failed_keeps_its_position_and_does_what_people_say(store: ProgressStore, goes_on: str) -> None:
    one = store.nodes.join(node("one"), lease_s=60)
    create(store)
    adopted = store.claims.adopt("orders", one)
    assert adopted is not None
    store.progress.save("orders", adopted.epoch, progress(50))
    assert store.claims.settle("orders", one, "failed", "the password is wrong") == "failed"
    assert store.claims.prune(retention_s=-1) == []
    failed = store.jobs.find("orders")
    assert failed is not None
    assert (failed.state, failed.reason, failed.node_id) == ("failed", "the password is wrong", None)
    with pytest.raises(ConfigError, match=r"is already a job \(failed\); continue it with `cdc resume orders`"):
        create(store)
    if goes_on == "cancel":
        assert Changefeeds(store).cancel("orders", "no longer needed").state == "cancel-requested"
        return
    if goes_on == "stop":
        stopped = Changefeeds(store).pause("orders", "stop", "stop")
        assert (stopped.state, stopped.paused_for) == ("paused", "stop")
        return
    if goes_on == "alter":
        wanted = Pending(definition=DEFINITION, locality=Locality(), initial_scans={}, why="a new sink")
        configure(store, "orders", wanted, before=DEFINITION)
    again = (
        Changefeeds(store).restart("orders", "again") if goes_on == "restart" else Changefeeds(store).resume("orders")
    )
    assert again.state == "running"
    assert store.claims.adopt("orders", one) is not None
    found = store.changefeeds.find("orders")
    assert found is not None
    assert found.high_water == Timestamp(50, 3)


def test_a_job_without_a_match_waits_and_runs_again_by_itself(store: ProgressStore) -> None:
    one = store.nodes.join(node("one"), lease_s=60)
    create(store)
    store.claims.adopt("orders", one)
    die(store, one)
    for _ in range(2):
        store.claims.await_match("orders", reason="no node matches")
    found = store.jobs.find("orders")
    assert found is not None
    assert (found.state, found.reason) == ("waiting", "no node matches")
    two = store.nodes.join(node("two"), lease_s=60)
    assert store.claims.adopt("orders", two) is None
    store.claims.end_wait("orders")
    adopted = store.claims.adopt("orders", two)
    assert adopted is not None
    assert (adopted.state, adopted.clean) == ("running", False)
    assert states(store) == ["running", "running", "waiting", "running", "running"]


def test_a_finished_job_is_forgotten_in_time_and_its_name_is_free(store: ProgressStore) -> None:
    one = store.nodes.join(node("one"), lease_s=60)
    create(store)
    store.claims.adopt("orders", one)
    store.claims.settle("orders", one, "succeeded")
    assert store.claims.prune(retention_s=3600) == []
    first = store.changefeeds.find("orders")
    create(store)
    second = store.changefeeds.find("orders")
    assert first is not None
    assert second is not None
    assert first.feed_id != second.feed_id
    assert first.epoch < second.epoch, "what is left of the first one stays fenced"
    store.claims.adopt("orders", one)
    store.claims.settle("orders", one, "succeeded")
    assert store.claims.prune(retention_s=-1) == ["orders"]
    assert store.changefeeds.find("orders") is None


def test_the_history_of_a_job_is_kept_as_long_as_a_finished_job(store: ProgressStore) -> None:
    create(store)
    store.claims.prune(retention_s=3600)
    assert states(store) == ["running"]
    store.claims.prune(retention_s=-1)
    assert states(store) == []
    assert store.jobs.find("orders") is not None


def test_a_job_that_has_left_something_at_its_source_is_not_forgotten(store: ProgressStore) -> None:
    one = store.nodes.join(node("one"), lease_s=60)
    create(store)
    Changefeeds(store).cancel("orders", "no longer needed")
    store.claims.adopt("orders", one)
    assert store.claims.settle("orders", one, "stopped") == "reverting"
    assert store.claims.settle("orders", one, "not reverted", "the source is away") == "revert-failed"
    assert store.claims.prune(retention_s=-1) == []
    with pytest.raises(ConfigError, match=r"what it created at its source still exists; .* `cdc cancel orders`"):
        create(store)
    Changefeeds(store).cancel("orders", "the source is back")
    store.claims.adopt("orders", one)
    store.claims.settle("orders", one, "stopped")
    assert store.claims.settle("orders", one, "reverted") == "canceled"
    create(store)


def test_a_node_has_only_the_jobs_of_its_owners(store: ProgressStore) -> None:
    one = store.nodes.join(replace(node("one"), owners=("bob", "eve")), lease_s=60)
    assert store.nodes.living()[0].owners == ("bob", "eve")
    create(store)
    assert store.claims.adopt("orders", one) is None
    Changefeeds(store).set_owner("orders", "bob")
    assert store.claims.adopt("orders", one) is not None


def test_a_job_that_nobody_can_revert_ends_and_is_fenced(store: ProgressStore) -> None:
    one, two = store.nodes.join(node("one"), lease_s=60), store.nodes.join(node("two"), lease_s=60)
    create(store)
    adopted = store.claims.adopt("orders", one)
    assert adopted is not None
    Changefeeds(store).cancel("orders", "no longer needed")
    assert not store.claims.leave_unreverted("orders", two, "one has it")
    die(store, one)
    assert store.claims.leave_unreverted("orders", two, "no plugin")
    assert not store.claims.leave_unreverted("orders", two, "no plugin")
    found = store.jobs.find("orders")
    assert found is not None
    assert (found.state, found.reason, found.node_id) == ("revert-failed", "no plugin", None)
    assert states(store)[-3:] == ["cancel-requested", "reverting", "revert-failed"]
    with pytest.raises(FencedError):
        store.changefeeds.begin_attempt("orders", after=adopted.epoch)
    assert store.claims.settle("orders", one, "stopped") is None
    assert Changefeeds(store).cancel("orders", "again").state == "cancel-requested"


def test_two_nodes_of_a_name_do_not_live_together(store: ProgressStore) -> None:
    one = store.nodes.join(node("one"), lease_s=60)
    with pytest.raises(ConfigError, match=r"a node 'one' is alive on here \(process 1\)"):
        store.nodes.join(
            node("one"), lease_s=60
        )  # its host and its directory say nothing: a container's may be like these
    again = store.nodes.join(node("one"), lease_s=60, former=one.node_id)
    assert store.nodes.renew(one.node_id, lease_s=60, problems={}) is None
    assert store.nodes.renew(again.node_id, lease_s=60, problems={"orders": "no plugin"}) is not None
    with pytest.raises(ConfigError, match=r"a node 'one' is alive on here"):
        store.nodes.join(node("one"), lease_s=60, former=one.node_id)
    with pytest.raises(ConfigError, match=r"there is no live node 'two'.*; live nodes: one"):
        Changefeeds(store).drain("two")
    assert Changefeeds(store).drain("one").draining
    create(store)
    assert store.claims.adopt("orders", again) is None


class _Nodes(RuleBasedStateMachine):
    """Three nodes and two jobs, in any order."""

    store: ProgressStore
    nodes = st.integers(0, 2)
    jobs = st.sampled_from(["orders", "users"])

    @initialize()
    def begin(self) -> None:
        for name in ("orders", "users"):
            dropped(self.store, name)
        for session in self.store.nodes.living():
            self.store.nodes.leave(session.node_id)
        self.sessions = [self.store.nodes.join(node(f"n{number}"), lease_s=600) for number in range(3)]
        self.dead: set[str] = set()
        self.ran: dict[str, int] = {}

    @rule(name=jobs)
    def create(self, name: str) -> None:
        try:
            create(self.store, name)
        except ConfigError:
            found = self.store.jobs.find(name)
            assert found is not None
            assert found.state not in REVERTED
        else:
            self.ran.pop(name, None)

    @rule(name=jobs, what=st.sampled_from(["pause", "resume", "cancel"]))
    def command(self, name: str, what: str) -> None:
        before = self.store.jobs.find(name)
        try:
            if what == "pause":
                after = Changefeeds(self.store).pause(name, "asked for")
            else:
                after = (
                    Changefeeds(self.store).resume(name)
                    if what == "resume"
                    else Changefeeds(self.store).cancel(name, "asked for")
                )
        except ConfigError:
            return
        assert before is not None
        assert after.state == before.state or after.state in FOLLOWING[before.state]

    @rule(name=jobs, number=nodes)
    def adopt(self, name: str, number: int) -> None:
        before = self.store.jobs.find(name)
        adopted = self.store.claims.adopt(name, self.sessions[number])
        if adopted is None:
            return
        assert before is not None
        assert before.node is None
        assert self.sessions[number].node_id not in self.dead
        assert adopted.epoch > self.ran.get(name, 0)
        self.ran[name] = adopted.epoch

    @rule(name=jobs, number=nodes, ended=st.sampled_from(ENDINGS))
    def settle(self, name: str, number: int, ended: Ended) -> None:
        before = self.store.jobs.find(name)
        mine = before is not None and before.node_id == self.sessions[number].node_id
        if ended in ("reverted", "not reverted") and (before is None or before.state != "reverting"):
            return
        after = self.store.claims.settle(name, self.sessions[number], ended)
        assert (after is not None) == mine
        if before is not None and after is not None:
            assert after == before.state or after in FOLLOWING[before.state]

    @rule(name=jobs, matches=st.booleans())
    def look_for_a_match(self, name: str, matches: bool) -> None:
        if matches:
            self.store.claims.end_wait(name)
        else:
            self.store.claims.await_match(name, reason="no node matches")

    @rule(number=nodes)
    def die(self, number: int) -> None:
        die(self.store, self.sessions[number])
        self.dead.add(self.sessions[number].node_id)

    @rule(number=nodes)
    def come_back(self, number: int) -> None:
        former = self.sessions[number].node_id
        self.sessions[number] = self.store.nodes.join(node(f"n{number}"), lease_s=600, former=former)

    @invariant()
    def a_job_that_rests_has_no_node(self) -> None:
        for job in self.store.jobs.all():
            if job.state in {"waiting", *RESTING, *FINISHED}:
                assert job.node_id is None
            assert (job.finished is not None) == (job.state in FINISHED)


def test_any_order_of_events_keeps_the_rules(store: ProgressStore) -> None:
    machine = type("Machine", (_Nodes,), {"store": store})
    examples = 8 if store.url.startswith("sqlite") else 3  # the same statements take longer there
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        machine,
        settings=settings(
            max_examples=examples, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
