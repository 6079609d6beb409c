"""Rescans in the store: what was asked for, what has begun, and what is forgotten."""

from __future__ import annotations

import pytest
from cdc_testing.stored import DEFINITION, ask_rescan, dropped, progress

from cdc_core import Timestamp
from cdc_core.errors import FencedError
from cdc_core.store.progress import ProgressStore


def shown(store: ProgressStore) -> list[tuple[str | None, str | None, Timestamp | None]]:
    return [(found.table, found.where, found.began) for found in store.rescans.of("orders")]


def test_a_rescan_waits_until_it_has_begun(store: ProgressStore) -> None:
    store.changefeeds.register("orders", DEFINITION)
    epoch = store.changefeeds.begin_attempt("orders")
    ask_rescan(store, "orders", table="shop.public.orders", where="id < 5")
    ask_rescan(store, "orders", table=None, new_slot=True)
    (part,) = store.rescans.waiting("orders", new_slot=False)
    assert (part.table, part.where, part.new_slot, part.began) == ("shop.public.orders", "id < 5", False, None)
    store.rescans.begin("orders", epoch, [part.number], Timestamp(70))
    assert store.rescans.waiting("orders", new_slot=False) == []
    assert [found.table for found in store.rescans.waiting("orders", new_slot=True)] == [None]
    assert shown(store) == [("shop.public.orders", "id < 5", Timestamp(70)), (None, None, None)]


def test_a_run_that_was_overtaken_begins_no_rescan(store: ProgressStore) -> None:
    store.changefeeds.register("orders", DEFINITION)
    old = store.changefeeds.begin_attempt("orders")
    store.changefeeds.begin_attempt("orders")
    ask_rescan(store, "orders", table=None)
    (found,) = store.rescans.of("orders")
    with pytest.raises(FencedError):
        store.rescans.begin("orders", old, [found.number], Timestamp(70))
    assert store.rescans.of("orders") == [found]


def test_a_complete_rescan_is_forgotten_with_the_next_one(store: ProgressStore) -> None:
    store.changefeeds.register("orders", DEFINITION)
    epoch = store.changefeeds.begin_attempt("orders")
    for began in (3, 50):
        ask_rescan(store, "orders", table=f"t{began}")
        store.rescans.begin("orders", epoch, [store.rescans.of("orders")[-1].number], Timestamp(began))
    store.progress.save("orders", epoch, progress(5))
    ask_rescan(store, "orders", table="u")
    assert shown(store) == [("t50", None, Timestamp(50)), ("u", None, None)]


def test_choices_of_initial_scans_are_kept_until_they_are_replaced(store: ProgressStore) -> None:
    store.changefeeds.register("orders", DEFINITION)
    assert store.rescans.initial_scans("orders") == {}
    store.rescans.choose_initial_scans("orders", 0, {"public.a": True, "public.b": False})
    assert store.rescans.initial_scans("orders") == {"public.a": True, "public.b": False}
    with pytest.raises(FencedError):
        store.rescans.choose_initial_scans("orders", 1, {})
    store.rescans.choose_initial_scans("orders", 0, {})
    assert store.rescans.initial_scans("orders") == {}


def test_a_forgotten_changefeed_has_no_rescans(store: ProgressStore) -> None:
    store.changefeeds.register("orders", DEFINITION)
    ask_rescan(store, "orders", table=None)
    dropped(store, "orders")
    assert store.rescans.of("orders") == []
