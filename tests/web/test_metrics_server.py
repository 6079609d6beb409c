"""The endpoint /metrics: what a scraper gets, and who gets nothing."""

from __future__ import annotations

import http.client
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from cdc_testing.stored import DEFINITION, die, node
from prometheus_client.parser import text_string_to_metric_families

from cdc_core import Frontier, Span, Timestamp
from cdc_core.changefeeds.service import Changefeeds
from cdc_core.errors import ConfigError
from cdc_core.locality import Locality
from cdc_core.store.progress import Progress, ProgressStore
from cdc_core.telemetry import metrics
from cdc_core.telemetry.metrics import METRICS, Sample, labels_of
from cdc_core.telemetry.tally import Tally
from cdc_core.web.address import Address
from cdc_core.web.metrics_server import MetricsServer
from cdc_core.web.watched import NodeView, Watched

LOOPBACK = Address("127.0.0.1", 0)


def get(
    server: MetricsServer, path: str = "/metrics", *, method: str = "GET", host: str | None = None
) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.address.port, timeout=30)
    connection.request(method, path, headers={} if host is None else {"Host": host})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def scrape(server: MetricsServer) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Return what Prometheus would read, by name and labels."""
    status, text = get(server)
    assert status == 200
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


@contextmanager
def serving(store: ProgressStore, *names: str, view: NodeView | None = None) -> Iterator[MetricsServer]:
    watched = Watched(store.url, names=frozenset(names) or None, node=view)
    with MetricsServer(LOOPBACK, watched.samples) as server:
        yield server
    watched.close()


def step(store: ProgressStore, name: str, epoch: int, *, rows: int) -> None:
    tally = Tally()
    tally.add(metrics.ROWS, rows)
    for latency, times in ((0.2, rows - 1), (7200.0, 1)):
        tally.observe(metrics.COMMIT_LATENCY, latency, times=times)
    frontier = Frontier([Span("shop.public.orders")])
    frontier.forward(Span("shop.public.orders"), Timestamp(time.time_ns() - 5_000_000_000))
    store.progress.save(name, epoch, Progress(token={}, frontier=frontier, counters=tally.saved()))


def test_the_changefeeds_of_the_process_and_no_others_are_served(store: ProgressStore) -> None:
    for name in ("orders", "users", "others"):
        store.changefeeds.register(name, DEFINITION)
        step(store, name, store.changefeeds.begin_attempt(name), rows=10)
    with serving(store, "orders", "users") as server:
        found = scrape(server)
    rows = found["cdc_changefeed_emitted_rows_total"]
    assert {dict(labels)["changefeed"]: value for labels, value in rows.items()} == {"orders": 10, "users": 10}
    buckets = {
        dict(labels)["le"]: value
        for labels, value in found["cdc_changefeed_commit_latency_seconds_bucket"].items()
        if dict(labels)["changefeed"] == "orders"
    }
    assert (buckets["0.1"], buckets["0.25"], buckets["3600.0"], buckets["+Inf"]) == (0, 9, 9, 10)
    assert min(found["cdc_changefeed_lag_seconds"].values()) >= 5
    assert found["cdc_store_up"] == {(): 1}


def test_every_metric_can_be_exposed_with_its_labels() -> None:
    samples = [
        Sample(metric, 1.0, ("x",) * len(labels_of(metric)), counts=[1.0] * (len(metric.buckets) + 1))
        for metric in METRICS
    ]
    with MetricsServer(LOOPBACK, lambda: samples) as server:
        found = scrape(server)
    for metric in METRICS:
        [labels] = found[metric.name if metric.kind != "histogram" else f"{metric.name}_count"]
        assert [name for name, _ in labels] == sorted(labels_of(metric))


def test_what_a_run_saves_is_seen_by_the_next_scrape(store: ProgressStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cdc_core.web.watched._FRESH_S", 0.0)
    store.changefeeds.register("orders", DEFINITION)
    epoch = store.changefeeds.begin_attempt("orders")
    with serving(store, "orders") as server:
        seen = []
        for rows in (3, 4):
            step(store, "orders", epoch, rows=rows)
            [value] = scrape(server)["cdc_changefeed_emitted_rows_total"].values()
            seen.append(value)
    assert seen == [3, 4]


def test_lags_go_on_and_it_is_said_when_the_store_cannot_be_read(
    store: ProgressStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cdc_core.web.watched._FRESH_S", 0.0)
    store.changefeeds.register("orders", DEFINITION)
    step(store, "orders", store.changefeeds.begin_attempt("orders"), rows=3)
    with serving(store, "orders") as server:
        [before] = scrape(server)["cdc_changefeed_lag_seconds"].values()
        Path(store.url.removeprefix("sqlite:///")).unlink()
        found = scrape(server)
    [lag] = found["cdc_changefeed_lag_seconds"].values()
    assert lag > before
    assert found["cdc_store_up"] == {(): 0}


def test_each_job_has_its_metrics_at_one_node(store: ProgressStore) -> None:
    a, b = (store.nodes.join(replace(node(name), cores=2), lease_s=60) for name in "ab")
    store.cluster.poll(b)
    for name in ("mine", "yours", "paused", "canceled"):
        store.jobs.create(name, DEFINITION, owner="ann", locality=Locality())
    assert store.claims.adopt("mine", a)
    assert store.claims.adopt("yours", b)
    Changefeeds(store).pause("paused", "maintenance")
    Changefeeds(store).cancel("canceled", "no use")
    reverted = store.claims.adopt("canceled", b)
    assert reverted
    store.claims.settle("canceled", b, "stopped", clean=True)
    store.claims.settle("canceled", b, "reverted", clean=True)
    seen = {}
    for name in "ab":
        with serving(store, view=NodeView(name=name, samples=list)) as server:
            found = scrape(server)
        seen[name] = {dict(labels)["changefeed"] for labels in found["cdc_changefeed_up"]}
        assert found["cdc_jobs"][(("state", "paused"),)] == 1
        assert found["cdc_nodes"] == {(): 2}
        assert found["cdc_node_jobs"] == {(): 1}
        assert (found["cdc_node_leads"], found["cdc_node_cores"]) == ({(): name == "b"}, {(): 2})
    assert sorted(seen.values(), key=len) == [{"yours"}, {"mine", "paused"}]
    die(store, a)
    with serving(store, view=NodeView(name="b", samples=list)) as server:
        found = scrape(server)
    assert {dict(labels)["changefeed"] for labels in found["cdc_changefeed_up"]} == {"mine", "yours", "paused"}


def test_a_page_of_another_site_gets_nothing(store: ProgressStore) -> None:
    with serving(store) as server:
        assert get(server, host="rebound.example:9464") == (
            421,
            "this server does not answer to the name 'rebound.example:9464'\n",
        )
        assert get(server, host="localhost")[0] == 200


@pytest.mark.parametrize(("path", "method", "status"), [("/", "GET", 404), ("/metrics", "POST", 405)])
def test_there_is_nothing_else(store: ProgressStore, path: str, method: str, status: int) -> None:
    with serving(store) as server:
        assert get(server, path, method=method)[0] == status


def test_a_port_that_is_taken_is_named(taken: str) -> None:
    with pytest.raises(ConfigError) as raised:
        MetricsServer(Address.parse(taken, option="--metrics"), list)
    assert str(raised.value) == (
        f"--metrics {taken}: this process cannot listen there: Address already in use; choose another address with"
        " --metrics=HOST:PORT"
    )


def test_a_connection_that_is_idle_or_reset_prints_nothing(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("cdc_core.web.metrics_server._QuietHandler.timeout", 0.05)
    caplog.set_level("DEBUG", "cdc_core.web.metrics_server")
    with MetricsServer(LOOPBACK, list) as server:
        idle = socket.create_connection(("127.0.0.1", server.address.port), timeout=30)
        assert idle.recv(1) == b""
        idle.close()
        reset = socket.create_connection(("127.0.0.1", server.address.port), timeout=30)
        reset.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        reset.send(b"GET")
        reset.close()
        assert get(server)[0] == 200
    assert capfd.readouterr() == ("", "")
    assert caplog.records
    assert {record.levelname for record in caplog.records} == {"DEBUG"}


def states(server: MetricsServer) -> dict[str, str]:
    """Return the state of each changefeed that is exposed."""
    found = scrape(server).get("cdc_changefeed_state", {})
    return {dict(labels)["changefeed"]: dict(labels)["state"] for labels, value in found.items() if value}


def test_what_nobody_runs_is_exposed_by_the_first_node_and_by_a_server_without_nodes(store: ProgressStore) -> None:
    store.changefeeds.register("stopped", DEFINITION)
    step(store, "stopped", epoch := store.changefeeds.begin_attempt("stopped"), rows=10)
    store.statuses.save("stopped", epoch, {"phase": "stopped"})
    store.progress.save_gauges("stopped", epoch, {"retained_bytes": 67e6})
    store.changefeeds.register("running", DEFINITION)
    store.statuses.save("running", store.changefeeds.begin_attempt("running"), {"phase": "running"})
    store.jobs.create("paused", DEFINITION, owner="ann", locality=Locality())
    Changefeeds(store).pause("paused", "maintenance")
    with serving(store) as server:
        assert states(server) == {"stopped": "stopped", "paused": "paused"}
        found = scrape(server)
    [retained] = found["cdc_changefeed_source_bytes"].items()
    assert (dict(retained[0])["gauge"], retained[1]) == ("retained", 67e6)
    [age] = found["cdc_changefeed_source_age_seconds"].values()
    assert 0 <= age < 60
    for name in ("one", "two"):
        store.nodes.join(node(name), lease_s=600)
    for name, shown in (("one", {"stopped": "stopped", "paused": "paused"}), ("two", {})):
        with serving(store, view=NodeView(name=name, samples=list)) as server:
            assert states(server) == shown
    with serving(store) as server:
        assert states(server) == {}
