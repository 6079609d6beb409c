"""The cluster of the nodes: one leads at a time, its master's files reach the next one, and each job has a slot."""

from __future__ import annotations

from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from cdc_testing.stored import DEFINITION, die, node

from cdc_core.changefeeds.service import Changefeeds
from cdc_core.jobs.cluster import of_living
from cdc_core.locality import Locality
from cdc_core.store.job_values import NodeRecord
from cdc_core.store.progress import ProgressStore


def joined(store: ProgressStore, name: str, *, cores: int = 1) -> NodeRecord:
    return store.nodes.join(replace(node(name), cores=cores, master=f"{name}:7077"), lease_s=60)


def test_one_node_leads_until_its_session_is_over_and_the_next_one_has_its_files(store: ProgressStore) -> None:
    one, two = joined(store, "one"), joined(store, "two")
    joined(store, "three", cores=0)
    before = store.cluster.poll()
    assert (before.leader, len(before.salt)) == (None, 32), "drivers may be quicker than who leads"
    first = store.cluster.poll(one)
    assert (first.leader, first.epoch, first.url) == (one, 1, "spark://one:7077,two:7077")
    assert first.salt == before.salt
    assert store.cluster.poll(two) == first
    assert store.cluster.save({"app_1": "YQ=="}, epoch=1)
    die(store, one)
    second = store.cluster.poll(two)
    assert (second.leader, second.epoch, second.url, second.salt) == (two, 2, "spark://two:7077", first.salt)
    assert store.cluster.files() == {"app_1": "YQ=="}
    assert not store.cluster.save({}, epoch=1), "one that lost the lead unnoticed"
    assert store.cluster.files() == {"app_1": "YQ=="}


def test_a_node_that_drains_or_has_no_cores_does_not_lead(store: ProgressStore) -> None:
    one, none = joined(store, "one"), joined(store, "none", cores=0)
    Changefeeds(store).drain("one")
    assert store.cluster.poll(one).leader is None
    assert store.cluster.poll(none).leader is None


def test_a_node_that_leads_is_reported_as_such_while_it_drains(store: ProgressStore) -> None:
    one, feeds = joined(store, "one"), Changefeeds(store)
    store.cluster.poll(one)
    drained = feeds.drain("one")
    assert feeds.node(drained).to_json()["leads"]
    store.nodes.leave(one.node_id)
    assert not feeds.node(drained).to_json()["leads"]


def test_a_job_gets_the_cores_of_the_smallest_node_that_it_may_begin_on(store: ProgressStore) -> None:
    for name, cores, place in (("eu", 4, "region=eu"), ("small", 1, "region=eu"), ("us", 2, "region=us")):
        store.nodes.join(replace(node(name, place), cores=cores, master=f"{name}:7077"), lease_s=60)
    found = store.cluster.poll()
    assert [found.cores(place) for place in (None, "region=eu", "region=us", "region=asia")] == [1, 1, 2, 1]
    Changefeeds(store).drain("small")
    found = store.cluster.poll()
    assert [found.cores(place) for place in (None, "region=eu")] == [2, 4]


def test_of_nodes_that_ask_at_the_same_time_one_leads(store: ProgressStore) -> None:
    nodes = [joined(store, f"n{number}") for number in range(6)]
    with ThreadPoolExecutor(len(nodes)) as pool:
        found = list(pool.map(lambda node: ProgressStore(store.url).cluster.poll(node), nodes))
    assert len({(record.leader.name if record.leader else None, record.epoch) for record in found}) == 1


def test_jobs_that_run_have_different_slots_and_a_job_another_one_than_before(store: ProgressStore) -> None:
    one, count = joined(store, "one"), 16
    store.cluster.poll(one)
    for name in ("a", "b", "c"):
        store.jobs.create(name, DEFINITION, owner="ann", locality=Locality())
        store.claims.adopt(name, one)
    slots = {name: store.cluster.take_slot(name, count=2) for name in ("a", "b", "c")}
    assert (sorted([slots["a"] or 0, slots["b"] or 0]), slots["c"]) == ([0, 1], None)
    slots["c"] = store.cluster.take_slot("c", count=count)
    of_a = [slots["a"]]
    for _ in range(2):
        store.claims.settle("a", one, "stopped")
        store.claims.adopt("a", one)
        of_a.append(store.cluster.take_slot("a", count=count))
        assert of_a[-1] not in (slots["b"], slots["c"])
    assert len(set(of_a)) == len(of_a), "executors of its last runs may not have ended"
    die(store, one)
    assert store.cluster.take_slot("b", count=1) == 0


def test_a_job_that_runs_across_the_nodes_no_more_has_no_slot(store: ProgressStore) -> None:
    one = joined(store, "one")
    store.cluster.poll(one)
    for name in ("a", "b"):
        store.jobs.create(name, DEFINITION, owner="ann", locality=Locality())
        store.claims.adopt(name, one)
    assert store.cluster.take_slot("a", count=1) == 0
    assert store.cluster.take_slot("b", count=1) is None
    store.claims.settle("a", one, "stopped")
    store.claims.adopt("a", one)
    assert store.cluster.take_slot("b", count=1) == 0


def test_a_node_that_resigns_lets_another_one_lead_unless_another_one_does(store: ProgressStore) -> None:
    one, two = joined(store, "one"), joined(store, "two")
    assert store.cluster.poll(one).epoch == 1
    store.cluster.resign(1)
    assert store.cluster.poll().leader is None
    assert store.cluster.poll(two).leader == two
    store.cluster.resign(1)
    assert store.cluster.poll(one).leader == two


def test_a_master_that_takes_over_waits_for_no_worker_or_driver_on_a_dead_node(store: ProgressStore) -> None:
    one = joined(store, "10.0.0.1")
    store.cluster.poll(one)
    worker = "worker_worker-20261129164329-{}-33361"
    files = {worker.format(address): "" for address in ("10.0.0.1", "10.0.0.2")}
    drivers = {"app_app-1": "10.0.0.1", "app_app-2": "10.0.0.2", "app_app-3": "10.0.0.3"}
    files |= {name: b64encode(f"!spark://AppClient@{at}:36043xt".encode()).decode() for name, at in drivers.items()}
    store.cluster.save(files, epoch=1)
    found = of_living(store.cluster.poll(), store.cluster.files())
    assert found.keys() == {worker.format("10.0.0.1"), "app_app-1", "app_app-3"}, "a driver needs no worker beside it"
