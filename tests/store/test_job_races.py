"""Two transactions at the same moment: what one of them has looked at is still so when it writes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from cdc_testing.runs import eventually
from cdc_testing.stored import DEFINITION, node

from cdc_core.changefeeds.altering import configure
from cdc_core.changefeeds.service import Changefeeds
from cdc_core.errors import ConfigError, FencedError
from cdc_core.locality import Locality
from cdc_core.store import changefeeds, events
from cdc_core.store.handover import Kept
from cdc_core.store.job_rows import known_job, resume_job
from cdc_core.store.job_tables import NODES, DatabaseNow
from cdc_core.store.job_values import Pending
from cdc_core.store.jobs import create_job
from cdc_core.store.progress import ProgressStore, store_url
from cdc_core.store.tables import CHANGEFEEDS, update

ALTERED = DEFINITION | {"tables": ["public.orders"]}


class Stores:
    """A store that is opened several times, as several processes do."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.mine = ProgressStore(url)
        self._threads = ThreadPoolExecutor(4, thread_name_prefix="other")

    def begin(self, work: Callable[[ProgressStore], Any]) -> Future[Any]:
        """Do *work* with a store of its own, in a thread. Return when that has ended, or waits for a lock."""

        def run() -> Any:
            with closing(ProgressStore(self.url)) as store:
                return work(store)

        future = self._threads.submit(run)
        eventually("the end, or a wait for a lock", lambda: future.done() or self._waiting())
        return future

    def _waiting(self) -> bool:
        with self.mine._database.transaction() as connection:
            return bool(connection.scalar(sa.text("SELECT count(*) FROM pg_locks WHERE NOT granted")))


@pytest.fixture
def stores(database: str) -> Iterator[Stores]:
    stores = Stores(database)
    stores.mine.open()
    yield stores
    stores.mine.close()


@pytest.fixture
def within_register(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[threading.Event, threading.Event]]:
    """Two events: the thread named "frozen" sets the first in the middle of `register`, and waits for the second."""
    reached, thawed = threading.Event(), threading.Event()
    compare = changefeeds.same_destination

    def frozen(*definitions: Any) -> bool:
        if threading.current_thread().name == "frozen":
            reached.set()
            thawed.wait(400)
        return compare(*definitions)

    monkeypatch.setattr(changefeeds, "same_destination", frozen)
    yield reached, thawed
    thawed.set()


def create(store: ProgressStore) -> None:
    store.jobs.create("orders", DEFINITION, owner="ann", locality=Locality())


