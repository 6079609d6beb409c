"""What is counted by metric, and how it is saved."""

from __future__ import annotations

import json

import numpy as np
import pytest

from cdc_core.telemetry import metrics
from cdc_core.telemetry.metrics import METRICS, Metric
from cdc_core.telemetry.tally import Tally, gauge_samples, gauges_of, keep_gauges, measure_once, measured_at


def test_totals_go_on_from_what_was_saved() -> None:
    first = Tally()
    first.add(metrics.ROWS, 3)
    first.add(metrics.STAGE_SECONDS, 0.25, "sink")
    later = Tally(json.loads(json.dumps(first.saved())))
    later.add(metrics.ROWS, 4)
    assert later.value(metrics.ROWS) == 7
    assert [(sample.labels, sample.value) for sample in later.samples(metrics.STAGE_SECONDS)] == [(("sink",), 0.25)]
    assert first.value(metrics.ROWS) == 3


def test_a_histogram_counts_a_value_at_its_bound_in_that_bucket() -> None:
    tally = Tally()
    for value in (0.005, 0.0051, 4000.0):
        tally.observe(metrics.COMMIT_LATENCY, value, times=2)
    [sample] = tally.samples(metrics.COMMIT_LATENCY)
    assert [(index, count) for index, count in enumerate(sample.counts) if count] == [
        (0, 2),
        (1, 2),
        (len(metrics.COMMIT_LATENCY.buckets), 2),
    ]
    assert sample.value == pytest.approx(8000.0202)


def test_values_counted_together_are_those_counted_one_by_one() -> None:
    together, one_by_one = Tally(), Tally()
    sizes = np.array([0, 63, 64, 65, 5000, 2**30])
    together.observe_all(metrics.MESSAGE_BYTES, sizes)
    together.observe_all(metrics.MESSAGE_BYTES, sizes[:0])
    for size in sizes:
        one_by_one.observe(metrics.MESSAGE_BYTES, int(size))
    assert together.saved() == one_by_one.saved()


def test_merging_tallies_of_tasks_adds_them() -> None:
    tasks = [Tally(), Tally()]
    for task in tasks:
        task.observe(metrics.BATCH_ROWS, 50)
    whole = Tally()
    for task in tasks:
        whole.merge(task.saved())
    [sample] = whole.samples(metrics.BATCH_ROWS)
    assert (sum(sample.counts), sample.value) == (2, 100)


def test_the_gauges_of_a_source_have_base_units_by_their_names() -> None:
    tally = Tally()
    given = {"retained_bytes": 5.0, "snapshot_age_s": 2.0, "replicas": 3.0}
    keep_gauges(tally, {"retained_bytes": 1.0, "of_a_scan": 1.0}, at=5.0)
    keep_gauges(tally, given, at=7.0)
    assert (gauges_of(tally), measured_at(tally)) == (given, 7.0)
    assert [(sample.metric, sample.labels, sample.value) for sample in gauge_samples(given)] == [
        (metrics.SOURCE_BYTES, ("retained",), 5.0),
        (metrics.SOURCE_SECONDS, ("snapshot_age",), 2.0),
        (metrics.SOURCE_VALUE, ("replicas",), 3.0),
    ]


def test_of_those_who_want_to_measure_one_does_and_only_when_it_is_due() -> None:
    tally = Tally()
    asked = [measure_once(tally, at=at, every_s=60) for at in (1000.0, 1000.1, 1059.0, 1060.0)]
    assert asked == [True, False, False, True]
    keep_gauges(tally, {}, at=1070.0)
    assert [measure_once(tally, at=at, every_s=60) for at in (1125.0, 1130.0)] == [False, True]
    assert measure_once(tally, at=10.0, every_s=60), "a clock that was ahead must not stop it for long"


def test_no_two_metrics_share_a_name_or_a_place_in_the_saved_progress() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    saved = [metric.saved_as for metric in METRICS if metric.saved_as is not None]
    assert len(set(saved)) == len(saved)
    assert "source" not in saved  # the gauges of sources are there


def test_names_end_with_a_base_unit_where_there_is_one() -> None:
    for metric in METRICS:
        if metric.unit in ("seconds", "bytes"):
            assert metric.name.removesuffix("_total").endswith(f"_{metric.unit}"), metric.name


@pytest.mark.parametrize(("kind", "buckets"), [("counter", ()), ("gauge", (1.0,)), ("histogram", ())])
def test_a_metric_that_is_not_of_its_kind_is_refused(kind: str, buckets: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="cdc_x is not a"):
        Metric(name="cdc_x", kind=kind, unit="", help="", buckets=buckets)  # type: ignore[arg-type]
