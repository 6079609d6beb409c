"""A job moves from node to node, and its rows arrive in order and without a gap, whatever happens to its node."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from cdc_rangefeed_postgres.demo.audit import replay
from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres
from cdc_testing.bank import TABLES, Bank, assert_faithful, open_bank
from cdc_testing.files import last_resolved
from cdc_testing.fixtures import fresh_database
from cdc_testing.nodes import NodeProcess, Nodes
from cdc_testing.postgres import clock
from psutil import Error as PsutilError
from psutil import Process, wait_procs

from cdc_core.changefeeds.service import Changefeeds


def command_line(process: Process) -> list[str]:
    with suppress(PsutilError):  # it has ended meanwhile
        return process.cmdline()
    return []


def begin_two(nodes: Nodes) -> None:
    nodes.begin("one")
    nodes.begin("two")


def await_two(nodes: Nodes) -> None:
    nodes.await_join("one")
    nodes.await_join("two")


@contextmanager
def banking(nodes: Nodes, database: str, files: Path, **job: Any) -> Iterator[None]:
    """Have a job deliver what a bank does in the block; after it everything is resolved."""
    open_bank(database)
    with Bank(database, pause_s=0.05):
        nodes.create("bank", database, TABLES, f"file://{files}", **job)
        yield
    now = clock(database)
    nodes.eventually("all is resolved", lambda: last_resolved(files) >= now and nodes.high_water("bank") >= now)


def drain(node: NodeProcess) -> None:
    node.terminate()
    assert node.wait() == 0, node.log_tail()


def pause(nodes: Nodes) -> None:
    Changefeeds(nodes.store).pause("bank", "it was enough")
    nodes.until("bank", "paused")


def test_another_node_takes_over_what_a_killed_one_ran(nodes: Nodes, database: str, tmp_path: Path) -> None:
    begin_two(nodes)
    with banking(nodes, database, tmp_path / "files"):
        killed = nodes.until_delivering("bank")
        await_two(nodes)
        killed.kill()
        nodes.until_delivering("bank", but_not=killed)
    assert_faithful(tmp_path / "files", database)


@pytest.mark.slow
def test_a_drained_job_repeats_nothing(nodes: Nodes, database: str, tmp_path: Path) -> None:
    files = tmp_path / "files"
    begin_two(nodes)
    with banking(nodes, database, files):
        first = nodes.until_delivering("bank")
        await_two(nodes)
        drain(first)
        nodes.until_delivering("bank", but_not=first)
    pause(nodes)
    progress = nodes.store.progress.load("bank")
    assert progress is not None
    assert progress.counters["rows_repeated"] == 0
    assert assert_faithful(files, database) == progress.counters["rows"]
    assert replay(files).repeats == 0


@pytest.mark.slow
def test_a_pinned_job_goes_on_by_itself_when_the_only_node_of_its_region_is_restarted(
    nodes: Nodes, database: str, tmp_path: Path
) -> None:
    nodes.begin("us", locality="region=us")
    eu = nodes.start("eu", locality="region=eu")
    with banking(nodes, database, tmp_path / "files", locality="region=eu"):
        for end in (drain, NodeProcess.kill):
            nodes.until_delivering("bank")
            end(eu)
            nodes.until("bank", "waiting")
            nodes.start("eu", locality="region=eu")
        nodes.until_delivering("bank")
    assert {event.state for event in nodes.store.jobs.events("bank")} == {"running", "waiting"}
    assert_faithful(tmp_path / "files", database)


@pytest.mark.slow
def test_a_job_of_spark_goes_on_elsewhere_and_nothing_is_left_of_its_killed_node(
    postgres_server: EmbeddedPostgres, database: str, tmp_path: Path
) -> None:
    with fresh_database(postgres_server) as store, Nodes(tmp_path / "nodes", store) as nodes:
        begin_two(nodes)
        await_two(nodes)
        with banking(nodes, database, tmp_path / "files", spark={"master": "local[2,2]"}):
            killed = nodes.until_delivering("bank")
            family = killed.tree()
            assert any("cdc_core.jobs.subprocess_main" in command_line(process) for process in family)
            killed.kill()
            nodes.until_delivering("bank", but_not=killed)
            _, alive = wait_procs(family, timeout=300)
            assert alive == []
    assert_faithful(tmp_path / "files", database)


@pytest.mark.slow
def test_a_job_outlives_its_nodes(nodes: Nodes, database: str, tmp_path: Path) -> None:
    begin_two(nodes)
    await_two(nodes)
    with banking(nodes, database, tmp_path / "files"):
        killed = nodes.until_delivering("bank")
        killed.kill()
        frozen = nodes.until_delivering("bank", but_not=killed)
        nodes.start(killed.name)
        frozen.freeze()
        drained = nodes.until_delivering("bank", but_not=frozen)
        frozen.thaw()
        nodes.until_delivering("bank")
        drain(drained)
        assert nodes.until_delivering("bank", but_not=drained) is frozen
        pause(nodes)
        Changefeeds(nodes.store).resume("bank")
        nodes.until_delivering("bank")
    pause(nodes)
    assert_faithful(tmp_path / "files", database)
    Changefeeds(nodes.store).cancel("bank", "no longer needed")
    nodes.until("bank", "canceled")
