"""What is said about a master that gives no executor, and about an executor that runs no Python."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from cdc_core.engine.query_host import QueryHostError
from cdc_core.errors import ConfigError
from cdc_core.spark.executors import Presence, _problem, await_executors, require_executors
from cdc_core.spark.standalone import EXECUTORS

PINNED = {"spark.executor.resource.cdc_region_us-east-2.amount": "1"}


@pytest.mark.parametrize(
    ("master", "settings", "said"),
    [
        ("yarn", {}, "the master yarn offered none; see the master's own tools for the reason"),
        (
            "spark://a:7077",
            {},
            "the master spark://a:7077 offered none; its web page and its log show its resources",
        ),
        (
            "spark://a:7077",
            PINNED,
            "its web page and its log show its resources. Change execution_locality, or start a worker there "
            "with the settings of `cdc worker-resources`",
        ),
        (
            "spark://a:7077,b:7077",
            {"spark.executor.resource.cdc_job_3.amount": "1"},
            "the master spark://a:7077,b:7077 offered none; start `cdc node --cores N` where execution_locality matches"
            ", with the job's versions and enough --memory, and see the logs of the nodes for their workers",
        ),
    ],
)
def test_an_error_without_executors_says_where_to_look(
    monkeypatch: pytest.MonkeyPatch, master: str, settings: dict[str, str], said: str
) -> None:
    monkeypatch.setattr("cdc_core.spark.executors.executor_ids", lambda _: set())
    conf = SimpleNamespace(getAll=settings.items)
    session: Any = SimpleNamespace(sparkContext=SimpleNamespace(master=master, getConf=lambda: conf))
    with pytest.raises(QueryHostError) as raised:
        require_executors(session, 0.0, Presence())
    assert str(raised.value).endswith(said)


@pytest.mark.parametrize(
    ("settings", "settled", "waits"),
    [({}, set(), True), ({}, {"0", "1"}, False), ({EXECUTORS: "2"}, set(), False), ({EXECUTORS: "3"}, set(), True)],
    ids=["more may register", "they were there before", "all that nodes can have", "a node has none yet"],
)
def test_executors_are_given_time_to_register_if_more_may_come(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], settled: set[str], waits: bool
) -> None:
    monkeypatch.setattr("cdc_core.spark.executors.executor_ids", lambda _: {"0", "1"})
    monkeypatch.setattr("cdc_core.spark.executors.is_alive", lambda _: True)
    presence, polls = Presence(settled=settled), iter((False, True))
    context = SimpleNamespace(
        defaultParallelism=2, getConf=lambda: SimpleNamespace(get=lambda key, other=None: settings.get(key, other))
    )
    session: Any = SimpleNamespace(sparkContext=context)
    assert await_executors(session, 60.0, presence, stopped=lambda: next(polls)) == 2
    assert next(polls, None) is (None if waits else True)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('IOException: Cannot run program "/opt/bin/python"', "has no Python at /opt/bin/python; install"),
        ("Python in worker has different version: 3.12 than that in driver: 3.11", "has Python 3.12, but the driver"),
        ("ModuleNotFoundError: No module named 'cdc_core'", "has no Python module cdc_core; install"),
    ],
)
def test_an_executor_without_our_installation_is_named_and_may_be_repaired(text: str, said: str) -> None:
    lost = "Lost task 0.3 in stage 1.0 (TID 7) (10.0.0.2 executor 5): "
    error = _problem(lost + text)
    assert isinstance(error, ConfigError)
    assert str(error).startswith(f"executor 5 on host 10.0.0.2 {said}")
    assert error.repairable
