"""The metrics of a changefeed, from what the store knows."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cdc_testing.stored import DEFINITION, node

from cdc_core import Frontier, Span, Timestamp
from cdc_core.changefeeds.service import Changefeeds
from cdc_core.locality import Locality
from cdc_core.store.progress import Progress, ProgressStore, store_url
from cdc_core.store.reports import Report, report, reports
from cdc_core.store.samples import changefeed_samples
from cdc_core.store.values import DeadLetter
from cdc_core.telemetry import metrics
from cdc_core.telemetry.metrics import Metric
from cdc_core.telemetry.tally import Tally

SPAN = Span("shop.public.orders")


@pytest.fixture
def store(tmp_path: Path) -> ProgressStore:
    store = ProgressStore(store_url(tmp_path))
    store.changefeeds.register("orders", {**DEFINITION, "metrics_label": "shop"})
    return store


def save(store: ProgressStore, *, wall: float, **status: object) -> None:
    """Save a step that resolved the time *wall*, and a status."""
    epoch = store.changefeeds.begin_attempt("orders")
    frontier = Frontier([SPAN])
    frontier.forward(SPAN, Timestamp(int(wall * 1e9)))
    tally = Tally()
    tally.add(metrics.ROWS, 10)
    tally.observe(metrics.COMMIT_LATENCY, 0.2, times=10)
    letter = DeadLetter(table="t", key="[1]", updated=Timestamp(1), stage="sink", error="no")
    progress = Progress(token={"n": 1}, frontier=frontier, counters=tally.saved())
    store.progress.save("orders", epoch, progress, dead_letters=[letter])
    store.statuses.save("orders", epoch, {"phase": "running", **status})


def of(found: Report) -> dict[tuple[Metric, tuple[str, ...]], float]:
    return {(sample.metric, sample.labels[2:]): sample.value for sample in changefeed_samples(found)}


def test_a_changefeed_has_its_name_and_its_label_in_every_sample(store: ProgressStore) -> None:
    save(store, wall=time.time())
    [found] = reports(store)
    assert {sample.labels[:2] for sample in changefeed_samples(found)} == {("orders", "shop")}
    values = of(found)
    assert values[metrics.ROWS, ()] == 10
    assert values[metrics.DEAD_LETTERS_WAITING, ()] == 1
    assert values[metrics.ATTEMPTS, ()] == 1
    assert values[metrics.UP, ()] == 1
    assert values[metrics.STATE, ("running",)] == 1
    assert sum(value for (metric, _), value in values.items() if metric is metrics.STATE) == 1


def test_lags_grow_with_the_clock_although_nothing_is_saved(store: ProgressStore) -> None:
    now = time.time()
    save(store, wall=now - 5, source_silent_since=now - 3)
    [found] = reports(store)
    later = replace(found, now=datetime.fromtimestamp(now, UTC) + timedelta(seconds=20))
    values = of(later)
    assert values[metrics.LAG, ()] == pytest.approx(25, abs=0.1)
    assert values[metrics.SOURCE_LAG, ()] == pytest.approx(23, abs=0.1)
    assert values[metrics.DELIVERY_LAG, ()] == pytest.approx(2, abs=0.1)
    assert values[metrics.PROTECTED_AGE, ()] == values[metrics.LAG, ()]


def test_the_lag_of_a_run_that_is_silent_is_not_its_sources(store: ProgressStore) -> None:
    now = time.time()
    save(store, wall=now - 5, source_silent_since=now - 3)
    [found] = reports(store)
    values = of(replace(found, now=found.now + timedelta(seconds=60)))
    assert values[metrics.UP, ()] == 0
    assert values[metrics.SOURCE_LAG, ()] == 0
    assert values[metrics.DELIVERY_LAG, ()] == pytest.approx(65, abs=0.5)


def test_before_the_first_mark_the_lag_is_the_age_of_the_changefeed(store: ProgressStore) -> None:
    [found] = reports(store)
    values = of(replace(found, now=found.now + timedelta(seconds=30)))
    assert values[metrics.LAG, ()] == pytest.approx(30, abs=1)
    assert values[metrics.HIGH_WATER, ()] == 0


def test_a_changefeed_that_is_complete_has_no_lag(store: ProgressStore) -> None:
    save(store, wall=time.time(), phase="complete")
    [found] = reports(store)
    values = of(found)
    assert values[metrics.STATE, ("complete",)] == 1
    assert not {metrics.LAG, metrics.SOURCE_LAG, metrics.PROTECTED_AGE} & {metric for metric, _ in values}


def test_retries_have_their_causes_and_outlive_the_run(store: ProgressStore) -> None:
    save(store, wall=time.time(), retries={"sink": 3, "source": 1}, phase="failed")
    [found] = reports(store)
    values = of(found)
    assert (values[metrics.RETRIES, ("sink",)], values[metrics.RETRIES, ("source",)]) == (3, 1)


def test_a_paused_job_has_its_state_and_goes_on_to_age(store: ProgressStore) -> None:
    store.nodes.join(node("a"), lease_s=60)
    store.jobs.create("jobs", DEFINITION, owner="ann", locality=Locality())
    Changefeeds(store).pause("jobs", "maintenance")
    found = {each.known.name: each for each in reports(store)}["jobs"]
    values = of(replace(found, now=found.now + timedelta(hours=1)))
    assert values[metrics.STATE, ("paused",)] == 1
    assert values[metrics.PROTECTED_AGE, ()] == pytest.approx(3600, abs=2)


def test_reports_of_all_say_what_the_report_of_each_says(store: ProgressStore) -> None:
    save(store, wall=time.time(), scan={"done": 1, "total": 2, "unit": "rows"})
    [found] = reports(store)
    alone = report(store, found.known, now=found.now)
    assert {**alone.to_json(), "rescans": []} == found.to_json()
