"""The progress store: durable, fenced by epochs, shared by processes, and free of secrets."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import re
import sqlite3
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from cdc_core import Frontier, Span, Timestamp
from cdc_core.errors import ConfigError, FencedError, RetryableError
from cdc_core.store.progress import DeadLetter, PendingRecord, Progress, ProgressStore, store_url
from cdc_core.store.values import moment_text

DEFINITION: dict[str, Any] = {
    "source": "postgresql://user:***@host:5432/shop",
    "tables": ["public.orders", "public.users"],
    "sink": "file:///data/out",
    "format": "json",
}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ProgressStore]:
    store = ProgressStore(store_url(tmp_path / "state"))
    yield store
    store.close()


def progress(n: int = 1) -> Progress:
    frontier = Frontier([Span("shop.public.orders"), Span("shop.public.users")])
    frontier.forward(Span("shop.public.orders"), Timestamp(n + 5))
    frontier.forward(Span("shop.public.users"), Timestamp(n, 3))
    return Progress(token={"lsn": n}, frontier=frontier, latest=Timestamp(n + 5), counters={"rows": 10.0 * n})


def test_what_was_saved_is_what_is_loaded(store: ProgressStore) -> None:
    store.register("orders", DEFINITION)
    store.save("orders", store.begin_attempt("orders"), progress())
    loaded = store.load("orders")
    assert loaded is not None
    assert (loaded.token, loaded.frontier, loaded.latest, loaded.counters) == (
        {"lsn": 1},
        progress().frontier,
        Timestamp(6),
        {"rows": 10.0},
    )
    assert loaded.saved_at is not None
    assert loaded.saved_at.tzinfo is not None


def test_nothing_is_loaded_before_anything_was_saved(store: ProgressStore) -> None:
    assert store.load("orders") is None
    store.register("orders", DEFINITION)
    assert store.load("orders") is None


def test_the_identity_is_chosen_once(store: ProgressStore) -> None:
    first = store.register("orders", DEFINITION)
    assert re.fullmatch("[0-9a-f]{12}", first.feed_id)
    assert store.register("orders", DEFINITION).feed_id == first.feed_id
    assert store.register("users", DEFINITION).feed_id != first.feed_id


def test_each_run_has_a_greater_epoch(store: ProgressStore) -> None:
    store.register("orders", DEFINITION)
    assert [store.begin_attempt("orders") for _ in range(3)] == [1, 2, 3]


def test_a_run_that_was_overtaken_saves_nothing(store: ProgressStore) -> None:
    store.register("orders", DEFINITION)
    old, new = store.begin_attempt("orders"), store.begin_attempt("orders")
    store.save("orders", new, progress(5))
    with pytest.raises(FencedError, match="changefeed 'orders': a newer attempt took over"):
        store.save("orders", old, progress(9))
    with pytest.raises(FencedError):
        store.save_intent("orders", old, {"lsn": 9})
    loaded = store.load("orders")
    assert loaded is not None
    assert loaded.token == {"lsn": 5}


def test_an_intent_comes_back_as_the_token_and_keeps_the_rest(store: ProgressStore) -> None:
    store.register("orders", DEFINITION)
    epoch = store.begin_attempt("orders")
    store.save_intent("orders", epoch, {"intent": "slot"})
    loaded = store.load("orders")
    assert loaded is not None
    assert (loaded.token, list(loaded.frontier), loaded.latest) == ({"intent": "slot"}, [], Timestamp())
    store.save("orders", epoch, progress())
    store.save_intent("orders", epoch, {"intent": "other"})
    loaded = store.load("orders")
    assert loaded is not None
    assert (loaded.token, loaded.frontier) == ({"intent": "other"}, progress().frontier)


def test_a_forgotten_changefeed_is_gone_and_fences_its_run(store: ProgressStore) -> None:
    feed = store.register("orders", DEFINITION)
    epoch = store.begin_attempt("orders")
    store.forget("orders")
    store.forget("orders")
    assert store.load("orders") is None
    assert store.list() == []
    with pytest.raises(FencedError):
        store.save("orders", epoch, progress())
    assert store.register("orders", DEFINITION).feed_id != feed.feed_id


def test_a_run_of_a_changefeed_that_nobody_registered_is_refused(store: ProgressStore) -> None:
    with pytest.raises(ConfigError, match="changefeed 'orders' is not registered"):
        store.begin_attempt("orders")


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        (
            {"source": "postgresql://host2/shop"},
            "'orders' was started on the source postgresql://user:\\*\\*\\*@host:5432/shop",
        ),
        (
            {"source": "postgresql://user@host:5432/other"},
            "not postgresql://user@host:5432/other; give the new changefeed",
        ),
        (
            {"tables": ["public.orders"]},
            "on the tables public.orders, public.users, not public.orders; give the new changefeed",
        ),
    ],
)
def test_a_name_keeps_its_source_and_tables(store: ProgressStore, changes: dict[str, Any], complaint: str) -> None:
    store.register("orders", DEFINITION)
    store.save_intent("orders", store.begin_attempt("orders"), {"intent": "slot"})
    with pytest.raises(ConfigError, match=complaint):
        store.register("orders", DEFINITION | changes)


def test_a_changefeed_that_never_began_may_change_altogether(store: ProgressStore) -> None:
    store.register("orders", DEFINITION | {"tables": ["public.ordrs"]})
    store.begin_attempt("orders")
    assert store.register("orders", DEFINITION).definition == DEFINITION


@pytest.mark.parametrize(
    "changes",
    [
        {"source": "postgresql://other@host:5432/shop?sslmode=require"},
        {"tables": ["public.users", "public.orders"]},
        {"sink": "file:///elsewhere"},
    ],
)
def test_user_order_of_tables_and_sink_may_change(store: ProgressStore, changes: dict[str, Any]) -> None:
    store.register("orders", DEFINITION)
    store.save("orders", store.begin_attempt("orders"), progress())
    assert store.register("orders", DEFINITION | changes).definition == DEFINITION | changes


def test_the_listing_has_every_changefeed_by_name(store: ProgressStore) -> None:
    for name in ("users", "orders"):
        store.register(name, DEFINITION)
    store.save("orders", store.begin_attempt("orders"), progress())
    rows = store.list()
    assert [(row.name, row.epoch, row.high_water) for row in rows] == [
        ("orders", 1, Timestamp(1, 3)),
        ("users", 0, Timestamp()),
    ]


def test_a_store_survives_pickling_and_reopening(store: ProgressStore) -> None:
    store.register("orders", DEFINITION)
    store.save("orders", store.begin_attempt("orders"), progress())
    copy = pickle.loads(pickle.dumps(store))
    assert copy.load("orders").token == {"lsn": 1}
    copy.close()
    copy.close()
    assert copy.load("orders").token == {"lsn": 1}
    copy.close()


def test_a_commit_is_on_disk_when_save_returns(store: ProgressStore) -> None:
    store.open()
    assert store._engine is not None
    with store._engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar_one() == 2
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar_one() == "wal"


def test_reading_does_not_wait_for_a_writer(store: ProgressStore) -> None:
    store.register("orders", DEFINITION)
    store.save("orders", store.begin_attempt("orders"), progress())
    writer = sqlite3.connect(sa.make_url(store.url).database or "", isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    loaded = store.load("orders")
    writer.execute("ROLLBACK")
    writer.close()
    assert loaded is not None


def begin_runs(url: str, count: int, results: Any) -> None:
    store = ProgressStore(url)
    results.put([store.begin_attempt("orders") for _ in range(count)])
    store.close()


@pytest.mark.slow
def test_processes_never_get_the_same_epoch(store: ProgressStore) -> None:
    store.register("orders", DEFINITION)
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    processes = [context.Process(target=begin_runs, args=(store.url, 25, results)) for _ in range(3)]
    for process in processes:
        process.start()
    epochs = [epoch for _ in processes for epoch in results.get(timeout=60)]
    for process in processes:
        process.join()
    results.close()
    results.join_thread()
    assert sorted(epochs) == list(range(1, 76))


def test_threads_that_open_an_empty_store_at_once_agree_on_one_identity(tmp_path: Path) -> None:
    url = store_url(tmp_path)
    found: list[str] = []

    def register() -> None:
        store = ProgressStore(url)
        found.append(store.register("orders", DEFINITION).feed_id)
        store.close()

    threads = [threading.Thread(target=register) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len(set(found)) == 1


def test_a_fork_opens_connections_of_its_own(store: ProgressStore) -> None:
    store.register("orders", DEFINITION)
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if store.begin_attempt("orders") == 1 else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert store.begin_attempt("orders") == 2


def test_a_directory_with_odd_characters_will_do(tmp_path: Path) -> None:
    store = ProgressStore(store_url(tmp_path / "a b?c%20d#e:@ü"))
    store.register("orders", DEFINITION)
    store.close()
    assert (tmp_path / "a b?c%20d#e:@ü" / "progress.sqlite").exists()


def test_a_newer_store_is_refused(store: ProgressStore) -> None:
    store.open()
    store.close()
    with sqlite3.connect(sa.make_url(store.url).database or "") as connection:
        connection.execute("UPDATE cdc_store SET version = 99")
    connection.close()
    with pytest.raises(
        ConfigError, match=r"was written by a newer cdc-core \(its version is 99, this one knows 3\); upgrade"
    ):
        store.open()


def test_a_state_directory_that_cannot_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"'.*/file' cannot be used as the state directory: File exists"):
        ProgressStore(store_url(tmp_path / "file")).open()
    with pytest.raises(ConfigError, match="'/proc/nowhere' cannot be used as the state directory"):
        ProgressStore(store_url(Path("/proc/nowhere"))).open()


def test_a_damaged_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "progress.sqlite").write_text("x" * 5000)
    with pytest.raises(ConfigError, match=r"progress\.sqlite cannot be used: file is not a database"):
        ProgressStore(store_url(tmp_path)).open()


def test_a_server_out_of_reach_is_refused_at_the_start_and_retried_later_without_its_password() -> None:
    store = ProgressStore("postgresql://cdc:hunter2@127.0.0.1:1/cdc")
    with pytest.raises(ConfigError, match=r"progress store .*cdc:\*\*\*@127\.0\.0\.1:1/cdc cannot be used") as opened:
        store.open()
    with pytest.raises(RetryableError) as loaded:
        store.load("orders")
    assert "hunter2" not in f"{opened.value} {loaded.value} {store!r}"
    shown = repr(ProgressStore("postgresql://db/cdc?user=cdc&password=hunter2"))
    assert shown == "ProgressStore('postgresql://db/cdc?user=cdc&password=***')"


@pytest.mark.parametrize("url", ["nonsense", "nosuchdialect://host/db"])
def test_a_url_of_no_database_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="the progress store's URL cannot be used"):
        ProgressStore(url).open()


def test_postgresql_keeps_the_same_promises(database: str) -> None:
    store = ProgressStore(database)
    store.open()
    feed = store.register("orders", DEFINITION)
    assert store.register("orders", DEFINITION).feed_id == feed.feed_id
    old, new = store.begin_attempt("orders"), store.begin_attempt("orders")
    assert (old, new) == (1, 2)
    store.save_intent("orders", new, {"intent": "slot"})
    store.save("orders", new, progress())
    with pytest.raises(FencedError):
        store.save("orders", old, progress(9))
    loaded = store.load("orders")
    assert loaded is not None
    assert (loaded.token, loaded.frontier, loaded.latest) == ({"lsn": 1}, progress().frontier, Timestamp(6))
    assert [row.high_water for row in store.list()] == [Timestamp(1, 3)]
    store.forget("orders")
    assert store.list() == []
    store.close()


def test_an_empty_postgresql_store_may_be_opened_by_several_at_once(database: str) -> None:
    found: list[int] = []

    def begin() -> None:
        store = ProgressStore(database)
        store.register("orders", DEFINITION)
        found.append(store.begin_attempt("orders"))
        store.close()

    threads = [threading.Thread(target=begin) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [1, 2, 3, 4]


def paused(store: ProgressStore) -> str | None:
    found = store.find("orders")
    assert found is not None
    return None if found.paused is None else found.paused.reason


def test_a_store_of_the_first_version_is_brought_up_to_date(store: ProgressStore) -> None:
    store.open()
    store.register("orders", DEFINITION)
    store.close()
    with sqlite3.connect(sa.make_url(store.url).database or "") as connection:
        for column in ("plan", "paused", "recorded", "unrecorded", "emitted"):
            connection.execute(f"ALTER TABLE cdc_changefeeds DROP COLUMN {column}")
        connection.execute("DROP TABLE cdc_delivered")
        connection.execute("DROP TABLE cdc_dead_letters")
        connection.execute("UPDATE cdc_store SET version = 1")
    connection.close()
    epoch = store.begin_attempt("orders")
    store.save_plan("orders", epoch, {"step": 3})
    store.pause("orders", epoch, "a row was refused")
    assert store.load_plan("orders") == {"step": 3}
    assert paused(store) == "a row was refused"
    (waiting,) = store.assign_mark("orders", epoch, Timestamp(9))
    assert waiting.previous is None  # what the older version delivered is in no record


def test_a_store_of_the_second_version_is_brought_up_to_date(store: ProgressStore) -> None:
    store.register("orders", DEFINITION)
    store.save("orders", store.begin_attempt("orders"), progress())
    store.close()
    with sqlite3.connect(sa.make_url(store.url).database or "") as connection:
        connection.execute("ALTER TABLE cdc_changefeeds DROP COLUMN emitted")
        connection.execute("UPDATE cdc_store SET version = 2")
    connection.close()
    store.save_emitted("orders", store.begin_attempt("orders"), Timestamp(1))
    loaded = store.load("orders")
    assert loaded is not None
    assert (loaded.token, loaded.emitted) == ({"lsn": 1}, Timestamp(1))


def test_the_last_mark_is_remembered_for_the_sink_that_got_it(store: ProgressStore) -> None:
    def last_mark() -> Timestamp:
        loaded = store.load("orders")
        assert loaded is not None
        return loaded.emitted

    store.register("orders", DEFINITION)
    old, new = store.begin_attempt("orders"), store.begin_attempt("orders")
    store.save("orders", new, progress())
    store.save_emitted("orders", new, Timestamp(1, 3))
    with pytest.raises(FencedError):
        store.save_emitted("orders", old, Timestamp(9))
    store.save("orders", new, progress(5))
    store.register("orders", DEFINITION)
    assert last_mark() == Timestamp(1, 3)
    store.register("orders", {**DEFINITION, "sink": "file:///data/elsewhere"})
    assert last_mark() == Timestamp()


def test_counters_are_saved_without_anything_else(store: ProgressStore) -> None:
    store.register("orders", DEFINITION)
    old, new = store.begin_attempt("orders"), store.begin_attempt("orders")
    store.save("orders", new, progress())
    store.save_counters("orders", new, {"rows": 7.0})
    with pytest.raises(FencedError):
        store.save_counters("orders", old, {})
    loaded = store.load("orders")
    assert loaded is not None
    assert (loaded.token, loaded.latest, loaded.counters) == ({"lsn": 1}, Timestamp(6), {"rows": 7.0})


def test_a_paused_changefeed_goes_on_once(store: ProgressStore) -> None:
    store.register("orders", DEFINITION)
    epoch = store.begin_attempt("orders")
    assert paused(store) is None
    store.pause("orders", epoch, "a row was refused")
    assert paused(store) == "a row was refused"
    assert store.resume("orders")
    assert paused(store) is None
    assert not store.resume("orders")


def test_being_paused_is_no_new_run_and_neither_is_going_on(store: ProgressStore) -> None:
    store.register("orders", DEFINITION)
    epoch = store.begin_attempt("orders")
    store.pause("orders", epoch, "a row was refused")
    store.resume("orders")
    found = store.find("orders")
    assert found is not None
    assert found.epoch == epoch
    store.begin_attempt("orders")
    with pytest.raises(FencedError):
        store.pause("orders", epoch, "a row was refused")
    assert paused(store) is None


def test_a_changefeed_that_never_ran_is_not_found(store: ProgressStore) -> None:
    assert store.find("orders") is None
    assert not store.resume("orders")


def test_what_was_delivered_keeps_its_first_mark_until_it_is_recorded(store: ProgressStore) -> None:
    store.register("orders", DEFINITION)
    first, second = Timestamp(10), Timestamp(20)
    a, b, c = ({"path": name} for name in "abc")
    epoch = store.begin_attempt("orders")
    store.save("orders", epoch, Progress(token={}), delivered=[a, b])
    one = PendingRecord(mark=first, previous=Timestamp(), delivered=(a, b))
    assert store.assign_mark("orders", epoch, first) == [one]
    epoch = store.begin_attempt("orders")  # the run before died here
    store.save("orders", epoch, Progress(token={}), delivered=[c])
    two = PendingRecord(mark=second, previous=first, delivered=(c,))
    assert store.assign_mark("orders", epoch, second) == [one, two]
    store.finish_records("orders", epoch, second)
    assert store.assign_mark("orders", epoch, second) == []


def test_what_comes_after_a_mark_waits_for_a_later_one(store: ProgressStore) -> None:
    store.register("orders", DEFINITION)
    epoch = store.begin_attempt("orders")
    assert store.assign_mark("orders", epoch, Timestamp(10)) == [
        PendingRecord(mark=Timestamp(10), previous=Timestamp(), delivered=())
    ]
    store.finish_records("orders", epoch, Timestamp(10))
    store.save("orders", epoch, Progress(token={}), delivered=[{"path": "a"}])
    assert store.assign_mark("orders", epoch, Timestamp(10)) == []
    assert store.assign_mark("orders", epoch, Timestamp(20)) == [
        PendingRecord(mark=Timestamp(20), previous=Timestamp(10), delivered=({"path": "a"},))
    ]


def test_the_first_mark_after_something_went_unrecorded_says_so(store: ProgressStore) -> None:
    store.register("orders", DEFINITION)
    epoch = store.begin_attempt("orders")
    store.finish_records("orders", epoch, Timestamp(10))
    store.save("orders", epoch, Progress(token={}), delivered=None)
    store.save("orders", epoch, Progress(token={}), delivered=[{"path": "b"}])
    (waiting,) = store.assign_mark("orders", epoch, Timestamp(20))
    assert waiting == PendingRecord(mark=Timestamp(20), previous=None, delivered=({"path": "b"},))
    store.finish_records("orders", epoch, Timestamp(20))
    (waiting,) = store.assign_mark("orders", epoch, Timestamp(30))
    assert waiting.previous == Timestamp(20)


def test_a_gap_does_not_reach_back_to_marks_that_were_given_before_it(store: ProgressStore) -> None:
    store.register("orders", DEFINITION)
    epoch = store.begin_attempt("orders")
    store.finish_records("orders", epoch, Timestamp(10))
    store.save("orders", epoch, Progress(token={}, latest=Timestamp(99)), delivered=[{"path": "a"}])
    (first,) = store.assign_mark("orders", epoch, Timestamp(20))  # recorded at the sink; then the run died
    store.save("orders", epoch, Progress(token={}, latest=Timestamp(99)), delivered=None)
    store.save("orders", epoch, Progress(token={}, latest=Timestamp(99)), delivered=[{"path": "b"}])
    again, second = store.assign_mark("orders", epoch, Timestamp(30))
    assert again == first == PendingRecord(mark=Timestamp(20), previous=Timestamp(10), delivered=({"path": "a"},))
    assert second == PendingRecord(mark=Timestamp(30), previous=None, delivered=({"path": "b"},))
    store.save("orders", epoch, Progress(token={}, latest=Timestamp(99)), delivered=None)  # died there once more
    store.save("orders", epoch, Progress(token={}, latest=Timestamp(99)), delivered=[{"path": "c"}])
    assert [each.previous for each in store.assign_mark("orders", epoch, Timestamp(40))] == [
        Timestamp(10),
        None,
        None,
    ]


ELSEWHERE = DEFINITION | {"sink": "kafka://broker:9092"}


def test_the_first_mark_at_another_sink_says_that_rows_are_missing(store: ProgressStore) -> None:
    store.register("orders", DEFINITION)
    epoch = store.begin_attempt("orders")
    store.save("orders", epoch, progress(), delivered=[{"path": "a"}])
    store.finish_records("orders", epoch, Timestamp(10))
    store.save("orders", epoch, progress(), delivered=[{"path": "b"}])  # and the run died before its mark
    store.register("orders", ELSEWHERE)
    store.register("orders", DEFINITION)
    epoch = store.begin_attempt("orders")
    store.save("orders", epoch, progress(), delivered=[{"path": "c"}])
    assert store.assign_mark("orders", epoch, Timestamp(20)) == [
        PendingRecord(mark=Timestamp(20), previous=None, delivered=({"path": "c"},))
    ]
    store.finish_records("orders", epoch, Timestamp(20))
    (waiting,) = store.assign_mark("orders", epoch, Timestamp(30))
    assert waiting.previous == Timestamp(20)


@pytest.mark.parametrize("sink", ["file:///data/out/", "file://someone@/data/out?file_size=1MB"])
def test_the_same_sink_with_other_parameters_loses_nothing(store: ProgressStore, sink: str) -> None:
    store.register("orders", DEFINITION)
    store.save("orders", store.begin_attempt("orders"), progress(), delivered=[{"path": "a"}])
    store.register("orders", DEFINITION | {"sink": sink})
    (waiting,) = store.assign_mark("orders", store.begin_attempt("orders"), Timestamp(20))
    assert waiting == PendingRecord(mark=Timestamp(20), previous=Timestamp(), delivered=({"path": "a"},))


def test_a_sink_that_changed_before_the_first_step_misses_nothing(store: ProgressStore) -> None:
    store.register("orders", ELSEWHERE)
    store.save("orders", store.begin_attempt("orders"), Progress(token={}))
    store.register("orders", DEFINITION)
    (waiting,) = store.assign_mark("orders", store.begin_attempt("orders"), Timestamp(20))
    assert waiting.previous == Timestamp()


def test_dead_letters_wait_until_they_are_sent_again(store: ProgressStore) -> None:
    store.register("orders", DEFINITION)
    epoch = store.begin_attempt("orders")
    letters = [
        DeadLetter(table="shop.public.orders", key=f"[{key}]", updated=Timestamp(key), stage="encode", error="no")
        for key in (7, 8)
    ]
    store.save("orders", epoch, Progress(token={}), dead_letters=letters)
    seven, eight = store.dead_letters("orders")
    assert (seven.key, seven.updated, seven.stage, eight.key) == ("[7]", Timestamp(7), "encode", "[8]")
    assert seven.refused_at is not None
    assert store.count_dead_letters("orders", since=seven.refused_at) == 2
    store.mark_replayed("orders", epoch, [seven.number])
    assert [letter.key for letter in store.dead_letters("orders")] == ["[8]"]
    assert store.count_dead_letters("orders", since=seven.refused_at) == 2


def test_each_blocked_key_is_told_once_until_all_its_rows_are_sent_again(store: ProgressStore) -> None:
    store.register("orders", DEFINITION)
    epoch = store.begin_attempt("orders")
    letters = [
        DeadLetter(table="shop.public.orders", key=key, updated=Timestamp(n), stage=stage, error="no")
        for n, (key, stage) in enumerate([("[7]", "sink"), ("[7]", "blocked"), ("[8]", "encode")])
    ]
    store.save("orders", epoch, Progress(token={}), dead_letters=letters)
    assert sorted(store.blocked_keys("orders")) == [("shop.public.orders", "[7]"), ("shop.public.orders", "[8]")]
    assert store.blocked_keys("invoices") == []
    first, second, _ = store.dead_letters("orders")
    store.mark_replayed("orders", epoch, [first.number])
    assert len(store.blocked_keys("orders")) == 2
    store.mark_replayed("orders", epoch, [second.number])
    assert store.blocked_keys("orders") == [("shop.public.orders", "[8]")]


def test_what_a_replay_delivers_is_recorded_with_a_later_mark(store: ProgressStore) -> None:
    store.register("orders", DEFINITION)
    epoch = store.begin_attempt("orders")
    store.finish_records("orders", epoch, Timestamp(10))
    store.mark_replayed("orders", epoch, [], delivered=[{"path": "again"}])
    assert store.assign_mark("orders", epoch, Timestamp(10)) == []
    (waiting,) = store.assign_mark("orders", epoch, Timestamp(20))
    assert waiting == PendingRecord(mark=Timestamp(20), previous=Timestamp(10), delivered=({"path": "again"},))


def test_a_replay_that_goes_unrecorded_says_so(store: ProgressStore) -> None:
    store.register("orders", DEFINITION)
    epoch = store.begin_attempt("orders")
    store.save("orders", epoch, Progress(token={}))
    store.finish_records("orders", epoch, Timestamp(10))
    store.mark_replayed("orders", epoch, [], delivered=None)
    (waiting,) = store.assign_mark("orders", epoch, Timestamp(20))
    assert waiting.previous is None


def test_rows_that_were_sent_again_are_forgotten_after_a_day_and_their_numbers_never_come_back(
    store: ProgressStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def put_aside(*keys: str, at: datetime) -> None:
        letters = [DeadLetter(table="t", key=key, updated=Timestamp(1), stage="encode", error="") for key in keys]
        with monkeypatch.context() as patch:
            patch.setattr("cdc_core.store.progress.now_text", lambda: moment_text(at))
            store.save("orders", epoch, Progress(token={}), dead_letters=letters)

    store.register("orders", DEFINITION)
    epoch, now = store.begin_attempt("orders"), datetime.now(UTC)
    put_aside("[1]", at=now)
    put_aside("[2]", "[3]", "[4]", at=now - timedelta(days=2))
    numbers = {letter.key: letter.number for letter in store.dead_letters("orders")}
    store.mark_replayed("orders", epoch, [numbers["[1]"], numbers["[2]"], numbers["[4]"]])
    assert [letter.key for letter in store.dead_letters("orders")] == ["[3]"]
    assert store.count_dead_letters("orders", since=now - timedelta(days=9)) == 3  # the last one keeps its number taken
    put_aside("[5]", at=now)
    assert max(letter.number for letter in store.dead_letters("orders")) > max(numbers.values())
    store.mark_replayed("orders", epoch, [])
    assert store.count_dead_letters("orders", since=now - timedelta(days=9)) == 3


def test_a_fenced_replay_changes_nothing(store: ProgressStore) -> None:
    store.register("orders", DEFINITION)
    epoch = store.begin_attempt("orders")
    letter = DeadLetter(table="t", key="[1]", updated=Timestamp(1), stage="sink", error="no")
    store.save("orders", epoch, Progress(token={}), dead_letters=[letter])
    (waiting,) = store.dead_letters("orders")
    newer = store.begin_attempt("orders")
    with pytest.raises(FencedError):
        store.mark_replayed("orders", epoch, [waiting.number], delivered=[{"path": "again"}])
    assert store.dead_letters("orders") == [waiting]
    assert [each.delivered for each in store.assign_mark("orders", newer, Timestamp(1))] == [()]


def test_a_fenced_run_leaves_no_dead_letter_and_no_delivery(store: ProgressStore) -> None:
    store.register("orders", DEFINITION)
    epoch = store.begin_attempt("orders")
    newer = store.begin_attempt("orders")
    letter = DeadLetter(table="t", key="[1]", updated=Timestamp(1), stage="sink", error="no")
    with pytest.raises(FencedError):
        store.save("orders", epoch, Progress(token={}), delivered=[{"path": "a"}], dead_letters=[letter])
    assert store.dead_letters("orders") == []
    (waiting,) = store.assign_mark("orders", newer, Timestamp(9))
    assert waiting.delivered == ()
