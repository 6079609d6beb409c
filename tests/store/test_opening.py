"""Opening a store: by several processes, after a fork, in older versions, and where none can be."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import shutil
import sqlite3
import threading
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from cdc_testing.runs import at_once, eventually
from cdc_testing.stored import DEFINITION, dropped, progress
from cdc_testing.strangers import NOBODY
from cdc_testing.tcp_proxy import TcpProxy

from cdc_core import Timestamp
from cdc_core.errors import ConfigError, FencedError, RetryableError, TerminalError
from cdc_core.store.opening import open_engine, store_exists, store_place
from cdc_core.store.progress import ProgressStore, sqlite_file, store_url


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("postgresql://cdc:swordfish@DB/cdc", "postgresql://db:5432/cdc"),
        ("postgresql+psycopg://db:5432/cdc?connect_timeout=3&password=swordfish", "postgresql://db:5432/cdc"),
        ("postgresql://db:5433/cdc", "postgresql://db:5433/cdc"),
        ("postgresql://[::1]/cdc", "postgresql://localhost:5432/cdc"),
        ("postgresql:///cdc?host=127.0.0.1&port=5433", "postgresql://localhost:5433/cdc"),
        ("postgresql://cdc@/cdc?host=/run/pg", "postgresql:///run/pg:5432/cdc"),
        ("postgresql:///cdc?host=b:1&host=a:2", "postgresql://a:2,b:1:5432/cdc"),
        ("postgresql://db/cdc?options=-csearch_path%3Dother", "postgresql://db:5432/cdc options=-csearch_path=other"),
        ("sqlite:////nowhere/../store", "/store"),
    ],
)
def test_the_place_of_a_store_is_the_same_for_its_url_in_other_words(url: str, place: str) -> None:
    assert store_place(url) == place


def test_a_store_survives_pickling_and_reopening(store: ProgressStore) -> None:
    store.changefeeds.register("orders", DEFINITION)
    store.progress.save("orders", store.changefeeds.begin_attempt("orders"), progress())
    copy = pickle.loads(pickle.dumps(store))
    assert copy.progress.load("orders").token == {"lsn": 1}
    copy.close()
    copy.close()
    assert copy.progress.load("orders").token == {"lsn": 1}
    copy.close()


def test_a_commit_is_on_disk_when_save_returns(store: ProgressStore) -> None:
    store.open()
    assert store._database._connections is not None
    with store._database._connections.engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar_one() == 2
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar_one() == "wal"


def test_a_connection_that_closes_while_python_ends_calls_no_python(store: ProgressStore) -> None:
    store.open()
    assert store._database._connections is not None
    refused = pytest.raises(sa.exc.OperationalError, match="no such function: regexp")
    with store._database._connections.engine.connect() as connection, refused:
        connection.exec_driver_sql("SELECT regexp('a', 'a')")


def test_reading_does_not_wait_for_a_writer(store: ProgressStore) -> None:
    store.changefeeds.register("orders", DEFINITION)
    store.progress.save("orders", store.changefeeds.begin_attempt("orders"), progress())
    writer = sqlite3.connect(sa.make_url(store.url).database or "", isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    loaded = store.progress.load("orders")
    writer.execute("ROLLBACK")
    writer.close()
    assert loaded is not None


def begin_runs(url: str, count: int, results: Any) -> None:
    store = ProgressStore(url)
    results.put([store.changefeeds.begin_attempt("orders") for _ in range(count)])
    store.close()


@pytest.mark.slow
def test_processes_never_get_the_same_epoch(store: ProgressStore) -> None:
    store.changefeeds.register("orders", DEFINITION)
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    processes = [context.Process(target=begin_runs, args=(store.url, 25, results)) for _ in range(3)]
    for process in processes:
        process.start()
    epochs = [epoch for _ in processes for epoch in results.get(timeout=300)]
    for process in processes:
        process.join()
    results.close()
    results.join_thread()
    assert sorted(epochs) == list(range(1, 76))


def test_threads_that_open_an_empty_store_at_once_agree_on_one_identity(tmp_path: Path) -> None:
    def register() -> str:
        with closing(ProgressStore(store_url(tmp_path))) as store:
            return store.changefeeds.register("orders", DEFINITION).feed_id

    assert len(set(at_once(register))) == 1


@pytest.mark.parametrize("replaced", [False, True])
def test_a_store_that_is_removed_or_replaced_while_in_use_is_named(store: ProgressStore, replaced: bool) -> None:
    store.changefeeds.register("orders", DEFINITION)
    path = Path(sqlite_file(store.url) or "")
    shutil.rmtree(path.parent)
    if replaced:
        with closing(ProgressStore(store.url)) as other:
            other.changefeeds.register("orders", DEFINITION)
    with pytest.raises(TerminalError, match=f"progress store {path} was removed or replaced while it was in use"):
        store.progress.load("orders")


def test_a_fork_opens_connections_of_its_own(store: ProgressStore) -> None:
    store.changefeeds.register("orders", DEFINITION)
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if store.changefeeds.begin_attempt("orders") == 1 else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert store.changefeeds.begin_attempt("orders") == 2


def test_a_directory_with_odd_characters_will_do(tmp_path: Path) -> None:
    store = ProgressStore(store_url(tmp_path / "a b?c%20d#e:@ü"))
    store.changefeeds.register("orders", DEFINITION)
    store.close()
    assert (tmp_path / "a b?c%20d#e:@ü" / "progress.sqlite").exists()


def test_a_new_store_is_for_its_user_alone(tmp_path: Path) -> None:
    store = ProgressStore(store_url(tmp_path / "state"))
    before = os.umask(0)
    try:
        store.changefeeds.register("orders", DEFINITION)
        modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "state").iterdir()}
    finally:
        os.umask(before)
        store.close()
    assert modes == dict.fromkeys(("progress.sqlite", "progress.sqlite-shm", "progress.sqlite-wal"), 0o600)
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_is_told_who_may_use_a_store(store: ProgressStore) -> None:
    store.open()
    store.close()
    told, tell = os.pipe()
    if (child := os.fork()) == 0:
        try:
            os.setuid(NOBODY)
            store_exists(store.url)
        except ConfigError as error:
            os.write(tell, str(error).encode())
        finally:
            os._exit(0)
    os.close(tell)
    os.waitpid(child, 0)
    with open(told, "rb") as answer:
        why = "cannot be used: Permission denied; run this as the user who runs its changefeeds"
        assert answer.read().decode() == f"progress store {sqlite_file(store.url)} {why}"


def test_a_newer_store_is_refused(store: ProgressStore) -> None:
    store.open()
    store.close()
    with sqlite3.connect(sa.make_url(store.url).database or "") as connection:
        connection.execute("UPDATE cdc_store SET version = 99")
    connection.close()
    with pytest.raises(
        ConfigError,
        match=r"was written by a newer cdc-core \(the store has version 99, this cdc-core supports \d+\); upgrade",
    ):
        store.open()


def test_a_state_directory_that_cannot_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"'.*/file' cannot be used as the state directory: File exists"):
        ProgressStore(store_url(tmp_path / "file")).open()
    with pytest.raises(ConfigError, match="'/proc/nowhere' cannot be used as the state directory"):
        ProgressStore(store_url(Path("/proc/nowhere"))).open()
    with pytest.raises(ConfigError, match=r"progress store b'.*/a\\xff/progress.sqlite': the path is not UTF-8; use"):
        store_url(tmp_path / os.fsdecode(b"a\xff"))


def test_a_damaged_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "progress.sqlite").write_text("x" * 5000)
    with pytest.raises(ConfigError, match=r"progress\.sqlite cannot be used: file is not a database"):
        ProgressStore(store_url(tmp_path)).open()


def test_a_server_out_of_reach_is_refused_at_the_start_and_retried_later_without_its_password() -> None:
    store = ProgressStore("postgresql://cdc:hunter2@127.0.0.1:1/cdc")
    with pytest.raises(ConfigError, match=r"progress store .*cdc:\*\*\*@127\.0\.0\.1:1/cdc cannot be used") as opened:
        store.open()
    with pytest.raises(RetryableError) as loaded:
        store.progress.load("orders")
    assert "hunter2" not in f"{opened.value} {loaded.value} {store!r}"
    shown = repr(ProgressStore("postgresql://db/cdc?user=cdc&password=hunter2"))
    assert shown == "ProgressStore('postgresql://db/cdc?user=cdc&password=***')"


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("nonsense", "Could not parse"),
        ("nosuchdialect://host/db", "Can't load plugin"),
        ("postgresql://h:1,g:2/db", "its port is not a number"),
        ("postgresql://u:hunter@2@h/db", "its password must be percent-encoded: @ is %40"),
        ("sqlite://", "progress in memory would be lost"),
        ("sqlite:///:memory:", "progress in memory would be lost"),
    ],
)
def test_a_url_of_no_database_is_refused(url: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=f"the progress store's URL cannot be used: {complaint}") as refused:
        ProgressStore(url).open()
    assert "hunter" not in str(refused.value)


def test_postgresql_keeps_the_same_promises(database: str) -> None:
    store = ProgressStore(database)
    store.open()
    feed = store.changefeeds.register("orders", DEFINITION)
    assert store.changefeeds.register("orders", DEFINITION).feed_id == feed.feed_id
    old, new = store.changefeeds.begin_attempt("orders"), store.changefeeds.begin_attempt("orders")
    assert (old, new) == (1, 2)
    store.progress.save_intent("orders", new, {"intent": "slot"})
    store.progress.save("orders", new, progress())
    with pytest.raises(FencedError):
        store.progress.save("orders", old, progress(9))
    loaded = store.progress.load("orders")
    assert loaded is not None
    assert (loaded.token, loaded.frontier, loaded.latest) == ({"lsn": 1}, progress().frontier, Timestamp(6))
    assert [row.high_water for row in store.changefeeds.all()] == [Timestamp(1, 3)]
    dropped(store, "orders")
    assert store.changefeeds.all() == []
    store.close()


@pytest.mark.parametrize("scheme", ["postgresql", "postgresql+psycopg"])
def test_a_host_that_vanished_does_not_keep_locks_of_a_postgresql_store(database: str, scheme: str) -> None:
    engine = open_engine(database.replace("postgresql", scheme, 1))
    with engine.connect() as connection:
        for name, value in {"idle_in_transaction_session_timeout": "5s", "lock_timeout": "30s"}.items():
            assert connection.execute(sa.text(f"SHOW {name}")).scalar_one() == value
        wire: Any = connection.connection.driver_connection
        found = {option.keyword: option.val for option in wire.pgconn.info}
    engine.dispose()
    assert (found[b"connect_timeout"], found[b"tcp_user_timeout"], found[b"keepalives_idle"]) == (
        b"10",
        b"30000",
        b"30",
    )


def test_transactions_of_a_host_that_vanished_do_not_outlast_the_wait_for_their_locks(database: str) -> None:
    with ExitStack() as stack:
        store = stack.enter_context(closing(ProgressStore(database)))
        store.changefeeds.register("orders", DEFINITION)
        proxy = stack.enter_context(TcpProxy(database))
        engine = open_engine(proxy.url)
        stack.callback(engine.dispose)
        threads = [threading.Thread(target=_hold_row, args=(engine,), daemon=True) for _ in range(3)]
        for thread in threads:
            thread.start()
        eventually("one has the row, and two wait for it", lambda: _waiting(store) == 2)
        proxy.cut()
        assert store.changefeeds.begin_attempt("orders") == 1
        assert _waiting(store) == 0


def _hold_row(engine: sa.Engine) -> None:
    with suppress(sa.exc.SQLAlchemyError), engine.begin() as connection:
        connection.execute(sa.text("UPDATE cdc_changefeeds SET name = name"))
        connection.execute(sa.text("SELECT pg_sleep(1)"))
        connection.execute(sa.text("SELECT 1"))


def _waiting(store: ProgressStore) -> int:
    with store._database.transaction(reading=True) as connection:
        found = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        return int(connection.execute(sa.text(found)).scalar_one())


def test_an_empty_postgresql_store_may_be_opened_by_several_at_once(database: str) -> None:
    def begin() -> int:
        with closing(ProgressStore(database)) as store:
            store.changefeeds.register("orders", DEFINITION)
            return store.changefeeds.begin_attempt("orders")

    assert sorted(at_once(begin)) == [1, 2, 3, 4]
