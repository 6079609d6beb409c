"""What the process of a job does beside its run, in this process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cdc_testing.engine import counter_feed

from cdc_core.engine import version_watch
from cdc_core.engine.supervisor import Outcome
from cdc_core.jobs import subprocess_main
from cdc_core.spark.standalone import application_settings
from cdc_core.store.progress import store_url

OF_NODES = application_settings(
    {}, master="spark://a:7077", secret="s", address="a", cores=1, executors=1, slot=0, versions={}
)


class Run:
    """A run that goes on for ten polls, unless it is stopped."""

    status, has_begun, polls, kind = None, True, 0, "complete"

    def __init__(self, *_: Any, **_more: Any) -> None: ...

    def start(self) -> None: ...

    def wait(self, _: float) -> Outcome | None:
        self.polls += 1
        return Outcome(self.kind) if self.kind == "stopped" or self.polls > 10 else None

    def stop(self) -> None:
        self.kind = "stopped"


@pytest.mark.parametrize(
    ("spark", "installed", "kind"),
    [(OF_NODES, "12", "stopped"), (OF_NODES, "1", "complete"), ({"master": "local[2]"}, "12", "complete")],
    ids=["across the nodes", "the same versions", "on this host"],
)
def test_a_job_across_the_nodes_ends_to_start_anew_when_other_versions_are_installed(
    spark: dict[str, str], installed: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions: Iterator[str] = iter(installed)
    now = [""]

    def required(_: object) -> dict[str, str]:
        now[0] = next(versions, now[0])
        return {"cdc-core": now[0]}

    monkeypatch.setattr(version_watch, "_POLL_INTERVAL_S", 0.0)
    monkeypatch.setattr(subprocess_main, "required_versions", required)
    monkeypatch.setattr(subprocess_main, "Supervisor", Run)
    job = {"state_dir": str(tmp_path), "store": store_url(tmp_path), "run": {}}
    node: Any = SimpleNamespace(job=job, stop=threading.Event(), abandon=threading.Event(), say=lambda **_: None)
    assert subprocess_main._run(node, counter_feed(tmp_path, spark=spark)).kind == kind
