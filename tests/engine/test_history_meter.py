"""What sources retain is measured although no run does it."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import pytest
from cdc_testing.engine import counter_feed
from cdc_testing.runs import eventually
from cdc_testing.scripted import Script
from cdc_testing.stored import DEFINITION, dropped, node, progress

from cdc_core.changefeeds.service import Changefeeds
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.engine import history_meter
from cdc_core.engine.history_meter import HistoryMeter
from cdc_core.errors import ConfigError
from cdc_core.locality import Locality
from cdc_core.store.progress import ProgressStore, store_url
from cdc_core.store.reports import Report, reports


@pytest.fixture
def store(tmp_path: Path) -> ProgressStore:
    return ProgressStore(store_url(tmp_path / "store"))


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def directory(store: ProgressStore, name: str) -> Path:
    found = Path(str(store.shown)).parent / name
    found.mkdir(exist_ok=True)
    return found


def meter(store: ProgressStore) -> HistoryMeter:
    def resolve(report: Report) -> ResolvedChangefeed:
        return counter_feed(directory(store, report.known.name), name=report.known.name)

    return HistoryMeter(store.url, resolve)


def save(store: ProgressStore, name: str, source: str = "counter://one") -> None:
    """Save a step of a run that ends then."""
    store.changefeeds.register(name, {**DEFINITION, "source": source})
    epoch = store.changefeeds.begin_attempt(name)
    store.progress.save(name, epoch, progress())
    store.statuses.save(name, epoch, {"phase": "stopped"})


def measure(meter: HistoryMeter) -> int:
    """Return how many sources were asked, when they have answered."""
    begun = meter.tick()
    for thread in begun:
        thread.join(60)
        assert not thread.is_alive()
    return len(begun)


def retained(store: ProgressStore, name: str = "orders") -> float | None:
    found = store.changefeeds.find(name)
    assert found is not None
    return found.gauges.get("retained_bytes")


def test_what_the_source_of_a_stopped_changefeed_says_is_logged_once(
    store: ProgressStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(history_meter, "EVERY_S", 0.0)
    save(store, "orders")
    measuring = meter(store)
    measure(measuring)
    assert not warnings(caplog)
    (directory(store, "orders") / "notice-of-the-source").write_text("the slot is lost at noon")
    for _ in range(2):
        measure(measuring)
    assert warnings(caplog) == ["changefeed 'orders': the slot is lost at noon"]


def test_what_is_retained_for_a_stopped_changefeed_is_measured(
    store: ProgressStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(store, "orders")
    assert measure(meter(store)) == 1
    assert retained(store) == 7.0
    (directory(store, "orders") / "retained-of-the-source").write_text("67e6")
    monkeypatch.setattr(history_meter, "EVERY_S", 0.0)
    began = time.time()
    measure(meter(store))
    [found] = reports(store)
    assert found.gauges == {"retained_bytes": 67e6}
    assert found.known.measured_at is not None
    assert found.known.measured_at.timestamp() >= began
    assert found.tally.saved()["rows"] == 10, "what a run has counted stays"


def test_a_minute_belongs_to_the_one_who_begins_to_measure(store: ProgressStore) -> None:
    save(store, "orders")
    first, second = meter(store), meter(store)
    Script(directory(store, "orders")).order("hold-metrics")
    [thread] = first.tick()
    eventually("the first one measures", (directory(store, "orders") / "hold-metrics.held").exists)
    assert measure(second) == 1
    assert retained(store) is None, "it was not asked twice"
    (directory(store, "orders") / "hold-metrics").unlink()
    thread.join(60)
    assert retained(store) == 7.0
    assert measure(second) == 0


def test_a_source_that_hangs_delays_no_other_and_is_not_asked_again(
    store: ProgressStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(history_meter, "EVERY_S", 0.0)
    save(store, "orders", "counter://one")
    save(store, "users", "counter://two")
    Script(directory(store, "orders")).order("hold-metrics")
    found = meter(store)
    hanging, other = found.tick()
    other.join(60)
    assert (retained(store, "orders"), retained(store, "users")) == (None, 7.0)
    [again] = found.tick()
    again.join(60)
    assert hanging.is_alive()
    assert warnings(caplog) == [
        "changefeed 'orders': cannot measure what its source retains: its source does not answer"
    ]
    (directory(store, "orders") / "hold-metrics").unlink()
    hanging.join(60)
    assert retained(store, "orders") == 7.0


def test_what_cannot_be_measured_keeps_its_value_and_its_age(
    store: ProgressStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(history_meter, "EVERY_S", 0.0)
    monkeypatch.setattr(history_meter, "_AFTER_FAILURE_S", 0.0)
    save(store, "orders")
    found = meter(store)
    measure(found)
    [before] = reports(store)
    Script(directory(store, "orders")).order("metrics", "RetryableRangefeedError no route to one", times=2)
    with caplog.at_level(logging.WARNING):
        measure(found)
        measure(found)
    [after] = reports(store)
    assert (after.gauges, after.known.measured_at) == (before.gauges, before.known.measured_at)
    why = "cannot measure what its source retains: no route to one"
    assert warnings(caplog) == [f"changefeed 'orders': {why}"], "once"
    dropped(store)
    measure(found)
    assert not found._complaints, "nothing stays of a changefeed that is gone"


def test_another_process_has_its_turn_after_one_that_cannot_measure(store: ProgressStore) -> None:
    def refuse(report: Report) -> ResolvedChangefeed:
        raise ConfigError("PASSWORD is not set")

    save(store, "orders")
    assert measure(HistoryMeter(store.url, refuse)) == 1
    assert measure(HistoryMeter(store.url, lambda _: None)) == 1
    assert measure(meter(store)) == 1
    assert retained(store) == 7.0


def test_a_job_that_holds_nothing_any_more_is_not_measured(store: ProgressStore) -> None:
    store.jobs.create("orders", DEFINITION, owner="ann", locality=Locality())
    assert measure(meter(store)) == 0, "nothing is there before the first token"
    one = store.nodes.join(node("one"), lease_s=600)
    adopted = store.claims.adopt("orders", one)
    assert adopted is not None
    store.progress.save("orders", adopted.epoch, progress())
    Changefeeds(store).pause("orders", "maintenance")
    assert measure(meter(store)) == 1
    Changefeeds(store).cancel("orders", "not needed")
    store.claims.settle("orders", one, "stopped")
    store.claims.settle("orders", one, "reverted")
    [found] = reports(store)
    assert (found.state, found.gauges, retained(store)) == ("canceled", {}, 7.0)
    assert measure(meter(store)) == 0


def test_an_attempt_that_begins_meanwhile_is_left_alone(store: ProgressStore, caplog: pytest.LogCaptureFixture) -> None:
    save(store, "orders")
    Script(directory(store, "orders")).order("hold-metrics")
    [thread] = meter(store).tick()
    eventually("it is measured", (directory(store, "orders") / "hold-metrics.held").exists)
    store.changefeeds.begin_attempt("orders")
    (directory(store, "orders") / "hold-metrics").unlink()
    thread.join(60)
    assert (retained(store), warnings(caplog)) == (None, [])
