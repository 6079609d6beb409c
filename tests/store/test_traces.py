"""Traces in the store: bounded in number, time and size, and free of cost when nobody waits for them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest
import sqlalchemy as sa
from cdc_testing.stored import dropped

from cdc_core.errors import ConfigError
from cdc_core.store.progress import ProgressStore
from cdc_core.store.tables import TRACES
from cdc_core.store.traced_change import TracedChange
from cdc_core.store.traces import MAX_TRACES
from cdc_core.timestamp import Timestamp


def change(key: str, **moments: float) -> TracedChange:
    return TracedChange(table="t", key=key, op="update", updated=Timestamp(1), position="0/1", step=1, moments=moments)


def found(store: ProgressStore, number: int) -> dict[str, Mapping[str, float]] | None:
    traced = store.traces.load(number)
    return None if traced is None else {each.key: each.moments for each in traced.values()}


def asked(store: ProgressStore, *, most: int = 2, seconds: float = 60.0) -> int:
    return store.traces.ask("feed", table="t", key="[1]", most=most, seconds=seconds)


def test_a_trace_is_active_until_it_has_enough_is_over_or_is_ended(store: ProgressStore) -> None:
    number = asked(store)
    assert f'"number":{number}' in store.traces.active()["feed"]
    store.traces.put(number, [change("a", read=1.0), change("b", saved=1.0)])
    assert '"most":1' in store.traces.active()["feed"]
    store.traces.put(number, [change("a", saved=2.0), change("c", saved=2.0)])
    assert store.traces.active() == {}
    assert found(store, number) == {"a": {"saved": 2.0}, "b": {"saved": 1.0}}
    (record,) = store.traces.of("feed")
    assert (record.number, record.table, record.key, record.most, record.is_active) == (number, "t", "[1]", 2, False)
    assert store.traces.of("other") == []
    store.traces.end(number)
    assert found(store, number) is None
    store.traces.put(number, [change("a")])
    assert found(store, number) is None


def test_what_a_killed_command_leaves_ends_by_itself_and_goes_with_the_next_trace(store: ProgressStore) -> None:
    left, older = asked(store, seconds=0.0), asked(store, seconds=-3601.0)
    assert store.traces.active() == {}
    for _ in range(MAX_TRACES):
        asked(store)
    assert found(store, left) == {}, "the clock of its host may be behind"
    assert found(store, older) is None


def test_changes_that_are_saved_are_kept_before_others(store: ProgressStore) -> None:
    number = asked(store)
    store.traces.put(number, [change("a", read=1.0), change("b", read=1.0)])
    store.traces.put(number, [change("c", saved=1.0)])
    assert found(store, number) == {"a": {"read": 1.0}, "c": {"saved": 1.0}}


def test_a_state_that_arrives_late_changes_nothing_unless_the_change_was_read_again(store: ProgressStore) -> None:
    number = asked(store)
    store.traces.put(number, [change("a", read=1.0, emitted=2.0, saved=3.0)])
    store.traces.put(number, [change("a", read=1.0, emitted=2.0)])
    assert found(store, number) == {"a": {"read": 1.0, "emitted": 2.0, "saved": 3.0}}
    store.traces.put(number, [change("a", read=4.0)])
    assert found(store, number) == {"a": {"read": 4.0}}


def test_what_an_earlier_version_saved_is_read(store: ProgressStore) -> None:
    number = asked(store)
    old = {"table": "t", "key": "[1]", "op": "update", "updated": "1.0000000000", "position": "0/1", "nth": 0}
    old |= {"step": 3, "planned": 1.0, "read": 2.0}
    found = json.dumps({"t [1] 0/1": old, "missed": {"reports": 2}})
    with sa.create_engine(store.url).begin() as connection:
        connection.execute(sa.update(TRACES).where(TRACES.c.id == number).values(found=found))
    store.traces.put(number, [replace(change("[1]", planned=1.0, read=2.0, emitted=3.0), step=3)])
    [known] = (store.traces.load(number) or {}).values()
    assert (known.moments, known.step, known.complete) == ({"planned": 1.0, "read": 2.0, "emitted": 3.0}, 3, False)
    assert '"most":2' in store.traces.active()["feed"]


def test_the_store_gives_back_the_change_that_it_was_given(store: ProgressStore) -> None:
    number = asked(store)
    given = replace(
        change("[1]", read=1.5, saved=2.5),
        nth=2,
        position=None,
        updated=Timestamp(7, 3),
        place={"offset": 7},
        dead_letter="sink",
        left_out=True,
        marks=True,
        traces=(number, 99),
    )
    store.traces.put(number, [given])
    assert store.traces.load(number) == {"t [1] 7.0000000003 2": replace(given, traces=())}
    assert TracedChange.from_json(json.loads(json.dumps(given.to_json()))) == given


def test_a_changefeed_has_few_traces_and_is_forgotten_with_them(store: ProgressStore) -> None:
    numbers = [asked(store) for _ in range(MAX_TRACES)]
    with pytest.raises(ConfigError, match="wait until one ends"):
        asked(store)
    assert "[1]" not in repr(store.events.read("feed", kinds=["trace_requested"]))
    dropped(store, "feed")
    assert found(store, numbers[0]) is None


def test_a_trace_that_has_enough_leaves_its_place_and_is_followed_to_the_end(store: ProgressStore) -> None:
    numbers = [asked(store, most=1) for _ in range(MAX_TRACES)]
    store.traces.put(numbers[0], [change("a", saved=1.0)])
    asked(store)
    with pytest.raises(ConfigError, match="or end one"):
        asked(store)
    store.traces.put(numbers[0], [change("a", saved=1.0, resolved=2.0)])
    assert found(store, numbers[0]) == {"a": {"saved": 1.0, "resolved": 2.0}}
    assert [trace.number for trace in store.traces.of("feed") if not trace.is_active] == [numbers[0]]
