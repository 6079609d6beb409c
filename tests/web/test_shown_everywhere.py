"""What is shown of a changefeed for which nothing works: the same by commands, the page, REST, Connect and metrics."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from cdc_testing.rest_rig import Rest, config, serving_rest
from cdc_testing.stored import node, progress

from cdc_core.cli.main import main
from cdc_core.store.job_values import NodeRecord
from cdc_core.store.opening import open_engine
from cdc_core.store.reports import reports
from cdc_core.store.samples import changefeed_samples
from cdc_core.store.tables import CHANGEFEEDS
from cdc_core.telemetry import metrics
from cdc_core.telemetry.metrics import Metric
from cdc_core.telemetry.tally import Tally, keep_gauges

Capture = pytest.CaptureFixture[str]
SINCE = "2026-01-31T12:00:00+00:00"
FAILED = {"error": "no route to db:5432", "since": SINCE, "failures": 7, "next_attempt_at": None}
TEXT = "retrying since 2026-01-31 12:00:00 UTC, after 7 failures: no route to db:5432; "


@pytest.fixture
def rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rest]:
    monkeypatch.setattr("cdc_core.web.page.history.INTERVAL_S", 0.0)
    control = tmp_path / "control"
    control.mkdir()
    with serving_rest(tmp_path / "store") as rest:
        rest.create("orders", config(control))
        yield rest


@pytest.fixture
def one(rest: Rest) -> NodeRecord:
    """A node that runs the job `orders`, under epoch 1."""
    one = rest.store.nodes.join(node("one"), lease_s=600)
    rest.adopted(one)
    return one


def sampled(rest: Rest) -> dict[tuple[Metric, tuple[str, ...]], float]:
    [found] = reports(rest.store)
    return {(sample.metric, sample.labels[2:]): sample.value for sample in changefeed_samples(found)}


def printed(capsys: Capture, *arguments: str) -> str:
    capsys.readouterr()
    assert main(list(arguments)) == 0
    return capsys.readouterr().out


def as_json(capsys: Capture, *arguments: str) -> Any:
    return json.loads(printed(capsys, *arguments, "--json"))


def page(rest: Rest, path: str = "/ui") -> str:
    answer = rest.client.get(path)
    assert answer.status_code == 200
    return answer.text


def change(rest: Rest, **values: Any) -> None:
    engine = open_engine(rest.store.url)
    with engine.begin() as connection:
        connection.execute(sa.update(CHANGEFEEDS).values(**values))
    engine.dispose()


def test_before_the_first_mark_the_lag_is_the_age_of_the_changefeed(rest: Rest, capsys: Capture) -> None:
    change(rest, created_at=(datetime.now(UTC) - timedelta(seconds=1230)).isoformat(timespec="milliseconds"))
    store = ("--store", rest.store.url)
    lags = {
        "jobs": as_json(capsys, "jobs", *store)["behind_s"],
        "show": as_json(capsys, "show", "orders", *store)["behind_s"],
        "v1": rest.get("/v1/jobs/orders")["behind_s"],
        "all of v1": rest.get("/v1/jobs")[0]["behind_s"],
        "metrics": sampled(rest)[metrics.LAG, ()],
    }
    assert all(1230 <= lag < 1290 for lag in lags.values()), lags
    assert "20 min 3" in printed(capsys, "jobs", *store)
    assert "high-water mark   none yet (20 min 3" in printed(capsys, "show", "orders", *store)
    assert page(rest).count("20 min 3") == 2, "the line, and the worst one"
    assert "20 min 3" in page(rest, "/ui/changefeeds/orders")


def test_what_retries_says_so_until_a_step_is_saved(rest: Rest, one: NodeRecord, capsys: Capture) -> None:
    at = (datetime.now(UTC) + timedelta(minutes=1)).replace(microsecond=0)
    waiting = {"phase": "waiting to retry", "retrying": FAILED, "next_attempt_at": at.isoformat()}
    rest.store.statuses.save("orders", 1, waiting)
    is_retrying(rest, capsys, f"{TEXT}next attempt at {at:%Y-%m-%d %H:%M:%S} UTC", at.isoformat())
    epoch = rest.store.changefeeds.begin_attempt("orders")
    is_retrying(rest, capsys, f"{TEXT}next attempt at {at:%Y-%m-%d %H:%M:%S} UTC", at.isoformat())
    over = at - timedelta(minutes=2)
    rest.store.statuses.save("orders", epoch, {"phase": "running", "retrying": FAILED, "next_attempt_at": str(over)})
    is_retrying(rest, capsys, f"{TEXT}an attempt is running", None)
    rest.store.statuses.save("orders", epoch, {"phase": "running", "retrying": FAILED, "next_attempt_at": None})
    is_retrying(rest, capsys, f"{TEXT}an attempt is running", None)
    rest.store.statuses.save("orders", epoch, {"phase": "running", "retrying": None})
    assert as_json(capsys, "jobs", "--store", rest.store.url)["state"] == "running"
    assert rest.get("/v1/jobs/orders")["retrying"] is None
    assert "retrying" not in page(rest)
    assert "trace" not in rest.get("/connectors/orders/status")["connector"]
    assert (sampled(rest)[metrics.STATE, ("running",)], sampled(rest)[metrics.RETRYING, ()]) == (1, 0)


def is_retrying(rest: Rest, capsys: Capture, text: str, at: str | None) -> None:
    store = ("--store", rest.store.url)
    found = as_json(capsys, "jobs", *store)
    assert (found["state"], found["running_status"]) == ("retrying", text)
    assert found["retrying"] == {**FAILED, "next_attempt_at": at}
    shown = as_json(capsys, "show", "orders", *store)
    assert (shown["state"], shown["job"]["state"], shown["retrying"]) == ("retrying", "retrying", found["retrying"])
    assert f" {text}\n" in printed(capsys, "show", "orders", *store)
    for answer in (rest.get("/v1/jobs/orders"), rest.get("/v1/jobs")[0]):
        assert (answer["state"], answer["retrying"]) == ("retrying", found["retrying"])
    for path in ("/ui", "/ui/changefeeds/orders"):
        assert '<span class="state warn">retrying</span>' in page(rest, path)
        assert text in page(rest, path)
    assert not re.search(r'class="station \w+ good"', page(rest, "/ui/changefeeds/orders"))
    status = rest.get("/connectors/orders/status")
    for each in (status["connector"], *status["tasks"]):
        assert (each["state"], each["trace"]) == ("RUNNING", text)
    assert (sampled(rest)[metrics.STATE, ("retrying",)], sampled(rest)[metrics.STATE, ("running",)]) == (1, 0)
    assert sampled(rest)[metrics.RETRYING, ()] == 1


def test_a_job_whose_node_died_waits_and_does_not_retry(rest: Rest, one: NodeRecord, capsys: Capture) -> None:
    rest.store.statuses.save("orders", 1, {"phase": "running", "retrying": FAILED})
    rest.store.nodes.leave(one.node_id)
    found = as_json(capsys, "jobs", "--store", rest.store.url)
    assert (found["state"], found["running_status"]) == ("running", "waiting for a node")


def test_what_is_retained_is_shown_with_its_age_when_it_cannot_be_measured_now(
    rest: Rest, one: NodeRecord, capsys: Capture
) -> None:
    store = ("--store", rest.store.url)
    rest.store.progress.save("orders", 1, progress())
    rest.store.progress.save_gauges("orders", 1, {"retained_bytes": 67e6})
    assert "63.9 MB" in printed(capsys, "jobs", *store)
    assert "source's history  retained 63.9 MB\n" in printed(capsys, "show", "orders", *store)
    assert "kept at the source for this changefeed" in page(rest, "/ui/changefeeds/orders")
    tally, measured = Tally(), datetime.now(UTC) - timedelta(minutes=12)
    keep_gauges(tally, {"retained_bytes": 67e6}, at=measured.timestamp())
    change(rest, counters=json.dumps(tally.saved()))
    assert re.search(r"63\.9 MB 12 min \d+ s ago", printed(capsys, "jobs", *store))
    assert as_json(capsys, "jobs", *store)["retained_at"] == measured.isoformat(timespec="seconds")
    assert "source's history  retained 63.9 MB, as measured 12 min " in printed(capsys, "show", "orders", *store)
    assert "as measured 12 min " in page(rest, "/ui/changefeeds/orders")
    found = rest.get("/v1/jobs/orders")
    assert (found["gauges"], found["gauges_at"]) == ({"retained_bytes": 67e6}, measured.isoformat(timespec="seconds"))
    assert 720 <= sampled(rest)[metrics.SOURCE_AGE, ()] < 780
    assert sampled(rest)[metrics.SOURCE_BYTES, ("retained",)] == 67e6
