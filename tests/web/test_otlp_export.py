"""Metrics by OTLP: what an endpoint gets, and that one which does not answer does no harm."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from typing import Any

import grpc
import pytest
from cdc_testing.otlp_receiver import Receiver, attributes_of, metrics_of
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality
from opentelemetry.sdk.metrics.export import MetricExportResult

from cdc_core.errors import ConfigError
from cdc_core.telemetry import metrics
from cdc_core.telemetry.metrics import METRICS, Sample, labels_of
from cdc_core.web.otlp_export import OtlpExport
from cdc_core.web.otlp_settings import OtlpSettings, otlp_secrets
from cdc_core.web.watched import Watched

CREATED = datetime(2026, 1, 31, 12, tzinfo=UTC)
CUMULATIVE = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "100000")


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver.listening() as listening:
        yield listening


@contextmanager
def exporting(samples: Sequence[Sample] | Callable[[], Sequence[Sample]] = ()) -> Iterator[OtlpExport]:
    settings = OtlpSettings.of()
    assert settings is not None
    collect = samples if callable(samples) else lambda: samples
    with OtlpExport(settings, collect, instance="node-a") as export:
        yield export


def every_metric() -> list[Sample]:
    return [
        Sample(
            metric,
            7.5,
            tuple(f"value of {label}" for label in labels_of(metric)),
            counts=[2.0] * (len(metric.buckets) + 1) if metric.buckets else (),
            since=CREATED,
        )
        for metric in METRICS
    ]


def test_every_metric_is_exported_with_the_name_unit_and_labels_of_the_list(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
    with exporting(every_metric()):
        pass
    request, _ = receiver.got.get(timeout=400)
    found = metrics_of(request)
    assert list(found) == [metric.name for metric in METRICS]
    units = {"seconds": "s", "bytes": "By", "": ""}
    since = int(CREATED.timestamp()) * 10**9
    for metric in METRICS:
        exported = found[metric.name]
        assert exported.description == metric.help
        assert exported.unit == units.get(metric.unit, f"{{{metric.unit}}}")
        kind = {"counter": "sum", "gauge": "gauge", "histogram": "histogram"}[metric.kind]
        assert exported.WhichOneof("data") == kind
        data = getattr(exported, kind)
        [point] = data.data_points
        assert attributes_of(point) == {label: f"value of {label}" for label in labels_of(metric)}
        if metric.kind != "gauge":
            assert data.aggregation_temporality == CUMULATIVE
            assert point.start_time_unix_nano == since
        if metric.kind == "counter":
            assert data.is_monotonic
        if metric.kind == "histogram":
            assert list(point.explicit_bounds) == list(metric.buckets)
            assert list(point.bucket_counts) == [2] * (len(metric.buckets) + 1)
            assert (point.count, point.sum) == (2 * len(point.bucket_counts), 7.5)
            assert not point.HasField("min")
        else:
            assert point.as_double == 7.5


def test_the_variables_of_opentelemetry_rule_what_is_sent_and_how(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": f"{receiver.url}/somewhere",
        "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20s3cret-token,x-tenant=1",
        "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
        "OTEL_METRIC_EXPORT_INTERVAL": "10",
        "OTEL_RESOURCE_ATTRIBUTES": "service.name=shop,deployment.environment.name=test",
    }.items():
        monkeypatch.setenv(name, value)
    with exporting([Sample(metrics.STORE_UP, True)]):
        first, headers = receiver.got.get(timeout=400)
        receiver.got.get(timeout=400)
    assert headers["path"] == "/somewhere"
    assert (headers["authorization"], headers["x-tenant"]) == ("Bearer s3cret-token", "1")
    resource = attributes_of(first.resource_metrics[0].resource)
    assert (
        resource.items()
        >= {"service.name": "shop", "service.instance.id": "node-a", "deployment.environment.name": "test"}.items()
    )
    assert {"Bearer%20s3cret-token", "Bearer s3cret-token", "s3cret-token"} <= otlp_secrets()
    assert "1" not in otlp_secrets()


def test_only_headers_whose_names_look_secret_are_masked() -> None:
    headers = "X-Scope-OrgID=orders,api-key=s3cret-key,signoz-ingestion-key=k3y-of-signoz,Cookie=a=s3cret-cookie"
    assert otlp_secrets({"OTEL_EXPORTER_OTLP_HEADERS": headers}) == {"s3cret-key", "k3y-of-signoz", "a=s3cret-cookie"}
    for unparsable in ("s3cret", "=s3cret", "a:s3cret=="):
        assert unparsable in otlp_secrets({"OTEL_EXPORTER_OTLP_HEADERS": unparsable})


def test_a_warning_is_the_last_of_the_gravest_and_masked_before_it_is_cut(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    secret = "s3cret-" * 10
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"authorization={secret}")

    def collect() -> Sequence[Sample]:
        logger = logging.getLogger("opentelemetry.exporter")
        logger.error("first")
        logger.error("%s%s", "x" * 290, secret)
        logger.warning("retrying in 1.02s")
        return [Sample(metrics.STORE_UP, True)]

    monkeypatch.setattr(
        "opentelemetry.exporter.otlp.proto.http.metric_exporter.OTLPMetricExporter.export",
        lambda *_, **__: MetricExportResult.FAILURE,
    )
    with exporting(collect):
        pass
    assert caplog.records[0].getMessage().endswith(f"once per outage): {'x' * 290}***")


def test_a_total_without_a_beginning_of_its_own_begins_with_the_process(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "10")
    with exporting([Sample(metrics.NODE_ADOPTIONS, 3)]):
        points = [
            metrics_of(receiver.got.get(timeout=400)[0])["cdc_node_adopted_jobs_total"].sum.data_points[0]
            for _ in range(2)
        ]
    assert points[0].start_time_unix_nano == points[1].start_time_unix_nano
    assert points[0].start_time_unix_nano < points[0].time_unix_nano < points[1].time_unix_nano


def test_an_endpoint_that_fails_is_reported_once_and_again_when_it_works(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url.replace("//", "//me:s3cret@"))
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "10")
    receiver.status = 400
    with exporting([Sample(metrics.STORE_UP, True)]):
        for _ in range(4):
            receiver.got.get(timeout=400)
        receiver.status = 200
        for _ in range(6):
            receiver.got.get(timeout=400)
    place = receiver.url.replace("//", "//me:***@")
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        (
            "WARNING",
            f"metrics cannot be sent to {place}; changefeeds continue without them (logged once per outage):"
            " Failed to export metrics batch code: 400, reason: Bad Request",
        ),
        ("INFO", f"metrics are sent to {place} again"),
    ]


def test_an_endpoint_that_is_silent_holds_up_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It accepts connections, and never answers. The end of the process waits for a moment, not for the exporter."""
    monkeypatch.setattr("cdc_core.web.otlp_export._LAST_S", 0.05)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.3")
    collected: list[bool] = []
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")

        def collect() -> Sequence[Sample]:
            collected.append(True)
            return [Sample(metrics.STORE_UP, True)]

        with exporting(collect) as export:
            pass
        assert export._thread.is_alive(), "nobody waited for the answer"
        export._thread.join(400)
    assert collected == [True]
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "Failed to export metrics batch due to timeout" in caplog.text


