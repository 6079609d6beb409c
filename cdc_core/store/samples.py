"""The metrics of changefeeds, from what the progress store knows of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import get_args

from cdc_core.store.job_values import JobRecord, JobState, NodeRecord
from cdc_core.store.liveness import ENDINGS
from cdc_core.store.reports import Report
from cdc_core.telemetry import metrics
from cdc_core.telemetry.metrics import Sample
from cdc_core.telemetry.tally import gauge_samples

STATES: Sequence[str] = tuple(
    dict.fromkeys((*get_args(JobState), "retrying", "new", "unknown", "silent", *ENDINGS.values()))
)
"""Every state of a changefeed, whether or not it is a job."""
_SAVED = tuple(metric for metric in metrics.CHANGEFEED_METRICS if metric.saved_as is not None)


def changefeed_samples(report: Report) -> Iterator[Sample]:
    """Yield the metrics of one changefeed, with the labels of all of them, as of `report.now`."""
    known = report.known
    label = known.definition.get("metrics_label", "")
    for sample in _samples(report):
        yield Sample(sample.metric, sample.value, (known.name, label, *sample.labels), sample.counts, known.created)


def job_samples(jobs: Sequence[JobRecord], nodes: Sequence[NodeRecord]) -> Iterator[Sample]:
    """Yield what every node says of the store: how many jobs are in each state, and how many nodes are alive."""
    for state in get_args(JobState):
        yield Sample(metrics.JOBS, sum(job.state == state for job in jobs), (state,))
    yield Sample(metrics.NODES, len(nodes))


def _samples(report: Report) -> Iterator[Sample]:
    tally, known, now = report.tally, report.known, report.now.timestamp()
    for metric in _SAVED:
        yield from tally.samples(metric)
    yield from gauge_samples(report.gauges)
    if report.gauges and report.gauges_age_s is not None:
        yield Sample(metrics.SOURCE_AGE, report.gauges_age_s)
    status = {} if report.status is None else report.status.values
    for cause, count in status.get("retries", {}).items():
        yield Sample(metrics.RETRIES, count, (cause,))
    yield Sample(metrics.ATTEMPTS, known.epoch)
    yield Sample(metrics.DEAD_LETTERS_WAITING, report.dead_letters)
    yield Sample(metrics.HIGH_WATER, known.high_water.wall / 1e9)
    if known.saved_at is not None:
        yield Sample(metrics.CHECKPOINT_AGE, max(0.0, now - known.saved_at.timestamp()))
    if report.progress is not None and report.progress.emitted:
        yield Sample(metrics.RESOLVED_AGE, max(0.0, now - report.progress.emitted.wall / 1e9))
    alive = report.is_alive
    yield Sample(metrics.UP, alive)
    yield Sample(metrics.RETRYING, report.retrying is not None)
    for state in STATES:
        yield Sample(metrics.STATE, state == report.state, (state,))
    scan = status.get("scan") if alive else None
    if scan is not None:
        yield Sample(metrics.SCAN_DONE, scan["done"], (scan["unit"],))
        yield Sample(metrics.SCAN_SIZE, scan["total"], (scan["unit"],))
    if report.behind_s is not None:
        yield from _lags(report, report.behind_s, status.get("source_silent_since") if alive else None)


def _lags(report: Report, since: float, silent_since: float | None) -> Iterator[Sample]:
    now = report.now.timestamp()
    source = 0.0 if silent_since is None else min(since, max(0.0, now - silent_since))
    yield Sample(metrics.LAG, since)
    yield Sample(metrics.SOURCE_LAG, source)
    yield Sample(metrics.DELIVERY_LAG, since - source)
    protected = since if report.job is None else report.protected_age_s
    if protected is not None:
        yield Sample(metrics.PROTECTED_AGE, protected)
