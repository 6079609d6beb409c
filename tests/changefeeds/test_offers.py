"""What is started through the server of a node is offered to that node first, if it can have it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import pytest
from cdc_testing.components import encoder, host, rangefeed, sink
from cdc_testing.stored import DEFINITION, die, node

from cdc_core.changefeeds.service import Changefeeds
from cdc_core.config.definition import changefeed_of
from cdc_core.store.job_values import NodeRecord
from cdc_core.store.progress import ProgressStore
from cdc_core.store.reports import report

WRITTEN = {"source": "paper://desk/db", "tables": ["public.orders"], "sink": "shelf://room"}


@pytest.fixture
def store(url: str) -> Iterator[ProgressStore]:
    with closing(ProgressStore(url)) as store:
        yield store


def joined(store: ProgressStore, name: str, locality: str = "", **values: Any) -> NodeRecord:
    return store.nodes.join(replace(node(name, locality), **values), lease_s=600)


def through(store: ProgressStore, name: str | None) -> Changefeeds:
    """Return the changefeeds as the server of the node of this name serves them, or of none."""
    return Changefeeds(store, plugins=host(rangefeed(), encoder(), sink()), environ={}, node=name)


def create(
    feeds: Changefeeds, name: str = "orders", *, paused_for: Literal["pause"] | None = None, **options: str
) -> None:
    feed = feeds.resolved(changefeed_of(name, WRITTEN | {"options": options}, origin="a test", environ={}))
    feeds.create(feed, owner="ann", connect=False, paused_for=paused_for)


def restart(feeds: Changefeeds, name: str) -> None:
    feeds.restart(name, "once more")


def offered_to(store: ProgressStore) -> str | None:
    """Return the name of the node that job `orders` is offered to."""
    job = store.jobs.find("orders")
    assert job is not None
    now, nodes = store.nodes.all()
    found = job.reserved_for(nodes, now=now)
    assert found is None or 5 < (job.offered_until or now) - now <= 10
    return found and found.name


def test_a_new_job_is_for_the_node_that_is_asked(store: ProgressStore) -> None:
    one, two = joined(store, "one"), joined(store, "two")
    create(through(store, "two"))
    assert offered_to(store) == "two"
    assert store.claims.adopt("orders", one) is None
    assert store.claims.adopt("orders", two) is not None
    assert offered_to(store) is None


def redefine(feeds: Changefeeds, name: str) -> None:
    before = feeds.known(name).definition
    after = changefeed_of(name, WRITTEN | {"tables": ["public.more"]}, origin="a test", environ={})
    feeds.redefine(name, before=before, after=feeds.resolved(after), why="altered", connect=False)


@pytest.mark.parametrize("again", [Changefeeds.resume, restart, redefine])
def test_a_job_that_runs_again_is_for_the_node_that_is_asked(
    store: ProgressStore, again: Callable[[Changefeeds, str], object]
) -> None:
    one, two = joined(store, "one"), joined(store, "two")
    create(through(store, None))
    assert store.claims.adopt("orders", one) is not None
    assert store.claims.settle("orders", one, "failed", "the sink refuses") == "failed"
    again(through(store, "two"), "orders")
    assert offered_to(store) == "two"
    assert store.claims.adopt("orders", two) is not None


def test_no_other_door_offers_a_job(store: ProgressStore) -> None:
    joined(store, "one")
    feeds = through(store, None)
    create(feeds)
    assert offered_to(store) is None
    feeds.pause("orders", "maintenance")
    feeds.resume("orders")
    assert offered_to(store) is None


@pytest.mark.parametrize("why", ["has left", "drains", "is elsewhere", "of another owner", "is full", "will be full"])
def test_a_node_that_cannot_have_a_job_is_offered_none(store: ProgressStore, why: str) -> None:
    values: dict[str, dict[str, Any]] = {
        "of another owner": {"owners": ("bob",)},
        "is full": {"max_jobs": 1},
        "will be full": {"max_jobs": 1},
    }
    one = joined(store, "one", "region=us", **values.get(why, {}))
    two, feeds = joined(store, "two", "region=eu"), through(store, "one")
    if why == "has left":
        store.nodes.leave(one.node_id)
    elif why == "drains":
        feeds.drain("one")
    elif "full" in why:
        create(feeds, "users")
    if why == "is full":
        assert store.claims.adopt("users", one) is not None
    create(feeds, **({"execution_locality": "region=eu"} if why == "is elsewhere" else {}))
    assert offered_to(store) is None
    assert store.claims.adopt("orders", two) is not None


def test_a_node_with_more_than_its_share_is_offered_no_job(store: ProgressStore) -> None:
    one, _, _ = joined(store, "one"), joined(store, "two"), joined(store, "three")
    for number in range(9):
        create(through(store, "one"), f"orders-{number}")
    assert [job.offered_to for job in store.jobs.all()].count(one.node_id) == 9 / 3 + 1


def test_an_offer_lasts_by_the_clock_of_the_database(store: ProgressStore) -> None:
    joined(store, "one")
    feeds = through(store, "one")
    create(feeds)
    late = datetime.now(UTC) + timedelta(hours=1)
    assert report(store, feeds.known("orders"), now=late).running_status == "waiting for node one to adopt it"


def test_an_offer_ends_when_the_node_finds_that_it_lacks_something(store: ProgressStore) -> None:
    one, two = joined(store, "one"), joined(store, "two")
    create(through(store, "one"))
    assert store.claims.adopt("orders", two) is None
    store.nodes.renew(one.node_id, lease_s=600, problems={"orders": "this node has no sink 'shelf'"})
    assert offered_to(store) is None
    assert store.claims.adopt("orders", two) is not None


def test_a_node_that_has_joined_again_is_offered_jobs_under_its_new_session(store: ProgressStore) -> None:
    one, feeds = joined(store, "one"), through(store, "one")
    die(store, one)
    again = joined(store, "one")
    create(feeds)
    assert store.claims.adopt("orders", again) is not None


def test_a_job_that_begins_paused_is_offered_when_it_is_resumed(store: ProgressStore) -> None:
    joined(store, "one")
    feeds = through(store, "one")
    create(feeds, paused_for="pause")
    assert offered_to(store) is None
    feeds.resume("orders")
    assert offered_to(store) == "one"


def test_what_a_command_runs_is_offered_to_no_node(store: ProgressStore) -> None:
    joined(store, "one")
    store.changefeeds.register("orders", DEFINITION)
    feeds = through(store, "one")
    feeds.pause("orders", "maintenance")
    assert feeds.resume("orders").offered_to is None
