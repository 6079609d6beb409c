"""What goes wrong with one job, or in a plugin, stays there: other jobs and the node go on."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from cdc_testing.bare_nodes import StuckHost, bare_node, bare_settings, create, plugins
from cdc_testing.processes import kill, lives
from cdc_testing.runs import eventually
from cdc_testing.stored import die, progress

from cdc_core.changefeeds.service import Changefeeds
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.engine import history_meter
from cdc_core.engine.fencing import RunLock
from cdc_core.engine.supervisor import Supervisor
from cdc_core.jobs import node as node_module
from cdc_core.jobs.definitions import Definitions
from cdc_core.store.job_values import JobRecord
from cdc_core.store.progress import ProgressStore, store_url

HERE = "region=eu-west-1,cloud=aws"


@pytest.fixture
def url(tmp_path: Path) -> str:
    return store_url(tmp_path / "store")


def found(store: ProgressStore, name: str) -> JobRecord:
    job = store.jobs.find(name)
    assert job is not None
    return job


def has_ended(store: ProgressStore, name: str) -> bool:
    return found(store, name).state == "revert-failed"


def problems(store: ProgressStore) -> dict[str, str]:
    return {job: why for node in store.nodes.living() for job, why in node.problems.items()}


@pytest.mark.parametrize("kind", ["RetryableError", "ZeroDivisionError", "SystemExit", "TerminalError"])
def test_a_plugin_that_fails_touches_no_other_job(
    store: ProgressStore, tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    caplog.set_level(logging.WARNING)
    create(store, "a", "frail")
    create(store, "b")
    with bare_node(bare_settings(store.url, tmp_path / "one"), StuckHost(), plugins(broken=kind)):
        eventually("the other job is adopted", lambda: found(store, "b").node)
        eventually("its problem is known", lambda: "a" in problems(store))
        assert "the plugin is broken" in problems(store)["a"]
        create(store, "c")  # some polls later
        eventually("the next job is adopted", lambda: found(store, "c").node)
        assert (found(store, "a").state, found(store, "a").node) == ("running", None)
    assert len([record for record in caplog.records if "job 'a' cannot run" in record.getMessage()]) == 1


def test_what_fails_after_the_adoption_hands_the_job_back(
    store: ProgressStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Supervisor, feed: Any, **_: Any) -> None:
        raise ValueError(f"no room for {feed.name}")

    monkeypatch.setattr(Supervisor, "__init__", fail)
    create(store, "a")
    with bare_node(bare_settings(store.url, tmp_path / "one"), StuckHost(), plugins()):
        eventually("its problem is known", lambda: "a" in problems(store))
        assert problems(store)["a"] == "ValueError: no room for a"
        assert (found(store, "a").state, found(store, "a").node) == ("running", None)
    assert [event.reason for event in store.jobs.events("a")] == ["created", "adopted", "ValueError: no room for a"]


def test_a_failing_job_restarts_for_a_secret_that_was_changed_while_it_started(
    store: ProgressStore, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    secret, to_start = tmp_path / "secret", Definitions.to_start

    def change(self: Definitions, name: str) -> ResolvedChangefeed:
        feed = to_start(self, name)
        secret.write_text("new")
        return feed

    secret.write_text("old")
    monkeypatch.setattr(Definitions, "to_start", change)
    monkeypatch.setattr(Supervisor, "status", SimpleNamespace(retrying="the secret is wrong"))
    create(store, "a", control=f"${{file:{secret}}}")
    with bare_node(bare_settings(store.url, tmp_path / "one"), StuckHost(), plugins()):
        text = "job 'a' restarts, because what its definition refers to has changed"
        eventually("it is told to stop", lambda: text in caplog.text)


def test_a_job_waits_for_the_end_of_an_earlier_process_of_its_node(store: ProgressStore, tmp_path: Path) -> None:
    host = StuckHost()
    with RunLock(tmp_path / "a.lock") as lock:
        assert lock.acquire()
        create(store, "a")
        with bare_node(bare_settings(store.url, tmp_path), host, plugins()):
            eventually("its problem is known", lambda: "a" in problems(store))
            assert f"is already running from {tmp_path} (process {os.getpid()})" in problems(store)["a"]
            lock.release()
            eventually("it runs", lambda: "a" in host.stuck)
            host.freed["a"].set()


def test_a_job_that_no_node_can_run_can_be_canceled(store: ProgressStore, tmp_path: Path) -> None:
    create(store, "a", "frail")
    create(store, "b", owner="bob")
    settings = bare_settings(store.url, tmp_path / "one", owners="ann")
    with bare_node(settings, StuckHost(), plugins(broken="SystemExit")):
        eventually("its problem is known", lambda: "a" in problems(store))
        for name in ("a", "b"):
            Changefeeds(store).cancel(name, "no longer needed")
        for name in ("a", "b"):
            eventually("its end", partial(has_ended, store, name))
    reason = found(store, "a").reason or ""
    assert reason.startswith("what it created at its source frail:// still exists, because no live node can drop")
    assert "(one: " in reason
    assert "the plugin is broken" in reason
    assert reason.endswith("repeat `cdc cancel a`, or keep what it created with `cdc drop a --forget-only`")
    assert "(one: it runs no jobs of 'bob')" in (found(store, "b").reason or "")


def test_a_node_measures_only_what_it_may_run(
    store: ProgressStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_meter, "_POLL_S", 0.02)
    for name, owner in (("a", "bob"), ("b", "ann")):
        create(store, name, owner=owner)
        Changefeeds(store).pause(name, "maintenance")
        store.progress.save(name, store.changefeeds.begin_attempt(name), progress())

    def is_measured(name: str) -> bool:
        known = store.changefeeds.find(name)
        return known is not None and known.measured_at is not None

    with bare_node(bare_settings(store.url, tmp_path / "one", owners="ann"), StuckHost(), plugins()):
        eventually("what its source retains is measured", partial(is_measured, "b"))
    assert not is_measured("a")


def test_a_node_that_can_reverts_what_another_one_cannot(store: ProgressStore, tmp_path: Path) -> None:
    create(store, "a", "frail")
    with bare_node(bare_settings(store.url, tmp_path / "one"), StuckHost(), plugins(broken="SystemExit")):
        eventually("its problem is known", lambda: "a" in problems(store))
        with bare_node(bare_settings(store.url, tmp_path / "two", max_jobs="1"), StuckHost(), plugins()):
            eventually("the other one runs it", lambda: found(store, "a").node == "two")
            Changefeeds(store).cancel("a", "no longer needed")
    assert found(store, "a").state == "canceled"


def test_a_node_does_at_once_what_it_need_not_poll_for(
    store: ProgressStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[float] = []
    settle = node_module.Node._settle_ended

    def looked(*arguments: Any, **named: Any) -> None:
        looks.append(time.monotonic())
        settle(*arguments, **named)

    monkeypatch.setattr(node_module.Node, "_settle_ended", looked)
    create(store, "a")
    host = StuckHost()
    with bare_node(bare_settings(store.url, tmp_path / "one", poll="10m", lease="20m"), host, plugins()) as node:
        eventually("the job is adopted", lambda: found(store, "a").node)
        eventually("it runs", lambda: host.stuck)
        before = len(looks)
        eventually("a moment", lambda: store.nodes.living()[0].expires - time.time() > 0, limit_s=5)
        assert len(looks) - before <= 1
        node.drain()
        host.freed["a"].set()
        eventually("the node has left", lambda: not store.nodes.living())
    assert found(store, "a").clean
    assert len(looks) < 10


def test_a_node_that_drains_by_itself_gets_nothing_more_from_others(store: ProgressStore, tmp_path: Path) -> None:
    create(store, "a")
    host = StuckHost()
    with bare_node(bare_settings(store.url, tmp_path / "one"), host, plugins()) as node:
        eventually("the job runs", lambda: host.stuck)
        node.drain()
        eventually("it is known to drain", lambda: store.nodes.living()[0].draining)


def test_a_node_gives_jobs_to_one_that_joins(
    store: ProgressStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Supervisor, "has_begun", True)
    for name in "abc":
        create(store, name)
    host = StuckHost()
    with bare_node(bare_settings(store.url, tmp_path / "one"), host, plugins()) as one:
        eventually("all are adopted", lambda: all(found(store, name).node for name in "abc"))
        with bare_node(bare_settings(store.url, tmp_path / "two"), StuckHost(), plugins()):
            eventually("one is to move", lambda: one._running.by_name["a"].moves_to)
            host.freed["a"].set()
            eventually("one has moved", lambda: found(store, "a").node == "two")
            assert {found(store, name).node for name in "bc"} == {"one"}
            events = [(event.node, event.reason) for event in store.jobs.events("a")]
            assert events[1:] == [("one", "adopted"), ("one", "handed over"), ("two", "adopted")]


@contextmanager
def process(
    store: ProgressStore, directory: Path, **options: str
) -> Iterator[tuple[subprocess.Popen[str], psutil.Process]]:
    """Yield a node as a process whose changefeed is stuck, and its child."""
    arguments = [store.url, str(directory), *(f"{name}={value}" for name, value in options.items())]
    with subprocess.Popen(
        [sys.executable, "-m", "cdc_testing.bare_nodes", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as node:
        assert node.stdout is not None
        child = psutil.Process(json.loads(node.stdout.readline())["child"])
        try:
            yield node, child
        finally:
            node.kill()
            kill(child)


@pytest.mark.parametrize("way", ["drain", "lost"])
def test_a_node_whose_changefeed_hangs_ends(store: ProgressStore, tmp_path: Path, way: str) -> None:
    create(store, "a")
    with process(store, tmp_path / "one", drain_limit="1s") as (node, child):
        if way == "drain":
            Changefeeds(store).drain("one")
        else:
            die(store, store.nodes.living()[0])
        _, said = node.communicate(timeout=300)
        assert node.returncode == 1, said
        what = "drained" if way == "drain" else "lost its session"
        assert f"node 'one' {what} 1s ago, and changefeed 'a' has still not ended: this process ends" in said
        eventually("the end of its child", lambda: not lives(child))


def test_a_node_that_was_killed_has_its_jobs_again_at_once(store: ProgressStore, tmp_path: Path) -> None:
    create(store, "a")
    long = {"lease": "10m", "heartbeat": "1m"}
    with process(store, tmp_path / "one", **long):
        assert found(store, "a").epoch == 1
    with process(store, tmp_path / "one", **long):
        assert found(store, "a").epoch == 2


def test_a_job_that_its_spark_master_cannot_pin_waits_with_the_reason(store: ProgressStore, tmp_path: Path) -> None:
    settings = bare_settings(store.url, tmp_path / "one", locality=f"{HERE},zone=a")
    with bare_node(settings, StuckHost(), plugins()):
        eventually("a node", store.nodes.living)
        create(store, "orders", locality=HERE, master="yarn")
        problem = f"execution_locality {HERE} has 2 tiers, but YARN selects nodes by one label"
        eventually("why", lambda: problem in str(problems(store)))
