"""`cdc show`: what it says of each changefeed, and that it changes nothing."""

from __future__ import annotations

import json
import re
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from cdc_testing.command import Cdc

from cdc_core import Frontier, Span, Timestamp
from cdc_core.changefeeds.service import Changefeeds
from cdc_core.cli.main import main
from cdc_core.locality import Locality
from cdc_core.store.opening import open_engine
from cdc_core.store.progress import DeadLetter, Progress, ProgressStore, store_url
from cdc_core.store.tables import STATUSES

Capture = pytest.CaptureFixture[str]
DEFINITION = {"source": "paper://user:***@desk/db", "tables": ["t", "u"], "sink": "shelf://room", "format": "json"}
RUNNING = {
    "phase": "running",
    "rows_per_s": 1234.5,
    "waiting_on": "sink 'shelf'",
    "waiting_for": None,
    "error": None,
    "scan": {"done": 3, "total": 4000, "unit": "blocks"},
    "host": "here",
    "pid": 7,
    "next_attempt_at": None,
}
COUNTERS = {
    "steps": 3,
    "rows": 5000,
    "messages": 5001,
    "bytes": 3 << 20,
    "files": 2,
    "source.retained_bytes": 2 << 20,
    "source.age_s": 1.5,
    "releases_failed": 2,
}


@pytest.fixture
def store(file: Path) -> ProgressStore:
    return ProgressStore(store_url(file.parent / ".cdc"))


def run_in(store: ProgressStore, name: str = "orders", **status: Any) -> int:
    """Let *store* know a changefeed that has saved progress 90 s ago, and its status. Return the epoch."""
    store.changefeeds.register(name, DEFINITION)
    epoch = store.changefeeds.begin_attempt(name)
    frontier = Frontier([Span("db.public.t")])
    frontier.forward(Span("db.public.t"), Timestamp(int((datetime.now(UTC).timestamp() - 90) * 1e9)))
    letter = DeadLetter(table="t", key="[1]", updated=Timestamp(5), stage="sink", error="no")
    progress = Progress(token={"n": 1}, frontier=frontier, counters=COUNTERS)
    store.progress.save(name, epoch, progress, dead_letters=[letter])
    store.statuses.save(name, epoch, {**RUNNING, **status})
    return epoch


