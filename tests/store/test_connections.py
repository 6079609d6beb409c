"""How many connections a process has to its store: few, however many changefeeds it runs."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing

import psycopg
import pytest
from cdc_testing.stored import DEFINITION

from cdc_core.errors import RetryableError
from cdc_core.store.opening import CONNECTIONS
from cdc_core.store.progress import ProgressStore

_FEEDS = 50


class Watch:
    """Who is connected to *database* but itself."""

    def __init__(self, database: str) -> None:
        self._connection = psycopg.connect(database, autocommit=True)

    def pids(self) -> list[int]:
        query = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        return [pid for (pid,) in self._connection.execute(query)]

    def until(self, count: int) -> None:
        """Return when there are so many: the server notices the end of a connection a moment later."""
        for _ in range(3000):
            if len(self.pids()) == count:
                return
            self._connection.execute("SELECT pg_sleep(0.01)")
        raise AssertionError(f"{len(self.pids())} connections instead of {count}")

    def kill(self) -> None:
        for pid in self.pids():
            self._connection.execute("SELECT pg_terminate_backend(%s, 60000)", [pid])

    def close(self) -> None:
        self._connection.close()


@pytest.fixture
def watch(database: str) -> Iterator[Watch]:
    with closing(Watch(database)) as watch:
        yield watch


def test_fifty_changefeeds_of_a_process_share_its_few_connections(database: str, watch: Watch) -> None:
    stores = [ProgressStore(database) for _ in range(_FEEDS)]
    most, ended = [0], threading.Event()

    def count() -> None:
        while not ended.is_set():
            most.append(len(watch.pids()))

    def work(number: int) -> None:
        name, store = f"feed{number}", stores[number]
        store.changefeeds.register(name, DEFINITION)
        epoch = store.changefeeds.begin_attempt(name)
        for _ in range(5):
            store.statuses.save(name, epoch, {"phase": "running"})

    with ThreadPoolExecutor(_FEEDS + 1) as threads:
        counting = threads.submit(count)
        try:
            list(threads.map(work, range(_FEEDS)))
        finally:
            ended.set()
        counting.result()
    assert 2 <= max(most) <= CONNECTIONS
    watch.until(2)
    assert [feed.epoch for feed in stores[0].changefeeds.all()] == [1] * _FEEDS
    for store in stores[1:]:
        store.close()
    watch.until(2)
    stores[0].close()
    watch.until(0)


def test_what_is_collected_closes_its_connections(database: str, watch: Watch) -> None:
    store = ProgressStore(database)
    store.open()
    watch.until(1)
    del store
    watch.until(0)


def test_a_store_alone_waits_for_nobody_and_rests_without_a_connection(database: str, watch: Watch) -> None:
    alone, others = ProgressStore(database, alone=True), [ProgressStore(database) for _ in range(CONNECTIONS)]
    with ExitStack() as busy:
        for store in others:
            busy.enter_context(store._database.transaction())
        assert alone.changefeeds.all() == []
        watch.until(CONNECTIONS + 1)
    for store in others:
        store.close()
    alone.release_connections()
    watch.until(0)
    assert alone.changefeeds.all() == []
    alone.close()


def test_a_process_that_uses_all_its_connections_for_too_long_says_so(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cdc_core.store.opening.WAIT_S", 0.1)
    with closing(ProgressStore(database)) as store, ExitStack() as busy:
        for _ in range(CONNECTIONS):
            busy.enter_context(store._database.transaction())
        with pytest.raises(RetryableError, match=f"all {CONNECTIONS} connections of this process have been in use"):
            store.changefeeds.all()


def test_a_connection_that_broke_meanwhile_is_replaced(
    database: str, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cdc_core.store.opening._UNSURE_S", 0.0)
    with closing(ProgressStore(database)) as store:
        store.changefeeds.register("orders", DEFINITION)
        watch.kill()
        assert store.changefeeds.begin_attempt("orders") == 1


def test_a_fork_shares_no_connection_with_its_parent(database: str) -> None:
    with closing(ProgressStore(database)) as store, closing(ProgressStore(database)) as other:
        store.changefeeds.register("orders", DEFINITION)
        other.open()
        child = os.fork()
        if child == 0:
            try:
                first = store.changefeeds.begin_attempt("orders")
                store.close()
                os._exit(0 if (first, other.changefeeds.begin_attempt("orders")) == (1, 2) else 1)
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert (store.changefeeds.begin_attempt("orders"), other.changefeeds.begin_attempt("orders")) == (3, 4)
