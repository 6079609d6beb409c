"""Traces in the store: bounded in number, time and size, and free of cost when nobody waits for them."""

from __future__ import annotations

import pytest

from cdc_core.errors import ConfigError
from cdc_core.store.progress import ProgressStore
from cdc_core.store.traces import MOST_TRACES


def asked(store: ProgressStore, *, most: int = 2, seconds: float = 60.0) -> int:
    return store.ask_trace("feed", table="t", key="[1]", most=most, seconds=seconds)


def test_a_trace_is_active_until_it_has_enough_is_over_or_is_ended(store: ProgressStore) -> None:
    number = asked(store)
    assert f'"number":{number}' in store.active_traces()["feed"]
    store.put_traced(number, {"a": {"read": 1.0}, "b": {"saved": 1.0}})
    assert '"most":1' in store.active_traces()["feed"]
    store.put_traced(number, {"a": {"saved": 2.0}, "c": {"saved": 2.0}})
    assert store.active_traces() == {}
    assert store.traced(number) == {"a": {"saved": 2.0}, "b": {"saved": 1.0}}
    (record,) = store.traces("feed")
    assert (record.number, record.table, record.key, record.most, record.is_active) == (number, "t", "[1]", 2, False)
    assert store.traces("other") == []
    store.end_trace(number)
    assert store.traced(number) is None
    store.put_traced(number, {"a": {}})
    assert store.traced(number) is None


def test_what_a_killed_command_leaves_ends_by_itself_and_goes_with_the_next_trace(store: ProgressStore) -> None:
    left, older = asked(store, seconds=0.0), asked(store, seconds=-3601.0)
    assert store.active_traces() == {}
    for _ in range(MOST_TRACES):
        asked(store)
    assert store.traced(left) == {}, "the clock of its host may be behind"
    assert store.traced(older) is None


def test_changes_that_are_saved_are_kept_before_others(store: ProgressStore) -> None:
    number = asked(store)
    store.put_traced(number, {"a": {"read": 1.0}, "b": {"read": 1.0}})
    store.put_traced(number, {"c": {"saved": 1.0}})
    assert store.traced(number) == {"a": {"read": 1.0}, "c": {"saved": 1.0}}


def test_a_state_that_arrives_late_changes_nothing_unless_the_change_was_read_again(store: ProgressStore) -> None:
    number = asked(store)
    store.put_traced(number, {"a": {"read": 1.0, "emitted": 2.0, "saved": 3.0}})
    store.put_traced(number, {"a": {"read": 1.0, "emitted": 2.0}})
    assert store.traced(number) == {"a": {"read": 1.0, "emitted": 2.0, "saved": 3.0}}
    store.put_traced(number, {"a": {"read": 4.0}})
    assert store.traced(number) == {"a": {"read": 4.0}}


def test_reports_that_are_missing_are_counted_beside_the_changes(store: ProgressStore) -> None:
    number = asked(store)
    assert store.missed_reports(number) == 0
    store.put_traced(number, {"a": {"read": 1.0}}, missed=2)
    store.put_traced(number, {"b": {"read": 1.0}}, missed=1)
    assert store.missed_reports(number) == 3
    assert list(store.traced(number) or ()) == ["a", "b"]
    assert [list(trace.found) for trace in store.traces("feed")] == [["a", "b"]]
    assert '"most":2' in store.active_traces()["feed"]


def test_a_changefeed_has_few_traces_and_is_forgotten_with_them(store: ProgressStore) -> None:
    numbers = [asked(store) for _ in range(MOST_TRACES)]
    with pytest.raises(ConfigError, match="wait until one of them is over"):
        asked(store)
    assert "[1]" not in repr(store.events("feed", kinds=["trace_requested"]))
    store.forget("feed")
    assert store.traced(numbers[0]) is None


def test_a_trace_that_has_enough_leaves_its_place_and_is_followed_to_the_end(store: ProgressStore) -> None:
    numbers = [asked(store, most=1) for _ in range(MOST_TRACES)]
    store.put_traced(numbers[0], {"a": {"saved": 1.0}})
    asked(store)
    with pytest.raises(ConfigError, match="or end one"):
        asked(store)
    store.put_traced(numbers[0], {"a": {"saved": 1.0, "resolved": 2.0}})
    assert store.traced(numbers[0]) == {"a": {"saved": 1.0, "resolved": 2.0}}
    assert [trace.number for trace in store.traces("feed") if not trace.is_active] == [numbers[0]]
