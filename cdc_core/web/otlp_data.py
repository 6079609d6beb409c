"""Samples as the data that OpenTelemetry exports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.metadata import version
from typing import Any, cast

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.metrics.export import Metric as ExportedMetric
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from cdc_core.telemetry.metrics import Metric, Sample, labels_of

_CUMULATIVE = AggregationTemporality.CUMULATIVE
_UNITS = {"seconds": "s", "bytes": "By", "": ""}
"""Codes of UCUM. What is counted is an annotation there, such as {rows}."""
_UNKNOWN = cast(Any, None)
"""The smallest and the largest value of a histogram, which are not recorded."""


def metrics_data(samples: Iterable[Sample], *, resource: Resource, now_ns: int, started_ns: int) -> MetricsData:
    """Return *samples* as of *now_ns*, with the names and labels that Prometheus gets.

    Counters are monotonic sums. They and histograms are totals since `Sample.since`, or else since *started_ns*.
    """
    found: dict[str, tuple[Metric, list[Sample]]] = {}
    for sample in samples:
        found.setdefault(sample.metric.name, (sample.metric, []))[1].append(sample)
    exported = [
        ExportedMetric(
            name=metric.name,
            description=metric.help,
            unit=_UNITS.get(metric.unit, f"{{{metric.unit}}}"),
            data=_data(metric, each, now_ns, started_ns),
        )
        for metric, each in found.values()
    ]
    scope = InstrumentationScope("cdc", version("cdc-core"))
    return MetricsData([ResourceMetrics(resource, [ScopeMetrics(scope, exported, "")], "")])


def _data(metric: Metric, samples: list[Sample], now_ns: int, started_ns: int) -> Sum | Gauge | Histogram:
    if metric.kind == "gauge":
        return Gauge([_number(sample, 0, now_ns) for sample in samples])
    if metric.kind == "counter":
        return Sum([_number(sample, _since(sample, started_ns), now_ns) for sample in samples], _CUMULATIVE, True)
    return Histogram([_histogram(sample, _since(sample, started_ns), now_ns) for sample in samples], _CUMULATIVE)


def _number(sample: Sample, since_ns: int, now_ns: int) -> NumberDataPoint:
    return NumberDataPoint(_attributes(sample), since_ns, now_ns, float(sample.value))


def _histogram(sample: Sample, since_ns: int, now_ns: int) -> HistogramDataPoint:
    counts = [int(count) for count in sample.counts]
    return HistogramDataPoint(
        attributes=_attributes(sample),
        start_time_unix_nano=since_ns,
        time_unix_nano=now_ns,
        count=sum(counts),
        sum=float(sample.value),
        bucket_counts=counts,
        explicit_bounds=[float(bound) for bound in sample.metric.buckets],
        min=_UNKNOWN,
        max=_UNKNOWN,
    )


def _attributes(sample: Sample) -> Mapping[str, str]:
    return dict(zip(labels_of(sample.metric), sample.labels, strict=True))


def _since(sample: Sample, started_ns: int) -> int:
    return started_ns if sample.since is None else int(sample.since.timestamp() * 1_000_000) * 1000
