"""The status of a run, for those who look from elsewhere."""

from __future__ import annotations

import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from cdc_testing.stored import DEFINITION, dropped, progress

from cdc_core.engine import run_status
from cdc_core.engine.run_status import RunStatus
from cdc_core.errors import FencedError
from cdc_core.store.progress import ProgressStore
from cdc_core.store.tables import MOMENTS, STATUSES


def test_the_status_is_the_one_that_was_saved_last(store: ProgressStore) -> None:
    store.changefeeds.register("orders", DEFINITION)
    epoch = store.changefeeds.begin_attempt("orders")
    assert store.statuses.load("orders") is None
    store.statuses.save("orders", epoch, {"state": "starting"})
    store.statuses.save("orders", epoch, {"state": "running", "rows": {"orders": 3}})
    status = store.statuses.load("orders")
    assert status is not None
    assert status.values == {"state": "running", "rows": {"orders": 3}}
    assert abs(datetime.now(UTC) - status.written_at) < timedelta(minutes=1)


def test_the_age_of_a_status_does_not_depend_on_the_clock_of_a_host(database: str) -> None:
    with psycopg.connect(database) as connection:
        connection.execute("CREATE SCHEMA fast")
        connection.execute(
            "CREATE FUNCTION fast.clock_timestamp() RETURNS timestamptz"
            " RETURN pg_catalog.clock_timestamp() + interval '1 hour'"
        )
    with closing(ProgressStore(f"{database}?options=-csearch_path%3Dfast,pg_catalog,public")) as store:
        store.changefeeds.register("orders", DEFINITION)
        store.statuses.save("orders", store.changefeeds.begin_attempt("orders"), {"state": "running"})
        with store.transaction(reading=True) as reading:
            written_at = reading.execute(sa.select(STATUSES.c.written_at)).scalar_one()
        loaded, now = store.statuses.load("orders"), datetime.now(UTC)
        assert loaded is not None
        assert abs(now - loaded.written_at) < timedelta(minutes=1)
        assert abs(now - store.statuses.load_all()["orders"].written_at) < timedelta(minutes=1)
        assert abs(now + timedelta(hours=1) - datetime.fromisoformat(written_at)) < timedelta(minutes=1)


def test_a_run_that_was_overtaken_saves_no_status(store: ProgressStore) -> None:
    store.changefeeds.register("orders", DEFINITION)
    old, new = store.changefeeds.begin_attempt("orders"), store.changefeeds.begin_attempt("orders")
    store.statuses.save("orders", new, {"state": "running"})
    with pytest.raises(FencedError):
        store.statuses.save("orders", old, {"state": "failed"})
    status = store.statuses.load("orders")
    assert status is not None
    assert status.values == {"state": "running"}


def test_the_status_of_a_forgotten_changefeed_is_gone(store: ProgressStore) -> None:
    store.changefeeds.register("orders", DEFINITION)
    store.statuses.save("orders", store.changefeeds.begin_attempt("orders"), {"state": "running"})
    dropped(store, "orders")
    assert store.statuses.load("orders") is None


def test_a_moment_is_kept_with_a_status_once_a_minute_and_for_a_day(store: ProgressStore) -> None:
    store.changefeeds.register("orders", DEFINITION)
    epoch, this_minute = store.changefeeds.begin_attempt("orders"), int(time.time() // 60)
    kept = [{"name": "orders", "minute": this_minute - ago, "counted": "[1,2,3,4,0,5]"} for ago in range(2, 3000)]
    with store._database.transaction() as connection:
        connection.execute(sa.insert(MOMENTS), kept)
    store.progress.save("orders", epoch, progress())
    store.statuses.save("orders", epoch, {"phase": "running"})
    assert len(store.moments.of("orders")) <= 1438
    for _ in range(3):
        store.statuses.save("orders", epoch, {"phase": "running"}, moment=True)
    with store._database.transaction(reading=True) as connection:
        rows = connection.execute(sa.select(sa.func.count()).select_from(MOMENTS)).scalar_one()
    first, *_, last = store.moments.of("orders")
    assert 1438 <= rows <= 1440
    assert (first.rows, first.lag_s, first.latency_counts) == (2, 3, [0, 5])
    assert last.rows == 10
    assert last.lag_s is not None
    assert abs(time.time() - last.at) < 600
    dropped(store, "orders")
    assert store.moments.of("orders") == []


def test_a_run_keeps_a_moment_with_its_first_status_of_each_minute(
    store: ProgressStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[bool] = []

    def note(*_: Any, moment: bool) -> None:
        kept.append(moment)

    monkeypatch.setattr(store.statuses, "save", note)
    status = RunStatus("orders", store, log_name="", watch=None)
    status.keep(1)
    for second in (60, 70, 119, 120, 121):
        clock = SimpleNamespace(time=lambda now=second: now, monotonic=lambda now=second: now)
        monkeypatch.setattr(run_status, "time", clock)
        status.keep_now()
    assert kept == [True, False, False, True, False]
