"""A driver finds the master of the nodes' cluster, and notices when another one does not know its application."""

from __future__ import annotations

import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock, Mock

import pytest
from cdc_testing.stored import node

from cdc_core.engine.query_host import QueryHostError
from cdc_core.errors import RetryableError
from cdc_core.jobs import nodes_master
from cdc_core.jobs.nodes_master import NodesMaster
from cdc_core.spark import host
from cdc_core.spark.host import SparkHost
from cdc_core.store.cluster import ClusterRecords
from cdc_core.store.job_values import NodeRecord
from cdc_core.store.progress import ProgressStore

APP = "app-20261129164329-0001"
FILES = {f"app_{APP}": "YQ=="}


def joined(store: ProgressStore, name: str, *, cores: int = 1) -> NodeRecord:
    return store.nodes.join(replace(node(name), cores=cores, master=f"{name}:7077"), lease_s=600)


@pytest.fixture
def lost(store: ProgressStore, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[bool]]:
    """Open a session while node `one` leads; whether the application is lost then, and seconds after each other."""
    now = 0.0
    monkeypatch.setattr(nodes_master, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(nodes_master, "listens", lambda _: True)
    store.cluster.poll(joined(store, "one"))
    master = NodesMaster(store)
    assert master.url(wanted=lambda: True) == "spark://one:7077"

    def lost() -> list[bool]:
        nonlocal now
        found = []
        for _ in range(5):
            now += 2.5
            found.append(master.has_lost(APP))
        return found

    return lost


def another_leads(store: ProgressStore) -> int:
    two = joined(store, "two")
    epoch = store.cluster.poll().epoch
    store.cluster.resign(epoch)
    return store.cluster.poll(two).epoch


def test_a_driver_waits_until_a_master_listens_and_not_when_no_node_offers_cores(
    store: ProgressStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes_master, "_LISTENS_POLL_S", 0.01)
    master, polls = NodesMaster(store), iter([True, True, False])
    joined(store, "none", cores=0)
    with pytest.raises(RetryableError, match="no node offers cores; start a node with") as raised:
        master.url(wanted=lambda: True)
    assert raised.value.outage
    with socket.socket() as listening, ThreadPoolExecutor() as pool:
        listening.bind(("127.0.0.1", 0))
        one = store.nodes.join(
            replace(node("one"), cores=1, master=f"127.0.0.1:{listening.getsockname()[1]}"), lease_s=600
        )
        found = f"spark://{one.master}"
        assert master.url(wanted=polls.__next__) == found, "nobody leads, and it is not wanted any more"
        store.cluster.poll(one)
        waiting = pool.submit(master.url, wanted=lambda: True)
        assert wait([waiting], timeout=0.3).not_done
        listening.listen()
        assert waiting.result(60) == found
        monkeypatch.setattr(nodes_master, "_START_S", 0.0)
        listening.close()
        assert master.url(wanted=lambda: True) == found, "another one may lead when Spark asks again"


def test_an_application_is_lost_once_a_master_leads_that_does_not_know_it(
    store: ProgressStore, lost: Callable[[], list[bool]]
) -> None:
    assert not any(lost()), "the one that it registered with will save it"
    another_leads(store)
    assert lost() == [False, False, True, True, True]


def test_an_application_that_the_next_master_takes_over_is_not_lost_until_it_gives_it_up(
    store: ProgressStore, lost: Callable[[], list[bool]]
) -> None:
    assert store.cluster.save(FILES, epoch=1)
    epoch = another_leads(store)
    assert not any(lost())
    assert store.cluster.save({}, epoch=epoch)
    assert lost()[-1]


def test_a_master_that_saves_late_has_not_lost_it(store: ProgressStore, lost: Callable[[], list[bool]]) -> None:
    """The application has registered with it, although another one led when the session began to open."""
    epoch = another_leads(store)
    assert lost()[0] is False
    assert store.cluster.save(FILES, epoch=epoch)
    assert not any(lost())


def test_a_store_out_of_reach_says_nothing_of_it(
    lost: Callable[[], list[bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ClusterRecords, "knows", Mock(side_effect=RetryableError("the connection is gone")))
    assert not any(lost())


def test_a_session_that_its_master_has_lost_ends_and_the_next_one_finds_the_master_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[object] = []
    master = Mock(url=Mock(return_value="spark://one:7077"), has_lost=Mock(return_value=False))
    for name, value in {
        "open_session": lambda *_, **__: Mock(sparkContext=Mock(applicationId=APP, defaultParallelism=1)),
        "StartSessions": lambda main: MagicMock(main=main),
        "make_active": Mock(),
        "is_alive": lambda _: True,
        "await_executors": lambda *_, stopped: stopped(),
        "end_jvm": ended.append,
    }.items():
        monkeypatch.setattr(host, name, value)
    spark = {"master": "spark://one:7077", "spark.authenticate": "true", "spark.network.crypto.enabled": "true"}
    tested = SparkHost("t", spark, state_dir=tmp_path, master=master)
    tested.acquire("t")
    master.has_lost.return_value = True
    with pytest.raises(QueryHostError, match="no longer knows the application") as raised:
        tested.maintain(executor_wait_s=60, slots=1)
    assert raised.value.outage
    tested.acquire("t")
    assert (ended, master.url.call_count) == ([], 1), "its query is still to be stopped"
    with pytest.raises(QueryHostError, match="no longer knows the application"):
        tested.await_executors(60, stopped=lambda: False)
    tested.acquire("t")
    assert (len(ended), master.url.call_count) == (1, 2)
