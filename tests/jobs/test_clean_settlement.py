"""A job that was not handed over cleanly stays so until what its earlier node may still deliver are repeats."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cdc_testing.engine import counter_feed
from cdc_testing.runs import eventually
from cdc_testing.stored import DEFINITION, die, node

from cdc_core.engine.attempt_progress import saved_steps
from cdc_core.engine.start_position import register
from cdc_core.engine.supervisor import Outcome
from cdc_core.jobs.definitions import Definitions
from cdc_core.jobs.node import Node
from cdc_core.jobs.running_job import JobEnding, RunningJob
from cdc_core.jobs.settings import NodeSettings
from cdc_core.locality import Locality
from cdc_core.plugins.host import PluginHost
from cdc_core.store.progress import Progress, ProgressStore


class _SlowHost:
    """A Spark that starts at once for the node, and for a changefeed when it is told to."""

    is_local, is_shared, is_alive = True, True, True
    log_name = memory_settings = ""
    death = None

    def __init__(self) -> None:
        self.asked, self.starts = threading.Event(), threading.Event()

    def acquire(self, user: str) -> int:
        if user == "t":
            self.asked.set()
            self.starts.wait(400)
        return 1

    def preload(self, *, stopped: Any) -> None:
        """Do nothing."""

    def release(self, user: str) -> None:
        """Do nothing."""


@pytest.mark.parametrize("clean", [True, False])
def test_a_run_that_ends_before_it_has_begun_has_waited_for_nobody(
    store: ProgressStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, clean: bool
) -> None:
    feed = counter_feed(tmp_path)
    monkeypatch.setattr(Definitions, "resolve", lambda *_, **__: feed)
    store.jobs.create("t", DEFINITION, owner="ann", locality=Locality())
    before = store.nodes.join(node("before"), lease_s=60)
    store.claims.adopt("t", before)
    if clean:
        store.claims.settle("t", before, "stopped")
    die(store, before)
    host: Any = _SlowHost()
    settings = NodeSettings(store=store.url, name="one", directory=str(tmp_path))
    one = Node(settings, host, PluginHost.load(), keep_secret=lambda _: None)
    running = threading.Thread(target=one.run)
    running.start()
    assert host.asked.wait(400)
    one.drain()
    eventually("the node tells its run to stop", lambda: one._running.by_name["t"].stop_requested)
    host.starts.set()
    running.join()
    found = store.jobs.find("t")
    assert found is not None
    assert (found.state, found.node_id, found.clean) == ("running", None, clean)


@pytest.mark.parametrize("steps", [7, 8])
def test_only_a_run_that_has_saved_a_step_leaves_it_clean(store: ProgressStore, tmp_path: Path, steps: int) -> None:
    feed = counter_feed(tmp_path)
    register(feed, store)
    epoch = store.changefeeds.begin_attempt("t")
    store.progress.save("t", epoch, Progress(token={}, counters={"steps": 7}))
    run: Any = SimpleNamespace(has_begun=True, outcome=Outcome("stopped"))
    work = RunningJob(run, feed, steps_before=saved_steps("t", store))
    store.progress.save("t", epoch, Progress(token={}, counters={"steps": steps}))
    assert work.ending(store) == JobEnding("stopped", clean=steps == 8)
    assert RunningJob(run, feed).ending(store) == JobEnding("stopped", clean=True), "nobody was left behind"
