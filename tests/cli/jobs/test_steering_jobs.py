"""The commands that change a job or a node."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cdc_testing.command import Cdc
from cdc_testing.job_commands import created, ended, meanwhile, paused_job, until
from cdc_testing.scripted import CounterPlanner
from cdc_testing.stored import die, node

from cdc_core.changefeeds.service import Changefeeds
from cdc_core.store.progress import ProgressStore


def test_a_job_is_paused_resumed_and_canceled(store: ProgressStore, cdc: Cdc) -> None:
    one = created(store)
    assert cdc("pause", "orders", "--reason", "maintenance").out == "job 'orders': node one will pause it\n"
    ended(store, "stopped")
    assert cdc("pause", "orders", "--wait").out == "job 'orders' is paused\n"
    assert cdc("resume", "orders").out == "job 'orders' is resumed; a node will adopt it\n"
    assert cdc.json("pause", "orders")["reason"] == "requested by ann"
    Changefeeds(store).resume("orders")
    assert store.claims.adopt("orders", one) is not None
    assert cdc("cancel", "orders", "--yes").out == "job 'orders': node one will cancel it\n"
    ended(store, "stopped")
    ended(store, "reverted")
    assert cdc("cancel", "orders", "--yes", "--wait").out == "job 'orders' is canceled\n"
    assert cdc.sentence("pause", "orders") == "job 'orders' has ended (canceled): requested by ann; create another job"
    assert [event.reason for event in store.jobs.events("orders")][2:6] == [
        "maintenance",
        "maintenance",
        "requested by ann",
        "requested by ann",
    ]


def test_a_command_waits_until_a_node_has_done_it(store: ProgressStore, cdc: Cdc) -> None:
    one = created(store)

    def node_does(state: str, what: Callable[[], object]) -> Callable[[], None]:
        def act() -> None:
            until(lambda: (found := store.jobs.find("orders")) is not None and found.state == state)
            what()

        return act

    with meanwhile(node_does("pause-requested", lambda: ended(store, "stopped"))):
        assert cdc("pause", "orders", "--wait").out == "job 'orders' is paused\n"
    with meanwhile(node_does("running", lambda: store.claims.adopt("orders", one))):
        assert cdc("resume", "orders", "--wait").out == "job 'orders' is resumed; node one runs it\n"
    with meanwhile(node_does("pause-requested", lambda: ended(store, "failed", reason="the slot is lost"))):
        assert cdc("pause", "orders", "--wait", status=1).err == (
            "error: it was not paused: job 'orders' is failed: the slot is lost\n"
        )
    Changefeeds(store).resume("orders")
    assert store.claims.adopt("orders", one) is not None

    def cancel() -> None:
        ended(store, "stopped")
        ended(store, "reverted")

    with meanwhile(node_does("cancel-requested", cancel)):
        assert cdc("cancel", "orders", "--yes", "--wait").out == "job 'orders' is canceled\n"


def test_a_cancellation_must_be_confirmed(store: ProgressStore, cdc: Cdc, monkeypatch: pytest.MonkeyPatch) -> None:
    created(store)
    with Path("/dev/null").open() as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        assert "this needs confirmation" in cdc.sentence("cancel", "orders")
    found = store.jobs.find("orders")
    assert found is not None
    assert found.state == "running"


def test_a_node_is_drained(store: ProgressStore, cdc: Cdc) -> None:
    one = created(store)
    assert cdc("drain", "one").out == "node 'one' is draining and will end\n"
    assert cdc.json("nodes")["state"] == "draining"
    store.nodes.leave(one.node_id)

    def drained(end: Callable[[], object]) -> Callable[[], None]:
        def act() -> None:
            until(lambda: store.nodes.living()[0].draining)
            end()

        return act

    two = store.nodes.join(node("two"), lease_s=600)
    with meanwhile(drained(lambda: store.nodes.leave(two.node_id))):
        assert cdc("drain", "two", "--wait").out == "node 'two' has ended\n"
    three = store.nodes.join(node("three"), lease_s=600)
    with meanwhile(drained(lambda: die(store, three))):
        assert "node 'three' died while it was draining" in cdc("drain", "three", "--wait", status=1).err
    assert "there is no live node 'three'" in cdc.sentence("drain", "three")


def test_a_job_gets_another_owner(store: ProgressStore, cdc: Cdc) -> None:
    created(store)
    assert cdc("owner", "orders", "bob").out == "job 'orders' belongs to bob\n"
    assert cdc.json("jobs")["owner"] == "bob"
    assert store.jobs.events("orders")[-1].reason == "the owner changed from ann to bob"


def test_what_a_finished_job_has_left_is_said_when_it_is_dropped(store: ProgressStore, cdc: Cdc) -> None:
    created(store)
    ended(store, "succeeded")
    shown = cdc("drop", "orders", "--yes").out
    assert "nothing is left at the source" in shown
    assert shown.endswith("changefeed 'orders' is removed\n")
    assert store.changefeeds.find("orders") is None


def test_a_job_is_rescanned_while_it_can_run(
    store: ProgressStore, file: Path, cdc: Cdc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CounterPlanner, "check_rescan", lambda _planner, _wanted: None)
    one = paused_job(store, file, cdc)
    assert "all tables will be emitted again" in cdc("rescan", "orders", "--all").out
    assert len(store.rescans.of("orders")) == 1
    Changefeeds(store).resume("orders")
    assert "`cdc pause orders`" in cdc.sentence("rescan", "orders", "--all", "--new-slot")
    assert store.claims.adopt("orders", one) is not None
    ended(store, "succeeded")
    assert cdc.sentence("rescan", "orders", "--all") == (
        "job 'orders' has ended (succeeded): everything is delivered; create another job"
    )


def test_dead_letters_are_replayed_while_a_job_is_paused(store: ProgressStore, file: Path, cdc: Cdc) -> None:
    one = paused_job(store, file, cdc)
    assert "[1]" in cdc("replay-dead-letters", "orders", "--list").out
    Changefeeds(store).resume("orders")
    assert cdc.sentence("replay-dead-letters", "orders", "--give-up", "1") == (
        "job 'orders' is running; pause it first: `cdc pause orders`"
    )
    Changefeeds(store).pause("orders", "maintenance")
    assert "0 dead letters remaining, 1 discarded" in cdc("replay-dead-letters", "orders", "--give-up", "1").out
    assert store.dead_letters.of("orders") == []
    Changefeeds(store).resume("orders")
    assert store.claims.adopt("orders", one) is not None
