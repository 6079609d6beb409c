"""`cdc run --metrics` and `cdc run --otlp`."""

from __future__ import annotations

import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cdc_sink_kafka.demo.java_process import free_port
from cdc_testing.command import Cdc
from cdc_testing.otlp_receiver import Receiver, attributes_of, metrics_of
from cdc_testing.stored import DEFINITION

from cdc_core import Frontier
from cdc_core.cli.main import main
from cdc_core.store.progress import Progress
from cdc_core.telemetry import metrics
from cdc_core.telemetry.tally import Tally

Run = Callable[..., Any]


def test_metrics_of_the_changefeeds_of_a_run_are_served_while_it_lasts(
    file: Path, engine: Callable[[Run], None]
) -> None:
    got: list[str] = []
    port = free_port()

    def run(feed: Any, *, store: Any, **_: Any) -> None:
        for name in (feed.name, "other"):
            store.changefeeds.register(name, DEFINITION)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            got.append(answer.read().decode())

    engine(run)
    assert main(["run", str(file), f"--metrics=127.0.0.1:{port}"]) == 0
    assert 'cdc_changefeed_up{changefeed="orders",label=""} 0.0' in got[0]
    assert 'changefeed="other"' not in got[0]
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30)


def test_a_port_that_is_taken_ends_the_command_before_anything_runs(
    file: Path, engine: Callable[[Run], None], taken: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[Any] = []
    engine(lambda feed, **_: ran.append(feed))
    assert main(["run", str(file), "--metrics", taken]) == 2
    assert "cannot listen there: Address already in use" in capsys.readouterr().err
    assert ran == []


def test_a_word_that_is_no_address_is_not_taken_for_one(file: Path, cdc: Cdc) -> None:
    assert "error: --metrics orders: this is not HOST:PORT" in cdc.refused("run", file, "--metrics", "orders")


def test_what_a_run_has_delivered_is_exported_at_its_end(
    file: Path, engine: Callable[[Run], None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(feed: Any, *, store: Any, **_: Any) -> None:
        for name in (feed.name, "other"):
            store.changefeeds.register(name, DEFINITION)
            tally = Tally()
            tally.add(metrics.ROWS, 5)
            store.progress.save(
                name,
                store.changefeeds.begin_attempt(name),
                Progress(token={}, frontier=Frontier([]), counters=tally.saved()),
            )

    engine(run)
    with Receiver.listening() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer s3cret-token")
        assert main(["run", str(file), "--otlp"]) == 0
        request, headers = receiver.got.get(timeout=400)
    assert headers["authorization"] == "Bearer s3cret-token"
    rows = metrics_of(request)["cdc_changefeed_emitted_rows_total"]
    [point] = rows.sum.data_points
    assert attributes_of(point) == {"changefeed": "orders", "label": ""}
    assert point.as_double == 5
    assert 0 < point.start_time_unix_nano < point.time_unix_nano
    output = capsys.readouterr()
    assert f"metrics are sent to {receiver.url} every 60 s" in output.err
    assert "s3cret" not in output.out + output.err


def test_an_endpoint_that_is_not_there_fails_no_run_and_shows_no_secret(
    file: Path, engine: Callable[[Run], None], monkeypatch: pytest.MonkeyPatch, cdc: Cdc
) -> None:
    monkeypatch.setattr("cdc_core.web.otlp_export._LAST_S", 60.0)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1/?token=s3cret-token")
    monkeypatch.setenv("CDC_OTLP", "1")
    engine(lambda _feed, **_: None)
    error = cdc("run", file).err
    assert "metrics are sent to http://127.0.0.1:1/?token=***" in error
    assert error.count("metrics cannot be sent to http://127.0.0.1:1/?token=***; changefeeds continue") == 1
    assert "s3cret" not in error


def test_headers_that_cannot_be_read_end_the_command_without_showing_them(
    file: Path, monkeypatch: pytest.MonkeyPatch, cdc: Cdc
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "s3cret-token")
    error = cdc.refused("run", file, "--otlp")
    assert "error: --otlp: OpenTelemetry does not accept an OTEL_* variable: Header format invalid!" in error
    assert "s3cret" not in error


@pytest.mark.parametrize(
    ("library", "ours", "option"),
    [
        ("prometheus_client", ("cdc_core.web.metrics", "cdc_core.web.expo"), "metrics"),
        ("opentelemetry", ("cdc_core.web.otlp_",), "otlp"),
    ],
)
def test_without_the_library_the_error_says_how_to_install_it(
    library: str, ours: tuple[str, ...], option: str, file: Path, monkeypatch: pytest.MonkeyPatch, cdc: Cdc
) -> None:
    for module in [name for name in sys.modules if name.startswith((library, *ours))]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, library, None)
    error = f"error: --{option} needs a library: pip install 'cdc-core[{option}]'"
    assert error in cdc.refused("run", file, f"--{option}")