def test_only_one_prunes_the_events(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MAX_EVENTS_OF_ONE", 1)
    for number in range(3):
        stores.mine.events.note("changefeed_started", "orders", epoch=number)
    with stores.mine._database.transaction() as connection:
        assert events._prunes_alone(connection)
        stores.begin(lambda store: store.events.prune()).result(400)
        assert len(stores.mine.events.read("orders")) == 3
    stores.mine.events.prune()
    assert len(stores.mine.events.read("orders")) == 1


def test_of_two_who_resume_a_run_one_does(stores: Stores) -> None:
    stores.mine.changefeeds.register("orders", DEFINITION)
    stores.mine.claims.pause_run("orders", stores.mine.changefeeds.begin_attempt("orders"), "no route")
    with stores.mine._database.transaction() as connection:
        resume_job(connection, known_job(connection, "orders", locked=True, of_runs=True))
        other = stores.begin(lambda store: Changefeeds(store).resume("orders"))
    assert other.result().state == "running"
    kinds = [event.kind for event in stores.mine.events.read("orders")]
    assert kinds.count("changefeed_resumed") == 1


def test_a_session_that_expires_while_its_renewal_waits_stays_expired(stores: Stores) -> None:
    one = stores.mine.nodes.join(node("one"), lease_s=1)
    with stores.mine._database.transaction() as connection:  # as another node that looks whether the session lives
        connection.execute(sa.select(NODES).with_for_update())
        renewal = stores.begin(lambda store: store.nodes.renew(one.node_id, lease_s=60, problems={}))
        expired = sa.select(NODES.c.expires <= DatabaseNow())
        eventually("the end of the session", lambda: connection.execute(expired).scalar_one())
    assert renewal.result() is None


def test_a_node_that_was_overtaken_does_not_undo_an_alteration(
    stores: Stores, within_register: tuple[threading.Event, threading.Event]
) -> None:
    reached, thawed = within_register
    create(stores.mine)
    one = stores.mine.nodes.join(node("one"), lease_s=60)
    adopted = stores.mine.claims.adopt("orders", one)
    assert adopted is not None
    stores.mine.nodes.leave(one.node_id)

    def start_late() -> None:
        with closing(ProgressStore(stores.url)) as store:
            store.changefeeds.register("orders", DEFINITION, epoch=adopted.epoch)

    def alter(store: ProgressStore) -> None:
        Changefeeds(store).pause("orders", "to alter it")
        wanted = Pending(definition=ALTERED, locality=Locality(), initial_scans={}, why="dropped users")
        configure(store, "orders", wanted, before=DEFINITION)

    late = threading.Thread(target=start_late, name="frozen")
    late.start()
    assert reached.wait(400)
    altering = stores.begin(alter)
    thawed.set()
    late.join()
    altering.result()
    known = stores.mine.changefeeds.find("orders")
    assert known is not None
    assert known.definition == ALTERED


def test_a_command_does_not_run_what_becomes_a_job_at_the_same_moment(
    stores: Stores, within_register: tuple[threading.Event, threading.Event]
) -> None:
    reached, thawed = within_register
    stores.mine.changefeeds.register("orders", DEFINITION)
    refused: list[ConfigError] = []

    def run() -> None:
        with closing(ProgressStore(stores.url)) as store:
            try:
                store.changefeeds.register("orders", ALTERED)
            except ConfigError as error:
                refused.append(error)

    late = threading.Thread(target=run, name="frozen")
    late.start()
    assert reached.wait(400)
    creating = stores.begin(create)
    thawed.set()
    late.join()
    creating.result()
    known = stores.mine.changefeeds.find("orders")
    assert known is not None
    assert refused or known.definition == DEFINITION


def test_of_two_that_create_a_job_one_is_told_that_it_is_there(stores: Stores) -> None:
    with stores.mine._database.transaction() as connection:  # holds both up in front of their first row
        connection.execute(sa.text("LOCK TABLE cdc_changefeeds IN SHARE ROW EXCLUSIVE MODE"))
        both = [stores._threads.submit(_create_in, stores.url) for _ in range(2)]
        waiting = sa.text("SELECT count(*) FROM pg_locks WHERE NOT granted")
        eventually("both wait", lambda: connection.scalar(waiting) == 2)
    texts = sorted(future.result() for future in both)
    assert texts == ["", "changefeed 'orders' is already a job (running); choose another name"]


def test_of_two_that_hand_a_changefeed_over_the_older_one_does_not_take_it_back(stores: Stores) -> None:
    stores.mine.changefeeds.register("orders", DEFINITION)
    with stores.mine._database.transaction() as connection:  # holds both up when they have seen no job
        connection.execute(sa.text("LOCK TABLE cdc_changefeeds IN SHARE ROW EXCLUSIVE MODE"))
        both = [stores._threads.submit(_give_from, stores.url) for _ in range(2)]
        waiting = sa.text("SELECT count(*) FROM pg_locks WHERE NOT granted")
        eventually("both wait", lambda: connection.scalar(waiting) == 2)
    older, newer = sorted(
        (future.result() for future in both), key=lambda kept: kept.rows["cdc_changefeeds"][0]["epoch"]
    )
    stores.mine.handover.take_back("orders", older)
    job = stores.mine.jobs.find("orders")
    assert job is not None
    assert job.is_leaving
    stores.mine.handover.take_back("orders", newer)
    assert stores.mine.jobs.find("orders") is None


@pytest.mark.parametrize("ended", [False, True])
def test_a_hand_over_waits_for_an_older_one_that_is_about_to_succeed(
    stores: Stores, tmp_path: Path, *, ended: bool
) -> None:
    if ended:  # the new job takes the place of one of this name
        create(stores.mine)
        one = stores.mine.nodes.join(node("one"), lease_s=60)
        assert stores.mine.claims.adopt("orders", one) is not None
        stores.mine.claims.settle("orders", one, "succeeded")
    left = ProgressStore(store_url(tmp_path))
    left.changefeeds.register("orders", DEFINITION)
    job: dict[str, Any] = {"owner": "ann", "locality": Locality()}
    older = _give_from(left.url)
    with stores.mine.transaction() as connection:
        create_job(connection, "orders", DEFINITION, kept=older, schedule=None, **job)
        newer = _give_from(left.url)
        other = stores.begin(lambda store: store.jobs.create("orders", DEFINITION, kept=newer, **job))
        assert not other.done()
    with pytest.raises(ConfigError, match="is already a job"):
        other.result(400)
    left.close()


def test_a_run_that_begins_at_the_same_moment_is_not_altered(stores: Stores) -> None:
    stores.mine.changefeeds.register("orders", DEFINITION)
    begins = update("orders").values(epoch=CHANGEFEEDS.c.epoch + 1)
    wanted = Pending(definition=ALTERED, locality=Locality(), initial_scans={"public.orders": False}, why="altered")
    with stores.mine.transaction() as connection:
        connection.execute(begins)
        altering = stores.begin(lambda store: configure(store, "orders", wanted, before=DEFINITION, epoch=0))
    with pytest.raises(FencedError):
        altering.result(400)
    known = stores.mine.changefeeds.find("orders")
    assert known is not None
    assert (known.epoch, known.definition) == (1, DEFINITION)


def _give_from(url: str) -> Kept:
    with closing(ProgressStore(url)) as store:
        return store.handover.give("orders", to="there", again="cdc create", owner="ann")


def _create_in(url: str) -> str:
    with closing(ProgressStore(url)) as store:
        try:
            create(store)
        except ConfigError as error:
            return str(error)
        return ""
