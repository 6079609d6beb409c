"""Progress, identity and pauses of a changefeed in the store, fenced by epochs."""

from __future__ import annotations

import re
from typing import Any

import pytest
from cdc_testing.stored import DEFINITION, dropped, paused, progress

from cdc_core import Timestamp
from cdc_core.errors import ConfigError, FencedError
from cdc_core.store.progress import ProgressStore


def test_what_was_saved_is_what_is_loaded(store: ProgressStore) -> None:
    store.changefeeds.register("orders", DEFINITION)
    store.progress.save("orders", store.changefeeds.begin_attempt("orders"), progress())
    loaded = store.progress.load("orders")
    assert loaded is not None
    assert (loaded.token, loaded.frontier, loaded.latest, loaded.counters) == (
        {"lsn": 1},
        progress().frontier,
        Timestamp(6),
        {"rows": 10.0, "steps": 1},
    )
    assert loaded.saved_at is not None
    assert loaded.saved_at.tzinfo is not None


def test_nothing_is_loaded_before_anything_was_saved(store: ProgressStore) -> None:
    assert store.progress.load("orders") is None
    store.changefeeds.register("orders", DEFINITION)
    assert store.progress.load("orders") is None


def test_the_identity_is_chosen_once(store: ProgressStore) -> None:
    first = store.changefeeds.register("orders", DEFINITION)
    assert re.fullmatch("[0-9a-f]{12}", first.feed_id)
    assert store.changefeeds.register("orders", DEFINITION).feed_id == first.feed_id
    assert store.changefeeds.register("users", DEFINITION).feed_id != first.feed_id


def test_each_run_has_a_greater_epoch(store: ProgressStore) -> None:
    store.changefeeds.register("orders", DEFINITION)
    assert [store.changefeeds.begin_attempt("orders") for _ in range(3)] == [1, 2, 3]


def test_a_run_that_was_overtaken_does_not_take_over_again(store: ProgressStore) -> None:
    store.changefeeds.register("orders", DEFINITION)
    older = store.changefeeds.begin_attempt("orders", after=0)
    newer = store.changefeeds.begin_attempt("orders", after=older)
    with pytest.raises(
        FencedError, match=r"a newer attempt took over, .* \(epoch 1\) stops, and no longer emits or saves anything"
    ):
        store.changefeeds.begin_attempt("orders", after=older)
    store.changefeeds.require_newest("orders", newer)
    with pytest.raises(FencedError):
        store.changefeeds.require_newest("orders", older)


def test_a_run_that_was_overtaken_saves_nothing(store: ProgressStore) -> None:
    store.changefeeds.register("orders", DEFINITION)
    old, new = store.changefeeds.begin_attempt("orders"), store.changefeeds.begin_attempt("orders")
    store.progress.save("orders", new, progress(5))
    with pytest.raises(FencedError, match="changefeed 'orders': a newer attempt took over"):
        store.progress.save("orders", old, progress(9))
    with pytest.raises(FencedError):
        store.progress.save_intent("orders", old, {"lsn": 9})
    loaded = store.progress.load("orders")
    assert loaded is not None
    assert loaded.token == {"lsn": 5}


def test_an_intent_comes_back_as_the_token_and_keeps_the_rest(store: ProgressStore) -> None:
    store.changefeeds.register("orders", DEFINITION)
    epoch = store.changefeeds.begin_attempt("orders")
    store.progress.save_intent("orders", epoch, {"intent": "slot"})
    loaded = store.progress.load("orders")
    assert loaded is not None
    assert (loaded.token, list(loaded.frontier), loaded.latest) == ({"intent": "slot"}, [], Timestamp())
    store.progress.save("orders", epoch, progress())
    store.progress.save_intent("orders", epoch, {"intent": "other"})
    loaded = store.progress.load("orders")
    assert loaded is not None
    assert (loaded.token, loaded.frontier) == ({"intent": "other"}, progress().frontier)


def test_a_forgotten_changefeed_is_gone_and_fences_its_run(store: ProgressStore) -> None:
    feed = store.changefeeds.register("orders", DEFINITION)
    epoch = store.changefeeds.begin_attempt("orders")
    dropped(store, "orders")
    dropped(store, "orders")
    assert store.progress.load("orders") is None
    assert store.changefeeds.all() == []
    with pytest.raises(FencedError):
        store.progress.save("orders", epoch, progress())
    assert store.changefeeds.register("orders", DEFINITION).feed_id != feed.feed_id


def test_a_run_of_a_changefeed_that_nobody_registered_is_refused(store: ProgressStore) -> None:
    with pytest.raises(ConfigError, match="changefeed 'orders' is not registered"):
        store.changefeeds.begin_attempt("orders")


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        (
            {"source": "postgresql://host2/shop"},
            "'orders' was started on the source postgresql://user:\\*\\*\\*@host:5432/shop",
        ),
        (
            {"source": "postgresql://user@host:5432/other"},
            "not postgresql://user@host:5432/other; give the new changefeed",
        ),
        (
            {"tables": ["public.orders"]},
            "on the tables public.orders, public.users, not public.orders, and its source cannot change them",
        ),
    ],
)
def test_a_name_keeps_its_source_and_tables(store: ProgressStore, changes: dict[str, Any], complaint: str) -> None:
    store.changefeeds.register("orders", DEFINITION)
    store.progress.save_intent("orders", store.changefeeds.begin_attempt("orders"), {"intent": "slot"})
    with pytest.raises(ConfigError, match=complaint):
        store.changefeeds.register("orders", DEFINITION | changes)


