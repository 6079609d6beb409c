"""What a run writes to the event log: its begin, its end, its retries, and once an hour what it has delivered."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cdc_testing.clock import Clock
from cdc_testing.stored import DEFINITION

from cdc_core import Timestamp
from cdc_core.engine.run_events import RunEvents
from cdc_core.errors import FencedError, RetryableError
from cdc_core.store import events
from cdc_core.store.progress import Progress, ProgressStore, store_url


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ProgressStore]:
    store = ProgressStore(store_url(tmp_path))
    store.changefeeds.register("orders", DEFINITION)
    epoch = store.changefeeds.begin_attempt("orders")
    store.progress.save("orders", epoch, delivered(100))
    yield store
    store.close()


def delivered(rows: int) -> Progress:
    return Progress(token={"n": 1}, counters={"rows": rows, "messages": rows, "bytes": 10 * rows})


def told(store: ProgressStore) -> list[tuple[str, Any]]:
    return [(event.kind, event.message) for event in store.events.read("orders")[1:]]


def test_deliveries_are_told_once_an_hour_and_at_the_end_and_not_for_each_step(store: ProgressStore) -> None:
    clock = Clock()
    run = RunEvents("orders", store, job=False, clock=clock)
    run.started(1, Timestamp())
    for second in range(7200):
        clock.now = float(second)
        run.saved(delivered(100 + second))
    run.ended("stopped", None, None)
    found = store.events.read("orders", kinds=["changefeed_emitted_bytes"])
    assert [(event.details["rows"], event.details["bytes"], event.details["seconds"]) for event in found] == [
        (3600, 36000, 3600),
        (3599, 35990, 3599),
    ]
    assert told(store)[-1] == ("changefeed_stopped", None)


def test_only_the_first_attempt_of_a_run_is_told_as_its_start(store: ProgressStore) -> None:
    run = RunEvents("orders", store, job=False)
    run.started(1, Timestamp())
    run.retried("sink", "no route", 1.0)
    run.retried("sink", "no route", 2.0)
    run.started(2, Timestamp())
    run.ended("complete", None, None)
    assert told(store) == [
        ("changefeed_started", None),
        ("changefeed_retried", "no route"),
        ("changefeed_succeeded", None),
    ]


@pytest.mark.parametrize("job", [False, True])
def test_the_log_is_pruned_by_a_run_and_of_a_job_by_its_node(
    store: ProgressStore, job: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "MAX_EVENTS_OF_ONE", 2)
    for number in range(5):
        store.events.note("changefeed_started", "other", epoch=number)
    RunEvents("orders", store, job=job).started(1, Timestamp())
    assert len(store.events.read("other")) == (5 if job else 2)


@pytest.mark.parametrize(
    ("job", "error", "kind"),
    [
        (False, ValueError("no"), "changefeed_failed"),
        (False, FencedError("newer"), "changefeed_fenced"),
        (True, FencedError("newer"), "changefeed_fenced"),
        (True, ValueError("no"), None),
    ],
)
def test_the_end_of_a_job_s_run_is_told_by_its_node(
    store: ProgressStore, job: bool, error: Exception, kind: str | None
) -> None:
    RunEvents("orders", store, job=job).ended("failed", error, str(error))
    assert told(store) == ([] if kind is None else [(kind, str(error))])


def test_a_run_goes_on_when_the_store_cannot_take_an_event(
    store: ProgressStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunEvents("orders", store, job=False)

    def out_of_reach(*_: Any, **__: Any) -> None:
        raise RetryableError("no store")

    for method in ("note", "note_repeated", "prune"):
        monkeypatch.setattr(store.events, method, out_of_reach)
    run.started(1, Timestamp())
    run.retried("sink", "no route", 1.0)
    run.ended("failed", ValueError("no"), "no")
    assert told(store) == []
