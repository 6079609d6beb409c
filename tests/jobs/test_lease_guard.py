"""What a node runs ends in time when its session does, also while the node itself waits for the store."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from cdc_testing.bare_nodes import StuckHost, bare_node, bare_settings, plugins
from cdc_testing.runs import eventually
from cdc_testing.stored import node

from cdc_core.engine.ipc import lease_clock
from cdc_core.errors import RetryableError
from cdc_core.jobs.lease import Lease
from cdc_core.store.job_values import NodeRecord
from cdc_core.store.opening import open_engine, store_url
from cdc_core.store.progress import ProgressStore

LOST = "has lost contact with the store: it stops its jobs before other nodes take them over"


AGAIN = "its session expired, after it had stopped its jobs"


def test_a_store_that_does_not_answer_holds_no_end_up(
    database: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    store = ProgressStore(database)
    store.open()
    engine = open_engine(database)
    try:
        with bare_node(bare_settings(database, tmp_path / "one", lease="5s"), StuckHost(), plugins()):
            eventually("a node", store.nodes.living)
            with engine.begin() as connection:  # renewals and polls wait for this lock, for 30 s
                connection.execute(sa.text("LOCK TABLE cdc_nodes IN ACCESS EXCLUSIVE MODE"))
                eventually("the end", lambda: LOST in caplog.text, limit_s=25)
            eventually("the next session", lambda: AGAIN in caplog.text)
    finally:
        engine.dispose()
        store.close()


def test_what_runs_goes_on_while_the_session_does(tmp_path: Path) -> None:
    store = ProgressStore(store_url(tmp_path))
    told: list[float] = []
    abandoned: list[float] = []
    lease = Lease(store, node("one"), lease_s=30, heartbeat_s=0.2)
    with lease.guarding(told.append, lambda: abandoned.append(lease.left_s)):
        first = lease.until
        eventually("a longer lease", lambda: told and told[-1] > first)
        assert not abandoned
        store.nodes.leave(lease.node.node_id)
        eventually("the end", lambda: abandoned)
    assert abandoned[0] <= 0
    assert told[-1] < lease_clock()
    lease.end(leave=False)


def test_a_renewal_that_comes_late_does_not_take_back_that_all_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ProgressStore(store_url(tmp_path))
    renew = store.nodes.renew
    abandoned = threading.Event()

    def late(node_id: str, **session: Any) -> NodeRecord | None:
        if not abandoned.is_set():
            raise RetryableError("out of reach")
        return renew(node_id, **session)

    monkeypatch.setattr(store.nodes, "renew", late)
    lease = Lease(store, node("one"), lease_s=3, heartbeat_s=0.05)
    with lease.guarding(lambda _: None, abandoned.set):
        assert abandoned.wait(300)
        eventually("a late renewal", lambda: lease.left_s > 2 or lease.left_s < 0)
        assert not lease.is_safe
    lease.end(leave=False)
