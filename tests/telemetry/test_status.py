"""What people see of a running changefeed."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from cdc_testing.clock import Clock
from rich.console import Console

from cdc_core import ScanProgress, Timestamp
from cdc_core.cli.status_block import StatusBlock
from cdc_core.telemetry.status import Retrying, Status, StatusLog, is_idle, status_line

RUNNING = Status(
    changefeed="orders",
    phase="running",
    rows=1_234_567,
    rows_per_s=45_300.4,
    bytes=36_175_872,
    files=12,
    high_water=Timestamp(1_700_000_000_000_000_000),
    log_name="orders.spark.log",
)


@pytest.fixture(autouse=True)
def now(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Return a function that lets so many seconds pass since RUNNING's high-water mark; 0.42 already have."""

    def let_pass(seconds: float) -> None:
        monkeypatch.setattr("cdc_core.telemetry.status.time.time", lambda: 1_700_000_000 + seconds)

    let_pass(0.42)
    return let_pass


def test_the_line_has_rows_rate_volume_and_the_high_water_mark() -> None:
    assert status_line(RUNNING) == (
        "changefeed 'orders': running, 1,234,567 rows (45,300 rows/s), 34.5 MB in 12 files, "
        "high-water mark 2023-11-14 22:13:20 UTC (0.4 s behind)"
    )


def test_the_line_has_the_scan_while_there_is_one() -> None:
    scanning = Status(changefeed="orders", phase="running", scan=ScanProgress(done=12, total=4000, unit="chunks"))
    assert status_line(scanning) == "changefeed 'orders': running, scan 12 of 4,000 chunks"


def test_a_source_that_does_not_release_its_history_is_told_of() -> None:
    told = "the source's history: not released after the last 1,500 steps, so it grows; see orders.spark.log for the"
    told += " reason"
    assert status_line(replace(RUNNING, releases_failed=1500)).endswith(f", {told}")
    assert status_line(replace(RUNNING, releases_failed=1)) == status_line(RUNNING)  # it passed before anybody knew
    console = Console(file=io.StringIO(), force_terminal=True, width=100, color_system=None)
    with StatusBlock(console) as view:
        view(replace(RUNNING, releases_failed=2))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "source's history" in shown
    assert "not released after the last 2 steps" in shown


def test_the_line_says_what_is_waited_for() -> None:
    waiting = Status(changefeed="orders", phase="waiting to retry", waiting_for="no route to host", next_attempt_s=3.2)
    assert status_line(waiting) == ("changefeed 'orders': waiting to retry, no route to host; next attempt in 3 s")


@pytest.mark.parametrize(("seconds", "text"), [(59.94, "59.9 s"), (61.0, "1 min 1 s"), (7260.0, "2 h 1 min")])
def test_the_lag_grows_while_nothing_is_delivered(now: Callable[[float], None], seconds: float, text: str) -> None:
    now(seconds)
    assert f"({text} behind)" in status_line(RUNNING)


def test_without_a_terminal_there_is_a_line_every_ten_seconds(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "cdc_core.telemetry.status")
    clock = Clock()
    with StatusLog(clock=clock) as view:
        for tick in range(250):
            clock.now = tick / 10
            view(replace(RUNNING, rows=tick))
    rows = [record.getMessage() for record in caplog.records]
    assert len(rows) == 4
    assert [f"{tick} rows" in row for tick, row in zip((0, 100, 200, 249), rows, strict=True)] == [
        False,
        True,
        True,
        True,
    ]


def test_a_line_that_says_nothing_new_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "cdc_core.telemetry.status")
    clock = Clock()
    with StatusLog(clock=clock) as view:
        for tick in range(250):
            clock.now = tick
            view(Status(changefeed="orders", phase="starting Spark", log_name=str(tick)))
        view(Status(changefeed="users", phase="starting Spark"))
    assert [record.getMessage().rpartition("changefeed ")[2] for record in caplog.records] == [
        "'orders': starting Spark",
        "'users': starting Spark",
    ]


def test_a_new_phase_is_logged_at_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "cdc_core.telemetry.status")
    with StatusLog(clock=Clock()) as view:
        for phase in ("starting", "starting", "running", "stopping"):
            view(Status(changefeed="orders", phase=phase))
    assert [record.getMessage().rpartition(": ")[2] for record in caplog.records] == ["starting", "running", "stopping"]