def grow_old(store: ProgressStore, seconds: float) -> None:
    """Let every status be so old."""
    written_at = (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat(timespec="milliseconds")
    engine = open_engine(store.url)
    with engine.begin() as connection:
        connection.execute(sa.update(STATUSES).values(written_at=written_at))
    engine.dispose()


def shown(file: Path, capsys: Capture, *arguments: str) -> str:
    assert main(["show", str(file), *arguments]) == 0
    return capsys.readouterr().out


def first_line(file: Path, capsys: Capture) -> str:
    return shown(file, capsys).partition("\n")[0]


def as_json(file: Path, capsys: Capture) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(shown(file, capsys, "orders", "--json"))
    return found


def test_everything_that_is_known_is_shown(file: Path, store: ProgressStore, capsys: Capture) -> None:
    run_in(store)
    found = store.changefeeds.find("orders")
    assert found is not None
    assert found.saved_at is not None
    mark = found.high_water.to_datetime()
    lines = shown(file, capsys, "orders").splitlines()
    lag = lines[4].partition("(")[2]
    assert lag.startswith("1 min 3")
    assert lines == [
        "changefeed 'orders': running on here (process 7)",
        "  source            paper://user:***@desk/db: t, u",
        "  sink              shelf://room (json)",
        "  scan              3 of 4,000 blocks",
        f"  high-water mark   {mark:%Y-%m-%d %H:%M:%S} UTC ({lag}",
        "  delivered         5,000 rows (1,234 rows/s), 5,001 messages, 3.0 MB in 2 files",
        f"  last saved        {found.saved_at:%Y-%m-%d %H:%M:%S} UTC",
        "  dead letters      1",
        "  source's history  age 1.5 s, retained 2.0 MB, not released after the last 2 steps",
        "  waiting for       sink 'shelf'",
    ]


def test_what_a_job_holds_back_is_shown(file: Path, store: ProgressStore, capsys: Capture) -> None:
    store.jobs.create("orders", DEFINITION, owner="ann", locality=Locality())
    assert re.search(r"^  held back +\d", shown(file, capsys, "orders"), re.M)
    assert as_json(file, capsys)["protected_age_s"] < 3600


def test_what_the_source_says_is_shown_while_a_run_is_alive(file: Path, store: ProgressStore, capsys: Capture) -> None:
    run_in(store, notice="process 7 holds the log")
    assert "  source says       process 7 holds the log\n" in shown(file, capsys, "orders")
    assert as_json(file, capsys)["notice"] == "process 7 holds the log"
    grow_old(store, 60)
    assert as_json(file, capsys)["notice"] is None


def test_the_lag_is_that_of_now(file: Path, store: ProgressStore, capsys: Capture) -> None:
    run_in(store, phase="stopped")
    first = as_json(file, capsys)["behind_s"]
    assert first >= 90
    assert as_json(file, capsys)["behind_s"] > first


@pytest.mark.parametrize(
    ("phase", "state", "line"),
    [
        ("running", "running", "running on here (process 7)"),
        ("waiting to retry", "running", "waiting to retry on here (process 7)"),
        ("stopped", "stopped", "stopped at {written_at} on here (process 7)"),
        ("given up", "stopped", "given up at {written_at} on here (process 7)"),
        ("complete", "complete", "complete at {written_at} on here (process 7)"),
        ("failed", "failed", "failed at {written_at} on here (process 7)"),
    ],
)
def test_the_state_follows_from_the_last_phase(
    file: Path, store: ProgressStore, capsys: Capture, phase: str, state: str, line: str
) -> None:
    run_in(store, phase=phase)
    status = store.statuses.load("orders")
    assert status is not None
    at = f"{status.written_at:%Y-%m-%d %H:%M:%S} UTC"
    assert first_line(file, capsys) == f"changefeed 'orders': {line.format(written_at=at)}"
    found = as_json(file, capsys)
    assert (found["state"], found["phase"]) == (state, phase)
    assert (found["rows_per_s"] is None) == (state != "running"), "a rate means nothing after the end"


@pytest.mark.parametrize(("age_s", "state"), [(20, "running"), (40, "silent")])
def test_a_run_that_says_nothing_for_30_seconds_is_not_shown_as_running(
    file: Path, store: ProgressStore, capsys: Capture, age_s: float, state: str
) -> None:
    run_in(store)
    grow_old(store, age_s)
    assert as_json(file, capsys)["state"] == state
    assert first_line(file, capsys).startswith("changefeed 'orders': silent since ") == (state == "silent")


def test_a_paused_changefeed_says_why_even_without_a_run(file: Path, store: ProgressStore, capsys: Capture) -> None:
    store.claims.pause_run("orders", run_in(store), "a row was refused")
    grow_old(store, 3600)
    found = as_json(file, capsys)
    assert (found["state"], found["paused"]["reason"]) == ("paused", "a row was refused")
    line = first_line(file, capsys)
    assert line.startswith("changefeed 'orders': paused since ")
    assert line.endswith(" UTC: a row was refused")


@pytest.mark.parametrize(
    ("age_s", "state", "said"), [(0, "pause-requested", "running on"), (40, "silent", "silent since")]
)
def test_a_requested_pause_is_shown_before_it_takes_effect(
    file: Path, store: ProgressStore, capsys: Capture, age_s: float, state: str, said: str
) -> None:
    run_in(store)
    Changefeeds(store).pause("orders", "lunch")
    grow_old(store, age_s)
    found = as_json(file, capsys)
    assert (found["state"], found["paused"], found["pause_requested"]["reason"]) == (state, None, "lunch")
    line = first_line(file, capsys)
    assert line.startswith(f"changefeed 'orders': pause-requested, {said} ")
    assert line.endswith("(process 7): lunch")


def test_what_a_run_fails_with_and_waits_for_is_shown(file: Path, store: ProgressStore, capsys: Capture) -> None:
    failed = {"error": "no route", "since": "2026-01-31T12:00:00+00:00", "failures": 1}
    next_at = "2999-01-31T12:30:00+00:00"
    run_in(store, phase="waiting to retry", waiting_for="no route", next_attempt_at=next_at, retrying=failed)
    lines = shown(file, capsys).splitlines()
    assert lines[0] == "changefeed 'orders': retrying on here (process 7)"
    assert lines[-2:] == [
        "  retrying          since 2026-01-31 12:00:00 UTC, after 1 failure: no route; next attempt at 2999-01-31"
        " 12:30:00 UTC",
        "  waiting for       sink 'shelf'",
    ]
    run_in(store, phase="failed", error="table t was truncated")
    assert "  error             table t was truncated" in shown(file, capsys).splitlines()


def test_one_without_any_run_has_no_numbers(file: Path, store: ProgressStore, capsys: Capture) -> None:
    store.changefeeds.register("orders", DEFINITION)
    assert re.sub(r"\d+\.\d s", "0.0 s", shown(file, capsys)) == (
        "changefeed 'orders': has never run\n"
        "  source            paper://user:***@desk/db: t, u\n"
        "  sink              shelf://room (json)\n"
        "  high-water mark   none yet (0.0 s behind)\n"
    )
    found = as_json(file, capsys)
    assert (found["state"], found["high_water"], found["gauges"], found["heard_at"]) == ("new", None, {}, None)
    assert 0 <= found["behind_s"] < 3600


def test_without_a_name_every_changefeed_of_the_store_is_shown(
    file: Path, store: ProgressStore, capsys: Capture, cdc: Cdc, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_in(store)
    run_in(store, "users")
    names = ["changefeed 'orders'", "changefeed 'users'"]
    texts = [shown(file, capsys)]
    monkeypatch.chdir(file.parent)
    for arguments in (["show"], ["show", "--state", ".cdc"]):
        texts.append(cdc(*arguments).out)
    assert [[block.partition(":")[0] for block in text.split("\n\n")] for text in texts] == [names] * 3
    assert [json.loads(line)["name"] for line in cdc("show", "--json").out.splitlines()] == ["orders", "users"]


def test_it_creates_no_store(file: Path, cdc: Cdc) -> None:
    assert cdc.refused("show", file) == (
        f"error: there is no progress store '{file.parent}/.cdc/progress.sqlite'; name its progress store with"
        " --state\n"
    )
    assert not (file.parent / ".cdc").exists()
    assert "has no changefeed 'order'" in cdc.refused("show", file, "order")


def test_a_store_without_changefeeds_says_so(file: Path, store: ProgressStore, capsys: Capture) -> None:
    store.open()
    assert shown(file, capsys) == f"there are no changefeeds in the progress store {file.parent}/.cdc/progress.sqlite\n"
    assert shown(file, capsys, "--json") == ""


def test_it_creates_no_tables_in_a_database(file: Path, database: str, cdc: Cdc) -> None:
    assert "there is no progress store 'postgresql://" in cdc.refused("show", file, "--state", database)
    with psycopg.connect(database) as sql:
        assert sql.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall() == []
    with closing(ProgressStore(database)) as store:
        run_in(store)
    assert json.loads(cdc("show", "--state", database, "--json").out)["state"] == "running"