def test_a_changefeed_that_never_began_may_change_altogether(store: ProgressStore) -> None:
    store.changefeeds.register("orders", DEFINITION | {"tables": ["public.ordrs"]})
    store.changefeeds.begin_attempt("orders")
    assert store.changefeeds.register("orders", DEFINITION).definition == DEFINITION


@pytest.mark.parametrize(
    "changes",
    [
        {"source": "postgresql://other@host:5432/shop?sslmode=require"},
        {"tables": ["public.users", "public.orders"]},
        {"sink": "file:///elsewhere"},
    ],
)
def test_user_order_of_tables_and_sink_may_change(store: ProgressStore, changes: dict[str, Any]) -> None:
    store.changefeeds.register("orders", DEFINITION)
    store.progress.save("orders", store.changefeeds.begin_attempt("orders"), progress())
    assert store.changefeeds.register("orders", DEFINITION | changes).definition == DEFINITION | changes


def test_the_listing_has_every_changefeed_by_name(store: ProgressStore) -> None:
    for name in ("users", "orders"):
        store.changefeeds.register(name, DEFINITION)
    store.progress.save("orders", store.changefeeds.begin_attempt("orders"), progress())
    rows = store.changefeeds.all()
    assert [(row.name, row.epoch, row.high_water) for row in rows] == [
        ("orders", 1, Timestamp(1, 3)),
        ("users", 0, Timestamp()),
    ]


def test_the_last_mark_is_remembered_for_the_sink_that_got_it(store: ProgressStore) -> None:
    def last_mark() -> Timestamp:
        loaded = store.progress.load("orders")
        assert loaded is not None
        return loaded.emitted

    store.changefeeds.register("orders", DEFINITION)
    old, new = store.changefeeds.begin_attempt("orders"), store.changefeeds.begin_attempt("orders")
    store.progress.save("orders", new, progress())
    store.marks.save_emitted("orders", new, Timestamp(1, 3))
    with pytest.raises(FencedError):
        store.marks.save_emitted("orders", old, Timestamp(9))
    store.progress.save("orders", new, progress(5))
    store.changefeeds.register("orders", DEFINITION)
    assert last_mark() == Timestamp(1, 3)
    store.changefeeds.register("orders", {**DEFINITION, "sink": "file:///data/elsewhere"})
    assert last_mark() == Timestamp()


def test_counters_are_saved_without_anything_else(store: ProgressStore) -> None:
    store.changefeeds.register("orders", DEFINITION)
    old, new = store.changefeeds.begin_attempt("orders"), store.changefeeds.begin_attempt("orders")
    store.progress.save("orders", new, progress())
    store.progress.save_counters("orders", new, {"rows": 7.0})
    with pytest.raises(FencedError):
        store.progress.save_counters("orders", old, {})
    loaded = store.progress.load("orders")
    assert loaded is not None
    assert (loaded.token, loaded.latest, loaded.counters) == ({"lsn": 1}, Timestamp(6), {"rows": 7.0})


def test_a_paused_changefeed_goes_on(store: ProgressStore) -> None:
    store.changefeeds.register("orders", DEFINITION)
    epoch = store.changefeeds.begin_attempt("orders")
    assert paused(store) is None
    store.claims.pause_run("orders", epoch, "a row was refused")
    assert paused(store) == "a row was refused"
    store.claims.resume_run("orders")
    assert paused(store) is None


def test_being_paused_is_no_new_run_and_neither_is_going_on(store: ProgressStore) -> None:
    store.changefeeds.register("orders", DEFINITION)
    epoch = store.changefeeds.begin_attempt("orders")
    store.claims.pause_run("orders", epoch, "a row was refused")
    store.claims.resume_run("orders")
    found = store.changefeeds.find("orders")
    assert found is not None
    assert found.epoch == epoch
    store.changefeeds.begin_attempt("orders")
    with pytest.raises(FencedError):
        store.claims.pause_run("orders", epoch, "a row was refused")
    assert paused(store) is None


def test_a_changefeed_that_never_ran_is_not_found(store: ProgressStore) -> None:
    assert store.changefeeds.find("orders") is None


def test_a_source_that_can_change_its_tables_continues_with_others(store: ProgressStore) -> None:
    store.changefeeds.register("orders", DEFINITION)
    store.progress.save_intent("orders", store.changefeeds.begin_attempt("orders"), {"intent": "slot"})
    changed = {**DEFINITION, "tables": ["public.orders"]}
    assert store.changefeeds.register("orders", changed, changes_tables=True).definition["tables"] == ["public.orders"]
