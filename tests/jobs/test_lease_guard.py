"""What a node runs ends in time when its session does, also while the node itself waits for the store."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa
from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres
from cdc_testing.engine import eventually
from cdc_testing.fixtures import fresh_database
from cdc_testing.nodes import NodeProcess
from cdc_testing.stored import node

from cdc_core.jobs.child_lines import lease_clock
from cdc_core.jobs.lease import Lease
from cdc_core.store.opening import open_engine, store_url
from cdc_core.store.progress import ProgressStore

LOST = "has not heard from the store: it ends what it runs before others take its jobs over"


def test_a_store_that_does_not_answer_holds_no_end_up(postgres_server: EmbeddedPostgres, tmp_path: Path) -> None:
    with fresh_database(postgres_server) as url:
        one = NodeProcess(tmp_path, "one", url)
        store = ProgressStore(url)
        engine = open_engine(url)
        try:
            one.start()
            eventually(lambda: one.is_running and store.living_nodes(), what="a node", within_s=300)
            with engine.begin() as connection:  # renewals and polls wait for this lock, for 30 s
                connection.execute(sa.text("LOCK TABLE cdc_nodes IN ACCESS EXCLUSIVE MODE"))
                eventually(lambda: LOST in one.log(), what="the end", within_s=25)
        finally:
            one.end()
            engine.dispose()
            store.close()


def test_what_runs_goes_on_while_the_session_does(tmp_path: Path) -> None:
    store = ProgressStore(store_url(tmp_path))
    told: list[float] = []
    abandoned: list[float] = []
    lease = Lease(store, node("one"), lease_s=30, heartbeat_s=0.2)
    with lease.guarding(told.append, lambda: abandoned.append(lease.left_s)):
        first = lease.until
        eventually(lambda: told and told[-1] > first, what="a longer lease")
        assert not abandoned
        store.leave(lease.node.node_id)
        eventually(lambda: abandoned, what="the end")
    assert abandoned[0] <= 0
    assert told[-1] < lease_clock()
    lease.end(leave=False)
