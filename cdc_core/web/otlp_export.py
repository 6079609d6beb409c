"""Sends metrics to an endpoint of OTLP, with the exporters of OpenTelemetry."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, closing
from importlib.metadata import entry_points, version
from typing import Any, cast

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    MetricExporter,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.metrics.export import Metric as ExportedMetric
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from cdc_core.errors import ConfigError
from cdc_core.masking import mask, secret_forms
from cdc_core.telemetry.metrics import Metric, Sample, labels_of
from cdc_core.web.otlp_settings import OtlpSettings, otlp_secrets

log = logging.getLogger(__name__)

_EXPORTERS = {
    "http/protobuf": ("otlp_proto_http", "cdc-core[otlp]"),
    "grpc": ("otlp_proto_grpc", "opentelemetry-exporter-otlp-proto-grpc"),
}
_LAST_S = 3.0
"""How long the end of a process may wait for the last export."""
_MAX_SHOWN = 300


class OtlpExport(AbstractContextManager["OtlpExport"]):
    """Exports what *collect* returns, from a thread of its own, until it is closed; then once more.

    *instance* tells processes apart. The variables OTEL_* rule everything else. An endpoint that does not answer costs
    one warning, until it answers again. The log of OpenTelemetry is not shown meanwhile.
    Raises: ConfigError when a library is missing or a variable is wrong.
    """

    def __init__(self, settings: OtlpSettings, collect: Callable[[], Iterable[Sample]], *, instance: str) -> None:
        self._settings = settings
        self._collect = collect
        self._started_ns = time.time_ns()
        self._told = _Told()
        self._works = True
        self._over = threading.Event()
        try:
            self._exporter = _exporter(settings.protocol)
            self._resource = _resource(instance)
            if self._told.text is not None:
                raise ConfigError(f"--otlp: OpenTelemetry does not accept an OTEL_* variable: {self._told.text}")
        except BaseException:
            self._told.close()
            raise
        self._thread = threading.Thread(target=self._run, name="otlp", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Export once more, if the endpoint answered the last time. Return after a few seconds at most."""
        self._over.set()
        self._thread.join(_LAST_S)
        self._exporter.shutdown()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        with closing(self._told):
            while not self._over.wait(self._settings.interval_s):
                self._export()
            if self._works:
                self._export()

    def _export(self) -> None:
        self._told.forget()
        try:
            data = metrics_data(
                self._collect(), resource=self._resource, now_ns=time.time_ns(), started_ns=self._started_ns
            )
            works = self._exporter.export(data) is MetricExportResult.SUCCESS
            reason = self._told.text
        except Exception as error:  # it must not end the export for good
            works, reason = False, str(error)
        if works and not self._works:
            log.info("metrics are sent to %s again", self._settings.endpoint)
        elif self._works and not works:
            log.warning(
                "metrics cannot be sent to %s; changefeeds continue without them (logged once per outage): %s",
                self._settings.endpoint,
                reason or "no answer",
            )
        self._works = works


class _Told(logging.Handler):
    """Keeps the last of the gravest messages of OpenTelemetry, masked, and shows none: it repeats them."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.text: str | None = None
        self._gravest = logging.NOTSET
        self._logger = logging.getLogger("opentelemetry")
        self._logger.addHandler(self)
        self._propagated, self._logger.propagate = self._logger.propagate, False

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= self._gravest:
            self._gravest = record.levelno
            text = " ".join(mask(record.getMessage(), secret_forms(otlp_secrets())).split())
            self.text = text[:_MAX_SHOWN]

    def forget(self) -> None:
        self.text, self._gravest = None, logging.NOTSET

    def close(self) -> None:
        self._logger.removeHandler(self)
        self._logger.propagate = self._propagated
        super().close()


def _exporter(protocol: str) -> MetricExporter:
    name, distribution = _EXPORTERS[protocol]
    for found in entry_points(group="opentelemetry_metrics_exporter", name=name):
        exporter: MetricExporter = found.load()()
        return exporter
    raise ConfigError(f"--otlp by {protocol} needs a library: pip install '{distribution}'")


def _resource(instance: str) -> Resource:
    """Return what all metrics have in common, where OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES do not say it."""
    given: Mapping[str, object] = OTELResourceDetector().detect().attributes
    ours = {"service.name": "cdc", "service.version": version("cdc-core"), "service.instance.id": instance}
    return Resource.create({name: value for name, value in ours.items() if name not in given})


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
