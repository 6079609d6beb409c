"""The pages on operations show the real output of commands."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cdc_core import Timestamp
from cdc_core.cli.main import main
from cdc_core.cli.show import report_lines
from cdc_core.store.progress import ChangefeedRecord, Progress, ProgressStore, SavedStatus, store_url
from cdc_core.store.reports import Report
from cdc_core.telemetry.status import Status, status_line

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
STATUS = (DOCS / "status.md").read_text()
PAUSE = (DOCS / "pause-and-resume.md").read_text()
MOMENT = datetime(2026, 1, 31, 12, 30, tzinfo=UTC)
RUNNING = Status(
    changefeed="orders",
    phase="running",
    rows=1_234_567,
    rows_per_s=45_300,
    bytes=36_175_872,
    files=12,
    high_water=Timestamp(int(MOMENT.timestamp()) * 10**9),
    log_name="orders.spark.log",
    shares={"source": 0.12, "encode": 0.3, "sink": 0.58},
)
IDLE = replace(RUNNING, rows_per_s=0.0, shares={}, waiting_on="changes")
STUCK = replace(IDLE, waiting_on="sink 'webhook'", waiting_on_s=63.0)
REPEATING = replace(
    STUCK, waiting_for="request to https://example.com:443 failed 3 times: response 503: overloaded", next_attempt_s=8.0
)
HELD = replace(IDLE, releases_failed=7)
DOWN = replace(
    STUCK,
    phase="waiting to retry",
    waiting_on="source 'postgres'",
    waiting_for="no route to db:5432",
    next_attempt_s=8.0,
)
PAUSED = Status(
    changefeed="orders",
    phase="paused",
    waiting_for="no partition of topic 'orders' takes a message of 2 MB",
    paused_since=MOMENT,
    resume_command="cdc resume shop.toml orders",
)


def test_the_status_lines_of_the_pages_are_real(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"```text\n(.*?)```", STATUS + PAUSE, re.DOTALL)
    shown = [line for block in blocks for line in block.splitlines()]

    def line(status: Status) -> str:
        late_s = 64.0 if status in (STUCK, REPEATING, DOWN) else 0.4
        monkeypatch.setattr("cdc_core.telemetry.status.time.time", lambda: MOMENT.timestamp() + late_s)
        return status_line(status)

    assert shown == [line(status) for status in (RUNNING, IDLE, STUCK, REPEATING, HELD, DOWN, PAUSED)]


def test_the_page_shows_what_cdc_resume_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    [(command, printed)] = re.findall(r"\$ cdc (resume [^\n\[]*)\n(.*?)```", PAUSE, re.DOTALL)
    (tmp_path / "shop.toml").write_text(
        '[changefeed.orders]\nsource = "postgresql://h/d"\ntables = ["t"]\nsink = "file:///out"\n'
    )
    store = ProgressStore(store_url(tmp_path / ".cdc"))
    store.changefeeds.register(
        "orders", {"source": "postgresql://h/d", "tables": ["t"], "sink": "file:///out", "format": "json"}
    )
    store.claims.pause_run("orders", store.changefeeds.begin_attempt("orders"), "a row was refused")
    monkeypatch.chdir(tmp_path)
    assert main(command.split()) == 0
    assert capsys.readouterr().out == printed


def test_the_page_shows_what_cdc_show_prints() -> None:
    known = ChangefeedRecord(
        name="orders",
        feed_id="4f8e21a9c073",
        epoch=1,
        definition={
            "source": "postgresql://cdc@db:5432/shop",
            "tables": ["public.orders"],
            "sink": "file:///data/out",
            "format": "json",
        },
        high_water=Timestamp(int(MOMENT.timestamp()) * 10**9),
        saved_at=MOMENT,
        gauges={"retained_bytes": 2 << 20, "snapshot_age_s": 0, "unconfirmed_bytes": 512 << 10},
        measured_at=MOMENT,
    )
    totals = {"steps": 9, "rows": 1_234_567, "messages": 1_234_567, "bytes": 36_175_872, "files": 12}
    status = {"phase": "running", "rows_per_s": 45_000, "waiting_on": "changes", "host": "host-1", "pid": 4711}
    report = Report(
        known=known,
        progress=Progress(token={}, counters=totals),
        status=SavedStatus(values=status, written_at=MOMENT),
        dead_letters=2,
        now=MOMENT + timedelta(seconds=0.4),
    )
    [printed] = re.findall(r"\$ cdc show shop.toml\n(.*?)```", STATUS, re.DOTALL)
    assert "".join(f"{line}\n" for line in report_lines(report)) == printed
    table = STATUS.partition("With `--json`")[2].partition("\n## ")[0]
    documented = [name for cell in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in cell.split(", ")]
    assert documented == [f"`{name}`" for name in report.to_json()]


def test_the_messages_of_the_troubleshooting_table_are_in_the_code() -> None:
    sources = [*ROOT.glob("cdc_core/**/*.py"), *ROOT.glob("*/*/src/**/*.py")]
    joined = re.sub(r'"\s*\n\s*f?"', "", "\n".join(path.read_text() for path in sources))
    page = (DOCS / "troubleshooting.md").read_text()
    messages = re.findall(r"^\| ([^|]+) \|", page, re.MULTILINE)[1:]
    assert len(messages) > 20
    missing = [piece for message in messages for piece in re.split(r"\s*…\s*", message) if piece not in joined]
    assert missing == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_is_told_how_to_complete(
    shell: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (DOCS / "command-line.md").read_text()
    [(name, value)] = re.findall(rf"^\| {shell} \| .*?(_\w+)=(\w+) cdc", page, re.MULTILINE)
    monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit, match="0"):
        main([])
    assert f"_CDC_COMPLETE={shell}_complete" in capsys.readouterr().out
