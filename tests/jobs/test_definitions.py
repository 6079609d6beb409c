"""What a node finds out about a job before it adopts it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cdc_testing.engine import counter_feed

from cdc_core.errors import ConfigError, RetryableError
from cdc_core.jobs.definitions import Definitions
from cdc_core.jobs.settings import NodeSettings
from cdc_core.locality import Locality
from cdc_core.plugins.host import PluginHost
from cdc_core.store.job_values import JobRecord
from cdc_core.store.progress import ProgressStore

JOB = JobRecord(name="t", state="running", owner="ann", created=0.0)


def definitions(
    store: ProgressStore, directory: Path, monkeypatch: pytest.MonkeyPatch, *, cluster: Exception
) -> Definitions:
    """Return the definitions of a node whose jobs run on the cluster of the nodes, which fails with an error."""

    def require() -> None:
        raise cluster

    feed = counter_feed(directory, spark={"master": "nodes"})
    monkeypatch.setattr(Definitions, "_resolved", lambda *_: feed)
    settings = NodeSettings(store=store.url, name="one", directory=str(directory))
    of_nodes: Any = SimpleNamespace(require=require)
    return Definitions(store, PluginHost.load(), settings, of_nodes, keep_secret=lambda _: None)


def test_a_store_that_does_not_say_what_the_cluster_has_is_no_problem_of_the_job(
    store: ProgressStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = definitions(store, tmp_path, monkeypatch, cluster=RetryableError("the store is away"))
    for asked in (lambda: found.why_not(JOB), lambda: found.to_start("t")):
        with pytest.raises(RetryableError, match="the store is away"):
            asked()
    assert found.problems() == {}


def test_a_cluster_without_cores_is_a_problem_of_the_job(
    store: ProgressStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = definitions(store, tmp_path, monkeypatch, cluster=ConfigError("no node offers cores"))
    assert found.why_not(JOB) == "no node offers cores"
    assert found.problems() == {"t": "no node offers cores"}


def test_a_setting_of_the_node_that_several_delivery_tasks_cannot_have_is_a_problem_of_the_job(
    store: ProgressStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed = counter_feed(tmp_path, options={"delivery_tasks": 2})
    monkeypatch.setattr("cdc_core.jobs.definitions.changefeed_from", lambda *_, **__: None)
    monkeypatch.setattr("cdc_core.jobs.definitions.resolve", lambda *_: feed)
    store.jobs.create("t", {}, owner="ann", locality=Locality())
    spark = {"spark.speculation": "true"}
    settings = NodeSettings(store=store.url, name="one", directory=str(tmp_path), spark=spark)
    of_node: Any = None
    found = Definitions(store, PluginHost.load(), settings, of_node, keep_secret=lambda _: None)
    assert "remove the setting 'spark.speculation'" in str(found.why_not(JOB))
