"""Traced changes are saved beside the work: nobody who delivers waits for the progress store."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from cdc_testing.engine import eventually

from cdc_core.engine import trace_teller
from cdc_core.engine.trace_teller import TraceTeller
from cdc_core.engine.traced_changes import TracedChanges
from cdc_core.errors import RetryableError
from cdc_core.store.progress import ProgressStore, store_url
from cdc_core.timestamp import Timestamp


def change(key: int, number: int, **more: Any) -> dict[str, Any]:
    named = {"table": "t", "key": f"[{key}]", "position": "0/1", "nth": 0, "read": 1.0}
    return {**named, "traces": [number], **more}


class SlowStore(ProgressStore):
    """Answers when it may, with the errors that it is given."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.asked, self.may_answer = threading.Event(), threading.Event()
        self.failures: list[Exception] = []

    def put_traced(self, number: int, changes: Mapping[str, Mapping[str, Any]], *, missed: int = 0) -> None:
        self.asked.set()
        assert self.may_answer.wait(60)
        if self.failures:
            raise self.failures.pop()
        super().put_traced(number, changes, missed=missed)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SlowStore]:
    with closing(SlowStore(store_url(tmp_path))) as store:
        yield store
        store.may_answer.set()


@pytest.fixture
def teller(store: SlowStore) -> Iterator[TraceTeller]:
    with closing(TraceTeller(lambda: store)) as teller:
        yield teller


def asked(store: ProgressStore) -> int:
    return store.ask_trace("feed", table=None, key=None, most=9, seconds=600)


def test_nobody_waits_for_a_store_that_does_not_answer_and_it_gets_the_newest_state(
    store: SlowStore, teller: TraceTeller
) -> None:
    number = asked(store)
    teller.tell([change(1, number)], wait_s=0.01)
    assert store.asked.wait(60)
    teller.tell([change(1, number, emitted=2.0), change(2, number)], wait_s=999.0)  # it has not answered yet
    teller.tell([change(1, number, emitted=2.0, acknowledged=3.0)])
    store.may_answer.set()
    eventually(lambda: len(store.traced(number) or ()) == 2, what="both changes")
    eventually(lambda: "acknowledged" in (store.traced(number) or {})["t [1] 0/1"], what="its newest state")
    assert store.missed_reports(number) == 0


def test_a_store_that_answers_has_the_changes_when_the_step_goes_on(store: SlowStore, teller: TraceTeller) -> None:
    number = asked(store)
    store.may_answer.set()
    teller.tell([change(1, number)], wait_s=60.0)
    assert list(store.traced(number) or ()) == ["t [1] 0/1"]


def test_what_the_store_does_not_take_in_time_is_left_out_and_counted(
    store: SlowStore, teller: TraceTeller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_teller, "_MOST_WAITING", 2)
    monkeypatch.setattr(trace_teller, "_LONGEST_S", 0.0)
    monkeypatch.setattr(trace_teller, "_REST_S", 0.0)
    store.failures = [RetryableError("it is down")]
    number = asked(store)
    teller.tell([change(key, number) for key in range(3)])  # one too many
    store.may_answer.set()
    eventually(lambda: store.missed_reports(number) == 3, what="the count, although nothing follows")
    teller.tell([change(4, number)])
    eventually(lambda: list(store.traced(number) or ()) == ["t [4] 0/1"], what="the change after that")
    assert store.missed_reports(number) == 3


def test_what_waits_when_the_work_ends_is_saved_once_more(
    store: SlowStore, teller: TraceTeller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_teller, "_IDLE_S", 600.0)
    number = asked(store)
    teller.tell([change(1, number)])
    assert store.asked.wait(60)
    teller.tell([change(2, number)])
    thread = teller._thread
    assert thread is not None
    teller.close()
    store.may_answer.set()
    thread.join(60)
    assert (list(store.traced(number) or ()), thread.is_alive()) == (["t [1] 0/1", "t [2] 0/1"], False)


def test_a_store_that_fails_when_the_work_has_ended_is_left_alone(store: SlowStore, teller: TraceTeller) -> None:
    store.failures = [RetryableError("it is down")]
    number = asked(store)
    teller.tell([change(1, number)])
    assert store.asked.wait(60)
    thread = teller._thread
    assert thread is not None
    teller.close()
    store.may_answer.set()
    thread.join(60)
    assert (store.traced(number), thread.is_alive()) == ({}, False)


def test_a_store_that_is_gone_for_good_is_not_asked_for_ever(
    store: SlowStore, teller: TraceTeller, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("_LONGEST_S", "_LONGEST_COUNT_S", "_REST_S", "_IDLE_S"):
        monkeypatch.setattr(trace_teller, limit, 0.0)
    number = asked(store)
    store.failures = [RetryableError("it is down")] * 99
    teller.tell([change(1, number)])
    thread = teller._thread
    assert thread is not None
    store.may_answer.set()
    thread.join(60)
    assert (thread.is_alive(), bool(store.failures)) == (False, True)


def test_a_step_ends_also_where_no_thread_can_be_started(store: SlowStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    number = asked(store)
    of_step = {"updated": "1.0000000000", "step": 1}
    with closing(TracedChanges(ProgressStore(store.url), marks=True)) as traced:
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", fails)
            traced.saved([change(1, number, **of_step)])
            traced.resolved(Timestamp(1))
        traced.saved([change(2, number, **of_step)])
        eventually(lambda: len(store.traced(number) or ()) == 2, what="both changes, as threads can be started again")


def test_a_failure_that_is_over_costs_nothing(
    store: SlowStore, teller: TraceTeller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_teller, "_REST_S", 0.0)
    store.failures = [RetryableError("it is down")]
    store.may_answer.set()
    number = asked(store)
    teller.tell([change(1, number)])
    eventually(lambda: len(store.traced(number) or ()) == 1, what="the change")
    assert store.missed_reports(number) == 0
