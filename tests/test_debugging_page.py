"""docs/debugging.md: its commands print what it shows, and its examples run."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
import sqlalchemy as sa
from cdc_testing.imports import ROOT

from cdc_core.cli.main import main
from cdc_core.store.progress import ProgressStore, store_url
from cdc_core.store.tables import EVENTS
from cdc_core.store.values import moment_text

PAGE = (ROOT / "docs" / "debugging.md").read_text()
DEFINITION = {
    "source": "postgresql://shop:***@db:5432/shop",
    "tables": ["public.orders"],
    "sink": "kafka://broker:9092",
    "format": "json",
}


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ProgressStore:
    monkeypatch.chdir(tmp_path)
    text = '[changefeed.orders]\nsource = "postgresql://h/d"\ntables = ["t"]\nsink = "file:///out"\n'
    Path("shop.toml").write_text(text)
    store = ProgressStore(store_url(tmp_path / ".cdc"))
    store.changefeeds.register("orders", DEFINITION)
    store.events.note("changefeed_started", "orders", epoch=1, host="host-1", pid=4711)
    for _ in range(2):
        store.events.note_repeated(
            "changefeed_retried", "orders", cause="sink", message="no route to broker:9092", wait_s=8.0
        )
    store.claims.pause_run("orders", store.changefeeds.begin_attempt("orders"), "a row was refused")
    with store._database.transaction() as connection:
        moment = moment_text(datetime(2026, 1, 31, 12, tzinfo=UTC))
        connection.execute(sa.update(EVENTS).values(at=moment, last_at=moment))
    return store


def test_the_page_shows_what_cdc_events_prints(store: ProgressStore, capsys: pytest.CaptureFixture[str]) -> None:
    [(command, printed)] = re.findall(r"\$ cdc (events shop[^\n]*)\n(.*?)```", PAGE, re.DOTALL)
    assert main(command.split()) == 0
    assert capsys.readouterr().out == printed
    store.close()


def test_the_example_in_python_runs(store: ProgressStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [code] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(code.replace("sqlite:////var/lib/cdc/progress.sqlite", store_url(tmp_path / ".cdc")), {})
    assert capsys.readouterr().out == "2026-01-31 12:00:00+00:00 no route to broker:9092 sink 2\n"
    store.close()
