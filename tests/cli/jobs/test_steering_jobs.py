"""The commands that change a job or a node."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cdc_testing.job_commands import as_json, created, done, ended, meanwhile, paused_job, refused, until
from cdc_testing.scripted import CounterPlanner
from cdc_testing.stored import die, node

from cdc_core.changefeeds.service import Changefeeds
from cdc_core.store.progress import ProgressStore

Capture = pytest.CaptureFixture[str]


def test_a_job_is_paused_resumed_and_canceled(store: ProgressStore, capsys: Capture) -> None:
    one = created(store)
    assert done(capsys, "pause", "orders", "--reason", "maintenance") == "job 'orders': node one will pause it\n"
    ended(store, "stopped")
    assert done(capsys, "pause", "orders", "--wait") == "job 'orders' is paused\n"
    assert done(capsys, "resume", "orders") == "job 'orders' is resumed; a node will adopt it\n"
    assert as_json(capsys, "pause", "orders")["reason"] == "asked for by ann"
    Changefeeds(store).resume("orders")
    assert store.claims.adopt("orders", one) is not None
    assert done(capsys, "cancel", "orders", "--yes") == "job 'orders': node one will cancel it\n"
    ended(store, "stopped")
    ended(store, "reverted")
    assert done(capsys, "cancel", "orders", "--yes", "--wait") == "job 'orders' is canceled\n"
    assert (
        refused(capsys, "pause", "orders") == "job 'orders' has ended (canceled): asked for by ann; create another job"
    )
    assert [event.reason for event in store.jobs.events("orders")][2:6] == [
        "maintenance",
        "maintenance",
        "resumed",
        "asked for by ann",
    ]


def test_a_command_waits_until_a_node_has_done_it(store: ProgressStore, capsys: Capture) -> None:
    one = created(store)

    def node_does(state: str, what: Callable[[], object]) -> Callable[[], None]:
        def act() -> None:
            until(lambda: (found := store.jobs.find("orders")) is not None and found.state == state)
            what()

        return act

    with meanwhile(node_does("pause-requested", lambda: ended(store, "stopped"))):
        assert done(capsys, "pause", "orders", "--wait") == "job 'orders' is paused\n"
    with meanwhile(node_does("running", lambda: store.claims.adopt("orders", one))):
        assert done(capsys, "resume", "orders", "--wait") == "job 'orders' is resumed; node one runs it\n"
    with meanwhile(node_does("pause-requested", lambda: ended(store, "failed", reason="the slot is lost"))):
        assert done(capsys, "pause", "orders", "--wait", status=1) == (
            "error: it was not paused: job 'orders' is failed: the slot is lost\n"
        )
    Changefeeds(store).resume("orders")
    assert store.claims.adopt("orders", one) is not None

    def cancel() -> None:
        ended(store, "stopped")
        ended(store, "reverted")

    with meanwhile(node_does("cancel-requested", cancel)):
        assert done(capsys, "cancel", "orders", "--yes", "--wait") == "job 'orders' is canceled\n"


def test_a_cancellation_must_be_confirmed(
    store: ProgressStore, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    created(store)
    with Path("/dev/null").open() as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        assert "this must be confirmed" in refused(capsys, "cancel", "orders")
    found = store.jobs.find("orders")
    assert found is not None
    assert found.state == "running"


def test_a_node_is_drained(store: ProgressStore, capsys: Capture) -> None:
    one = created(store)
    assert done(capsys, "drain", "one") == "node 'one' drains and ends\n"
    assert as_json(capsys, "nodes")["state"] == "draining"
    store.nodes.leave(one.node_id)

    def drained(end: Callable[[], object]) -> Callable[[], None]:
        def act() -> None:
            until(lambda: store.nodes.living()[0].draining)
            end()

        return act

    two = store.nodes.join(node("two"), lease_s=600)
    with meanwhile(drained(lambda: store.nodes.leave(two.node_id))):
        assert done(capsys, "drain", "two", "--wait") == "node 'two' has ended\n"
    three = store.nodes.join(node("three"), lease_s=600)
    with meanwhile(drained(lambda: die(store, three))):
        assert "node 'three' has died while it drained" in done(capsys, "drain", "three", "--wait", status=1)
    assert "there is no living node 'three'" in refused(capsys, "drain", "three")


def test_a_job_gets_another_owner(store: ProgressStore, capsys: Capture) -> None:
    created(store)
    assert done(capsys, "owner", "orders", "bob") == "job 'orders' belongs to bob\n"
    assert as_json(capsys, "jobs")["owner"] == "bob"
    assert store.jobs.events("orders")[-1].reason == "the owner is bob now, and was ann"


def test_what_a_finished_job_has_left_is_said_when_it_is_dropped(store: ProgressStore, capsys: Capture) -> None:
    created(store)
    ended(store, "succeeded")
    shown = done(capsys, "drop", "orders", "--yes")
    assert "nothing is left at the source" in shown
    assert shown.endswith("changefeed 'orders' is removed\n")
    assert store.changefeeds.find("orders") is None


def test_a_job_is_rescanned_while_it_can_run(
    store: ProgressStore, file: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CounterPlanner, "check_rescan", lambda _planner, _wanted: None)
    one = paused_job(store, file, capsys)
    assert "all tables will be emitted again" in done(capsys, "rescan", "orders", "--all")
    assert len(store.rescans.of("orders")) == 1
    Changefeeds(store).resume("orders")
    assert "`cdc pause orders`" in refused(capsys, "rescan", "orders", "--all", "--new-slot")
    assert store.claims.adopt("orders", one) is not None
    ended(store, "succeeded")
    assert refused(capsys, "rescan", "orders", "--all") == (
        "job 'orders' has ended (succeeded): everything is delivered; create another job"
    )


def test_dead_letters_are_replayed_while_a_job_is_paused(store: ProgressStore, file: Path, capsys: Capture) -> None:
    one = paused_job(store, file, capsys)
    assert "[1]" in done(capsys, "replay-dead-letters", "orders", "--list")
    Changefeeds(store).resume("orders")
    assert refused(capsys, "replay-dead-letters", "orders", "--give-up", "1") == (
        "job 'orders' is running; pause it first: `cdc pause orders`"
    )
    Changefeeds(store).pause("orders", "maintenance")
    assert "0 dead letters remaining, 1 discarded" in done(capsys, "replay-dead-letters", "orders", "--give-up", "1")
    assert store.dead_letters.of("orders") == []
    Changefeeds(store).resume("orders")
    assert store.claims.adopt("orders", one) is not None
