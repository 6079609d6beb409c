"""The event log: each event is written where the thing happens, once; it stays small; a follower misses nothing."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa
from cdc_testing.stored import DEFINITION, ask_rescan, die, dropped, node, progress

from cdc_core.changefeeds.altering import configure
from cdc_core.changefeeds.service import Changefeeds
from cdc_core.errors import ConfigError, FencedError, RetryableError
from cdc_core.locality import Locality
from cdc_core.store import events
from cdc_core.store.event_values import KINDS
from cdc_core.store.events import EventTail
from cdc_core.store.job_values import Pending
from cdc_core.store.progress import ProgressStore
from cdc_core.store.tables import EVENTS
from cdc_core.store.values import moment_text


def fail_after_an_event(store: ProgressStore) -> None:
    with store._database.transaction() as connection:
        events.add_event(connection, "changefeed_paused", "orders")
        connection.exec_driver_sql("SELECT * FROM no_such_table")


def kinds(store: ProgressStore, name: str | None = None) -> list[str]:
    return [event.kind for event in store.events.read(name)]


def test_the_life_of_a_run_s_changefeed_is_told(store: ProgressStore) -> None:
    store.changefeeds.register("orders", DEFINITION)
    store.changefeeds.register("orders", DEFINITION)
    epoch = store.changefeeds.begin_attempt("orders")
    for number in range(3):
        store.progress.save("orders", epoch, progress(number))
        store.statuses.save("orders", epoch, {"phase": "running"})
    store.claims.pause_run("orders", epoch, "a row was refused")
    store.claims.resume_run("orders")
    store.claims.resume_run("orders")
    ask_rescan(store, "orders", table="public.orders", where="id > 7")
    store.dead_letters.mark_replayed("orders", epoch, [1, 2])
    dropped(store, "orders")
    dropped(store, "orders")
    found = store.events.read("orders")
    assert [event.kind for event in found] == [
        "create_changefeed",
        "changefeed_paused",
        "changefeed_resumed",
        "rescan_requested",
        "dead_letters_replayed",
        "drop_changefeed",
    ]
    assert found[0].details["sink_type"] == "file"
    assert found[1].message == "a row was refused"
    assert found[3].details == {"table": "public.orders", "where": "id > 7", "new_slot": False}


def test_an_alteration_tells_what_changed_and_no_value_of_an_option(store: ProgressStore) -> None:
    before = {**DEFINITION, "written": {"options": {"kept": "1", "token": "hunter2", "gone": "x"}}}
    after = {
        **DEFINITION,
        "tables": ["public.users", "public.carts"],
        "written": {"options": {"kept": "1", "token": "hunter3", "new": "y"}},
    }
    store.changefeeds.register("orders", before)
    store.changefeeds.register("orders", after, changes_tables=True)
    created, altered = store.events.read("orders")
    assert created.details.get("token") is None
    assert altered.kind == "alter_changefeed"
    assert altered.details == {
        "changed": ["tables"],
        "options": ["gone", "new", "token"],
        "added": ["public.carts"],
        "dropped": ["public.orders"],
    }


def test_a_job_s_states_and_moves_are_told_with_the_nodes(store: ProgressStore) -> None:
    one, two = store.nodes.join(node("one"), lease_s=60), store.nodes.join(node("two"), lease_s=60)
    store.jobs.create("orders", DEFINITION, owner="ann", locality=Locality())
    assert store.claims.adopt("orders", one) is not None
    store.claims.settle("orders", one, "stopped", offer_to=two, offer_s=60)
    assert store.claims.adopt("orders", two) is not None
    die(store, two)
    assert store.claims.adopt("orders", one) is not None
    Changefeeds(store).pause("orders", "requested by ann")
    store.claims.settle("orders", one, "stopped")
    altered = {**DEFINITION, "format": "avro"}
    wanted = Pending(definition=altered, locality=Locality(), initial_scans={}, why="format is avro now")
    configure(store, "orders", wanted, before=DEFINITION)
    Changefeeds(store).set_owner("orders", "bob")
    Changefeeds(store).resume("orders")
    Changefeeds(store).cancel("orders", "requested by bob")
    assert store.claims.adopt("orders", one) is not None
    store.claims.settle("orders", one, "stopped")
    store.claims.settle("orders", one, "reverted")
    store.nodes.leave(one.node_id)
    store.nodes.leave(one.node_id)
    shown = [(event.kind, event.node) for event in store.events.read() if event.kind != "node_joined"]
    assert shown == [
        ("create_changefeed", None),
        ("create_job", None),
        ("changefeed_adopted", "one"),
        ("changefeed_released", "one"),
        ("changefeed_adopted", "two"),
        ("changefeed_adopted", "one"),
        ("pause_requested", None),
        ("changefeed_paused", "one"),
        ("alter_changefeed", None),
        ("alter_owner", None),
        ("changefeed_resumed", None),
        ("cancel_requested", None),
        ("changefeed_adopted", "one"),
        ("changefeed_reverting", "one"),
        ("changefeed_canceled", "one"),
        ("node_left", "one"),
    ]
    assert [event.details.get("offered_to") for event in store.events.read(kinds=["changefeed_released"])] == ["two"]
    adopted = [event.details["failover"] for event in store.events.read(kinds=["changefeed_adopted"])]
    assert adopted == [False, False, True, False]


def test_a_node_that_is_to_drain_is_told_and_one_that_is_not_there_is_not(store: ProgressStore) -> None:
    store.nodes.join(node("one", "region=eu"), lease_s=60)
    for _ in range(2):
        assert Changefeeds(store).drain("one").draining
    with pytest.raises(ConfigError):
        Changefeeds(store).drain("two")
    assert [(event.kind, event.node) for event in store.events.read()] == [
        ("node_joined", "one"),
        ("node_draining", "one"),
    ]
    assert store.events.read()[0].details["locality"] == "region=eu"


def test_what_did_not_become_durable_is_neither_kept_nor_logged(
    store: ProgressStore, caplog: pytest.LogCaptureFixture
) -> None:
    store.changefeeds.register("orders", DEFINITION)
    caplog.set_level(logging.INFO, "cdc_core")
    caplog.clear()
    with pytest.raises(FencedError):
        store.claims.pause_run("orders", 7, "of an older attempt")
    with pytest.raises(RetryableError, match=r"no such table|does not exist"):
        fail_after_an_event(store)
    assert kinds(store) == ["create_changefeed"]
    assert caplog.records == []


def test_an_event_is_logged_with_its_kind_and_details(store: ProgressStore, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "cdc_core")
    store.events.note("changefeed_started", "orders", message="two\nlines", epoch=3, nothing=None)
    [record] = caplog.records
    assert record.getMessage() == "changefeed 'orders': changefeed_started: two lines"
    assert (record.__dict__["event"], record.__dict__["details"]) == ("changefeed_started", {"node": None, "epoch": 3})


def test_retries_for_one_cause_are_one_event_until_something_else_happens(store: ProgressStore) -> None:
    def retry(cause: str, message: str) -> None:
        store.events.note_repeated("changefeed_retried", "orders", cause=cause, message=message, wait_s=1.0)

    retry("sink", "no route")
    store.events.note("changefeed_started", "users")
    retry("sink", "no answer")
    retry("source", "gone")
    retry("sink", "no route")
    store.events.note("changefeed_started", "orders")
    retry("sink", "no route")
    found = store.events.read("orders")
    assert [(event.details.get("cause"), event.times, event.message) for event in found] == [
        ("sink", 2, "no answer"),
        ("source", 1, "gone"),
        ("sink", 1, "no route"),
        (None, 1, None),
        ("sink", 1, "no route"),
    ]
    assert found[0].last_at is not None
    assert found[0].last_at >= found[0].at


def test_the_log_is_bounded_by_count_for_each_changefeed_and_by_age(
    store: ProgressStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "MAX_EVENTS_OF_ONE", 3)
    for number in range(5):
        store.events.note("changefeed_started", "orders", epoch=number)
        store.events.note("node_joined", node="one", pid=number)
    store.events.note("changefeed_started", "users")
    store.events.note("changefeed_paused", "old")
    with store._database.transaction() as connection:
        long_ago = moment_text(datetime.now(UTC) - events.KEPT_FOR - timedelta(minutes=1))
        connection.execute(sa.update(EVENTS).where(EVENTS.c.name == "old").values(at=long_ago, last_at=long_ago))
    store.events.prune()
    assert [event.details["epoch"] for event in store.events.read("orders")] == [2, 3, 4]
    assert [event.details["pid"] for event in store.events.read(kinds=["node_joined"])] == [2, 3, 4]
    assert kinds(store, "users") == ["changefeed_started"]
    assert kinds(store, "old") == []
    store.events.note("changefeed_started", "old")
    assert store.events.last_number() == 13  # the number of the event that is gone is not used again


def test_events_are_chosen_by_time_number_kind_and_count(store: ProgressStore) -> None:
    for number in range(4):
        store.events.note("changefeed_started", "orders", epoch=number)
    store.events.note("changefeed_stopped", "orders")
    assert [event.details["epoch"] for event in store.events.read("orders", kinds=["changefeed_started"], limit=2)] == [
        2,
        3,
    ]
    assert [event.number for event in store.events.read(after=2, until=4)] == [3, 4]
    assert [event.number for event in store.events.read(after=1, limit=2)] == [2, 3]
    later = datetime.now(UTC) + timedelta(seconds=1)
    assert store.events.read(since=later) == []
    assert len(store.events.read(since=later - timedelta(minutes=1))) == 5


def test_a_follower_gets_an_event_that_became_visible_after_later_ones(store: ProgressStore) -> None:
    tail = EventTail(store.events, after=store.events.last_number())
    store.events.note("changefeed_started", "orders", epoch=1)
    store.events.note("changefeed_started", "orders", epoch=2)
    with store._database.transaction() as connection:  # as if the first one's transaction were still open
        row = connection.execute(sa.select(EVENTS).order_by(EVENTS.c.id)).first()
        assert row is not None
        connection.execute(sa.delete(EVENTS).where(EVENTS.c.id == row.id))
    assert [event.details["epoch"] for event in tail.poll()] == [2]
    with store._database.transaction() as connection:
        connection.execute(sa.insert(EVENTS).values(row._asdict()))
    assert [event.details["epoch"] for event in tail.poll()] == [1]
    assert tail.poll() == []


def test_a_kind_that_nobody_explains_is_a_mistake(store: ProgressStore) -> None:
    assert "made_up" not in KINDS
    with pytest.raises(AssertionError):
        store.events.note("made_up", "orders")


def test_each_kind_is_written_somewhere_in_the_code() -> None:
    from cdc_testing.imports import ROOT

    places = [path for path in (ROOT / "cdc_core").rglob("*.py") if path.name != "event_values.py"]
    code = "\n".join(path.read_text() for path in places)
    assert [kind for kind in KINDS if f'"{kind}"' not in code] == []
