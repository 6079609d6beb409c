"""A job moves from node to node, and its rows arrive in order and without a gap, whatever happens to its node."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres
from cdc_testing.bank import TABLES, Bank, assert_faithful, open_bank
from cdc_testing.files import last_resolved
from cdc_testing.fixtures import fresh_database
from cdc_testing.nodes import Nodes
from cdc_testing.postgres import clock
from psutil import Error as PsutilError
from psutil import Process, wait_procs

from cdc_core.changefeeds.service import Changefeeds


def command_line(process: Process) -> list[str]:
    with suppress(PsutilError):  # it has ended meanwhile
        return process.cmdline()
    return []


def test_another_node_takes_over_what_a_killed_one_ran(
    postgres_server: EmbeddedPostgres, database: str, tmp_path: Path
) -> None:
    files = tmp_path / "files"
    with fresh_database(postgres_server) as store, Nodes(tmp_path / "nodes", store, spark=False) as nodes:
        nodes.begin("one")
        nodes.begin("two")
        open_bank(database)
        with Bank(database, pause_s=0.1):
            nodes.create("bank", database, TABLES, f"file://{files}")
            killed = nodes.until_delivering("bank")
            nodes.await_join("one")
            nodes.await_join("two")
            killed.kill()
            nodes.until_delivering("bank", but_not=killed)
        now = clock(database)
        nodes.eventually("all is resolved", lambda: last_resolved(files) >= now)
    assert_faithful(files, database)


@pytest.mark.slow
def test_a_pinned_job_goes_on_by_itself_when_the_only_node_of_its_region_is_restarted(
    postgres_server: EmbeddedPostgres, database: str, tmp_path: Path
) -> None:
    files = tmp_path / "files"
    with fresh_database(postgres_server) as store, Nodes(tmp_path / "nodes", store, spark=False) as nodes:
        nodes.begin("us", locality="region=us")
        eu = nodes.start("eu", locality="region=eu")
        open_bank(database)
        with Bank(database, pause_s=0.02):
            nodes.create("bank", database, TABLES, f"file://{files}", locality="region=eu")
            for restart in range(2):
                nodes.until_delivering("bank")
                if restart:
                    eu.kill()
                else:
                    eu.terminate()
                    assert eu.wait() == 0, eu.log_tail()
                nodes.until("bank", "waiting")
                nodes.start("eu", locality="region=eu")
            nodes.until_delivering("bank")
        now = clock(database)
        nodes.eventually("all is resolved", lambda: last_resolved(files) >= now)
        assert {event.state for event in nodes.store.jobs.events("bank")} == {"running", "waiting"}
    assert_faithful(files, database)


@pytest.mark.slow
def test_a_job_of_spark_goes_on_elsewhere_and_nothing_is_left_of_its_killed_node(
    postgres_server: EmbeddedPostgres, database: str, tmp_path: Path
) -> None:
    files = tmp_path / "files"
    with fresh_database(postgres_server) as store, Nodes(tmp_path / "nodes", store) as nodes:
        nodes.begin("one")
        nodes.begin("two")
        nodes.await_join("one")
        nodes.await_join("two")
        open_bank(database)
        with Bank(database, pause_s=0.1):
            nodes.create("bank", database, TABLES, f"file://{files}", spark={"master": "local[2,2]"})
            killed = nodes.until_delivering("bank")
            family = killed.tree()
            assert any("cdc_core.jobs.subprocess_main" in command_line(process) for process in family)
            killed.kill()
            nodes.until_delivering("bank", but_not=killed)
            _, alive = wait_procs(family, timeout=300)
            assert alive == []
        now = clock(database)
        nodes.eventually("all is resolved", lambda: last_resolved(files) >= now)
    assert_faithful(files, database)


@pytest.mark.slow
def test_a_job_outlives_its_nodes(postgres_server: EmbeddedPostgres, database: str, tmp_path: Path) -> None:
    files = tmp_path / "files"
    with fresh_database(postgres_server) as store, Nodes(tmp_path / "nodes", store, spark=False) as nodes:
        nodes.begin("one")
        nodes.begin("two")
        nodes.await_join("one")
        nodes.await_join("two")
        open_bank(database)
        with Bank(database, pause_s=0.1):
            nodes.create("bank", database, TABLES, f"file://{files}")
            killed = nodes.until_delivering("bank")
            killed.kill()
            frozen = nodes.until_delivering("bank", but_not=killed)
            nodes.start(killed.name)
            frozen.freeze()
            drained = nodes.until_delivering("bank", but_not=frozen)
            frozen.thaw()
            nodes.until_delivering("bank")
            drained.terminate()
            assert drained.wait() == 0, drained.log_tail()
            last = nodes.until_delivering("bank", but_not=drained)
            assert last is frozen
            Changefeeds(nodes.store).pause("bank", "it was enough")
            nodes.until("bank", "paused")
            Changefeeds(nodes.store).resume("bank")
            nodes.until_delivering("bank")
        now = clock(database)
        nodes.eventually("all is resolved", lambda: nodes.high_water("bank") >= now)
        Changefeeds(nodes.store).pause("bank", "the end")
        nodes.until("bank", "paused")
        assert_faithful(files, database)
        Changefeeds(nodes.store).cancel("bank", "no longer needed")
        nodes.until("bank", "canceled")
