"""Samples in the text formats that Prometheus reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from cdc_core.telemetry.metrics import Sample, labels_of

Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily
_FAMILIES: Mapping[str, type[Family]] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}


def registry_of(collect: Callable[[], Iterable[Sample]]) -> CollectorRegistry:
    """Return a registry with what *collect* returns at each scrape, in any thread."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_SampleCollector(collect))
    return registry


class _SampleCollector(Collector):
    """Gives what *collect* returns at each scrape."""

    def __init__(self, collect: Callable[[], Iterable[Sample]]) -> None:
        self._collect = collect

    def collect(self) -> Iterator[Family]:
        families: dict[str, Family] = {}
        for sample in self._collect():
            metric = sample.metric
            family = families.get(metric.name)
            if family is None:
                kind = _FAMILIES[metric.kind]
                family = families[metric.name] = kind(metric.name, metric.help, labels=labels_of(metric))
            _add(family, sample)
        yield from families.values()


def _add(family: Family, sample: Sample) -> None:
    if not isinstance(family, HistogramMetricFamily):
        family.add_metric(sample.labels, float(sample.value))
        return
    bounds = [*map(float, sample.metric.buckets), float("inf")]
    counted, buckets = 0.0, []
    for bound, count in zip(bounds, sample.counts, strict=True):
        counted += count
        buckets.append(("+Inf" if bound == float("inf") else repr(bound), counted))
    family.add_metric(sample.labels, buckets, sample.value)
