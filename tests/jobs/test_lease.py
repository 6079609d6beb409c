"""A session of a node is over by the node's own clock before the store lets another node have its jobs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from cdc_testing.runs import eventually
from cdc_testing.stored import DEFINITION, node
from cdc_testing.tcp_proxy import TcpProxy

from cdc_core.jobs.lease import Lease
from cdc_core.locality import Locality
from cdc_core.store.job_values import Adoption
from cdc_core.store.progress import ProgressStore

LEASE_S = 6.0
HEARTBEAT_S = 0.1


@contextmanager
def stored(url: str) -> Iterator[ProgressStore]:
    with closing(ProgressStore(url)) as store:
        yield store


def leased(url: str, name: str = "one", *, lease_s: float = LEASE_S) -> Lease:
    return Lease(ProgressStore(url), node(name), lease_s=lease_s, heartbeat_s=HEARTBEAT_S)


def is_alive(store: ProgressStore, lease: Lease) -> bool:
    return any(each.node_id == lease.node.node_id for each in store.claims.overview().nodes)


def test_a_lease_that_is_renewed_lives_on(url: str) -> None:
    with stored(url) as store:
        lease = leased(url, lease_s=600)
        first = lease.node.expires
        eventually("several renewals", lambda: lease.node.expires > first + 10 * HEARTBEAT_S)
        assert is_alive(store, lease)
        assert lease.left_s > 0
        lease.end(leave=True)
        assert not is_alive(store, lease)


def test_a_lease_that_ends_without_leaving_expires(url: str) -> None:
    with stored(url) as store:
        lease = leased(url, lease_s=1)
        lease.end(leave=False)
        eventually("the session expires", lambda: not is_alive(store, lease))
        assert lease.left_s <= 0


@pytest.mark.parametrize("way", ["cut", "refuse"])
def test_a_node_without_its_store_knows_first(database: str, way: str) -> None:
    with stored(database) as store, TcpProxy(database) as proxy:
        store.jobs.create("orders", DEFINITION, owner="ann", locality=Locality())
        lease = leased(proxy.url)
        other = store.nodes.join(node("two"), lease_s=60)
        assert store.claims.adopt("orders", lease.node) is not None
        getattr(proxy, way)()
        was_unsafe = False

        def adopted() -> Adoption | None:
            nonlocal was_unsafe
            was_unsafe = was_unsafe or not lease.is_safe
            return store.claims.adopt("orders", other)

        claim = eventually("another node adopts the job", adopted, limit_s=300)
        assert lease.left_s <= 0, "the store gave the job away while its node believed to have it"
        assert was_unsafe
        assert claim is not None
        assert not claim.clean
        proxy.mend()
        eventually("the node hears that its session is over", lambda: lease.left_s == float("-inf"))
        assert store.nodes.renew(lease.node.node_id, lease_s=LEASE_S, problems={}) is None
        lease.end(leave=False)


def test_a_short_outage_costs_nothing(database: str) -> None:
    with stored(database) as store, TcpProxy(database) as proxy:
        lease = Lease(ProgressStore(proxy.url), node("one"), lease_s=20, heartbeat_s=HEARTBEAT_S)
        known = lease.node.node_id
        proxy.refuse()
        before = lease.node.expires
        eventually("renewals are missing", lambda: lease.left_s < 19)
        proxy.mend()
        eventually("it renews again", lambda: lease.node.expires > before + 1)
        assert lease.node.node_id == known
        assert lease.is_safe
        lease.end(leave=True)
        assert store.claims.overview().nodes == []


HOLDER = """
import sys
from cdc_core.jobs.lease import Lease
from cdc_core.locality import Locality
from cdc_core.store.job_values import NodeRecord
from cdc_core.store.progress import ProgressStore

url, lease_s, heartbeat_s = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
record = NodeRecord(
    node_id="", name="one", locality=Locality(), host="here", pid=1, directory="/one", version="1", max_jobs=9
)
lease = Lease(ProgressStore(url), record, lease_s=lease_s, heartbeat_s=heartbeat_s)
print(lease.node.node_id, flush=True)
for _ in sys.stdin:
    print(lease.left_s, flush=True)
"""


def test_a_process_that_was_stopped_knows_as_soon_as_it_goes_on(url: str) -> None:
    with (
        stored(url) as store,
        subprocess.Popen(
            [sys.executable, "-c", HOLDER, url, str(LEASE_S), str(HEARTBEAT_S)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as holder,
    ):
        assert holder.stdin is not None
        assert holder.stdout is not None
        session = holder.stdout.readline().strip()

        def alive() -> bool:
            return any(each.node_id == session for each in store.claims.overview().nodes)

        def left_s() -> float:
            assert holder.stdin is not None
            assert holder.stdout is not None
            holder.stdin.write("\n")
            holder.stdin.flush()
            return float(holder.stdout.readline())

        try:
            assert left_s() > 0
            assert alive()
            os.kill(holder.pid, signal.SIGSTOP)
            eventually("its session expires", lambda: not alive())
            os.kill(holder.pid, signal.SIGCONT)
            assert left_s() <= 0
            assert not alive(), "an expired session came back to life"
        finally:
            holder.kill()