def test_a_terminal_shows_one_block_with_a_bar_for_the_scan() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=100, color_system=None)
    with StatusBlock(console) as view:
        view(RUNNING)
        view(replace(RUNNING, scan=ScanProgress(done=1, total=4, unit="chunks"), waiting_for="the disk [full]"))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    last = shown[shown.rindex("orders") :]
    assert "25%, 1 of 4 chunks" in last
    assert "━" in last
    assert "1,234,567 (45,300 rows/s)" in last
    assert "34.5 MB in 12 files" in last
    assert "2023-11-14 22:13:20 UTC (0.4 s behind)" in last
    assert "waiting: the disk [full]" in last


def test_an_empty_scan_has_a_bar_too() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    with StatusBlock(console) as view:
        view(Status(changefeed="orders", phase="running", scan=ScanProgress(done=0, total=0, unit="chunks")))
    assert "0 of 0 chunks" in console.file.getvalue()  # type: ignore[attr-defined]


def test_the_line_says_where_the_time_goes() -> None:
    line = status_line(replace(RUNNING, shares={"source": 0.123, "encode": 0.3, "sink": 0.577}))
    assert line.endswith(", time spent: source 12%, encode 30%, sink 58%")


@pytest.mark.parametrize(
    ("waiting", "text"),
    [
        ({"waiting_on": "changes"}, "waiting for changes"),
        ({"waiting_on": "sink 'webhook'", "waiting_on_s": 63.4}, "waiting for sink 'webhook' for 63 s"),
        ({"waiting_on": "sink 'webhook'", "waiting_on_s": 184.0}, "waiting for sink 'webhook' for 3 min 4 s"),
        (
            {"waiting_on": "source 'postgres'", "waiting_for": "no route to host", "next_attempt_s": 7.6},
            "source 'postgres': no route to host; next attempt in 8 s",
        ),
    ],
)
def test_the_line_names_what_it_waits_for(waiting: dict[str, Any], text: str) -> None:
    assert status_line(replace(RUNNING, **waiting)).endswith(f", {text}")


@pytest.mark.parametrize(("count", "text"), [(1, "1 dead letter"), (1200, "1,200 dead letters")])
def test_the_line_counts_what_waits_in_the_dead_letters(count: int, text: str) -> None:
    assert text in status_line(replace(RUNNING, dead_letters=count))
    assert "dead letters" not in status_line(RUNNING)


PAUSED = Status(
    changefeed="orders",
    phase="paused",
    waiting_for="row 7 is refused",
    paused_since=datetime(2026, 1, 31, 12, 30, tzinfo=UTC),
    resume_command="cdc resume shop.toml orders",
)


def test_a_paused_one_says_since_when_why_and_how_to_go_on() -> None:
    assert status_line(PAUSED) == (
        "changefeed 'orders': paused, since 2026-01-31 12:30:00 UTC: row 7 is refused; once that is"
        " fixed, run `cdc resume shop.toml orders` to continue"
    )


def test_a_paused_one_repeats_itself_only_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "cdc_core.telemetry.status")
    clock = Clock()
    with StatusLog(clock=clock) as view:
        for second in range(3600):
            clock.now = second
            view(PAUSED)
    assert len(caplog.records) == 6


def test_the_block_says_all_of_it_too() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=100, color_system=None)
    with StatusBlock(console) as view:
        view(replace(RUNNING, dead_letters=3, shares={"source": 0.5, "sink": 0.5}, waiting_on="changes"))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    for text in ("3 dead letters", "source 50%, sink 50%", "waiting for changes"):
        assert text in shown


def test_what_retries_is_told_in_the_line_also_while_an_attempt_runs() -> None:
    since = datetime(2026, 1, 31, 12, tzinfo=UTC)
    retrying = Retrying(error="no route to host", since=since, failures=3)
    status = Status(changefeed="orders", phase="running", waiting_on="changes", retrying=retrying)
    text = "retrying since 2026-01-31 12:00:00 UTC, after 3 failures: no route to host; an attempt is running"
    assert status_line(status) == f"changefeed 'orders': running, {text}"
    assert not is_idle(status)
