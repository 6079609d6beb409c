"""`cdc show` and `cdc drop` beside a real run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest
from cdc_testing.runs import Feed, eventually
from cdc_testing.thread_host import KeptThreads

from cdc_core.cli.main import main

pytestmark = pytest.mark.slow


def test_a_running_changefeed_is_shown_and_one_that_has_stopped_is_dropped(
    database: str, tmp_path: Path, kept_threads: KeptThreads, capsys: pytest.CaptureFixture[str]
) -> None:
    def shown() -> dict[str, Any]:
        capsys.readouterr()
        assert main(["show", str(feed.toml), "test", "--state", str(feed.state), "--json"]) == 0
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    def work() -> None:
        eventually("the rows", lambda: shown()["totals"]["rows"] == 100)
        eventually("the status of the run", lambda: shown()["phase"] == "running")
        found = shown()
        assert found["state"] == "running"
        assert found["gauges"]["retained_bytes"] >= 0
        assert main(["drop", str(feed.toml), "--state", str(feed.state), "--yes"]) == 2
        assert "is running from" in feed.log()

    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE items (id int PRIMARY KEY)")
        connection.execute("INSERT INTO items SELECT generate_series(1, 100)")
        with Feed(tmp_path, database, ["items"]) as feed:
            feed.during(kept_threads, work)
            assert shown()["state"] == "stopped"
            assert main(["drop", str(feed.toml), "--state", str(feed.state), "--yes"]) == 0
        assert connection.execute("SELECT FROM pg_publication").fetchall() == []
        slots = "SELECT FROM pg_replication_slots WHERE database = current_database()"
        assert connection.execute(slots).fetchall() == []
