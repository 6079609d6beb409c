"""A job whose node is drained delivers nothing twice."""

from __future__ import annotations

from pathlib import Path

import pytest
from cdc_rangefeed_postgres.demo.audit import replay
from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres
from cdc_testing.bank import TABLES, Bank, assert_faithful, open_bank
from cdc_testing.fixtures import fresh_database
from cdc_testing.nodes import Nodes
from cdc_testing.postgres import clock

from cdc_core.changefeeds.service import Changefeeds


@pytest.mark.slow
def test_a_drained_job_repeats_nothing(postgres_server: EmbeddedPostgres, database: str, tmp_path: Path) -> None:
    files = tmp_path / "files"
    with fresh_database(postgres_server) as store, Nodes(tmp_path / "nodes", store, spark=False) as nodes:
        nodes.begin("one")
        nodes.begin("two")
        open_bank(database)
        with Bank(database, pause_s=0.02):
            nodes.create("bank", database, TABLES, f"file://{files}")
            first = nodes.until_delivering("bank")
            nodes.await_join("one")
            nodes.await_join("two")
            first.terminate()
            assert first.wait() == 0, first.log_tail()
            nodes.until_delivering("bank", but_not=first)
        now = clock(database)
        nodes.eventually("all is resolved", lambda: nodes.high_water("bank") >= now)
        Changefeeds(nodes.store).pause("bank", "the end")
        nodes.until("bank", "paused")
        progress = nodes.store.progress.load("bank")
    assert progress is not None
    assert progress.counters["rows_repeated"] == 0
    assert assert_faithful(files, database) == progress.counters["rows"]
    assert replay(files).repeats == 0