def test_a_progress_store_that_is_silent_does_not_hold_up_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cdc_core.web.otlp_export._LAST_S", 0.05)
    monkeypatch.setattr("cdc_core.web.watched._LAST_S", 0.05)
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "1")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        store = f"postgresql://cdc@127.0.0.1:{silent.getsockname()[1]}/cdc"
        with closing(Watched(store)) as watched, exporting(watched.samples) as export:
            asking, _ = silent.accept()
        assert export._thread.is_alive(), "nobody waited for the store"
        asking.close()
    export._thread.join(400)


def test_samples_that_cannot_be_collected_end_nothing(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "10")
    answers: list[Any] = [RuntimeError("broken"), [Sample(metrics.STORE_UP, True)]]

    def collect() -> Sequence[Sample]:
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        return list(answer)

    with exporting(collect):
        receiver.got.get(timeout=400)
    assert "once per outage): broken" in caplog.text


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("OTEL_METRIC_EXPORT_INTERVAL", "soon", "OTEL_METRIC_EXPORT_INTERVAL=soon: write milliseconds, such as 10000"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "nan", "OTEL_METRIC_EXPORT_INTERVAL=nan: write milliseconds"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318", "has no scheme; write a URL such as http://localhost:4318"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json", "OTEL_EXPORTER_OTLP_PROTOCOL=http/json: choose http/protobuf or"),
        ("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "delta", "let a collector convert them to deltas"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "brotli", "does not accept an OTEL_.* variable: Unsupported compression"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "s3cret", "does not accept an OTEL_.* variable: Header format invalid"),
    ],
)
def test_a_variable_that_cannot_be_followed_is_an_error(
    name: str, value: str, complaint: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=complaint), exporting():
        pass
    assert caplog.records == []
    assert "s3cret" in otlp_secrets() or value != "s3cret"
    logging.getLogger("opentelemetry.sdk").warning("what others log is shown again")
    assert len(caplog.records) == 1


def test_a_disabled_sdk_exports_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    assert OtlpSettings.of() is None


def test_grpc_reaches_an_endpoint_too(monkeypatch: pytest.MonkeyPatch) -> None:
    got: list[Any] = []

    class Service(metrics_service_pb2_grpc.MetricsServiceServicer):
        def Export(self, request: Any, context: Any) -> Any:  # noqa: N802
            got.append((request, dict(context.invocation_metadata())))
            return metrics_service_pb2.ExportMetricsServiceResponse()

    server = grpc.server(ThreadPoolExecutor(1))
    metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(Service(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=shop")
    with exporting([Sample(metrics.STORE_UP, True)]):
        pass
    server.stop(None).wait(30)
    [(request, headers)] = got
    assert list(metrics_of(request)) == ["cdc_store_up"]
    assert headers["x-tenant"] == "shop"


def test_grpc_without_its_library_names_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    monkeypatch.setattr("cdc_core.web.otlp_export.entry_points", lambda **_: ())
    with pytest.raises(ConfigError, match="pip install 'opentelemetry-exporter-otlp-proto-grpc'"), exporting():
        pass
