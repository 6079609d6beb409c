"""Several changefeeds in one process and one Spark session: what happens to one is nothing to the others."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from cdc_testing.engine import Journal, counter_feed
from cdc_testing.kept_spark import KeptSpark
from cdc_testing.runs import eventually
from cdc_testing.scripted import Script
from cdc_testing.thread_host import ThreadHost
from pyspark import SparkContext
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from cdc_core.engine.supervisor import Outcome, Supervisor
from cdc_core.errors import ConfigError, TerminalSinkError
from cdc_core.spark import host, query
from cdc_core.spark.data_sources import SINK, SOURCE
from cdc_core.spark.host_limits import host_cores
from cdc_core.spark.query import StartSessions
from cdc_core.spark.runner import Runner
from cdc_core.spark.session_settings import SETTINGS
from cdc_core.store.progress import ProgressStore, store_url

TOTAL = 2000


class Feeds:
    """Counting changefeeds of one runner; each has a journal and orders of its own."""

    def __init__(self, directory: Path, names: str) -> None:
        self.directory = directory
        self.scripts = {name: Script(directory / name) for name in names}
        for script in self.scripts.values():
            script.directory.mkdir()
        self.runner = Runner(directory, changefeeds=len(names))
        self.store = ProgressStore(store_url(directory))

    def start(self, name: str, *, once: bool = True, **feed: Any) -> Supervisor:
        control = self.scripts[name].directory
        return self.runner.start(
            counter_feed(control, **{"name": name, "total": TOTAL, "rows_per_step": 500, **feed}), once=once
        )

    def journal(self, name: str) -> Journal:
        return Journal(self.scripts[name].directory)

    def faults(self) -> list[str]:
        return [f"{name}: {fault}" for name in self.scripts for fault in self.journal(name).faults(total=TOTAL)]

    def close(self) -> None:
        for script in self.scripts.values():
            for held in script.directory.glob("hold-*"):
                held.unlink(missing_ok=True)
        self.runner.close()


@pytest.fixture
def feeds(tmp_path: Path, kept_spark: KeptSpark) -> Iterator[Callable[[str], Feeds]]:
    """Return a function that makes changefeeds of one letter each, in the session that tests share."""
    made: list[Feeds] = []

    def make(names: str) -> Feeds:
        made.append(Feeds(tmp_path, names))
        return made[-1]

    with kept_spark.lent():
        yield make
        for each in made:
            each.close()


@pytest.fixture
def on_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Feeds]]:
    """As `feeds`, without Spark: for what a runner and its supervisors decide."""
    monkeypatch.setattr("cdc_core.spark.runner.SparkHost", lambda *_, **__: ThreadHost())
    monkeypatch.setattr("cdc_core.engine.run._POLL_S", 0.02)
    monkeypatch.setattr("cdc_core.engine.attempts._POLL_S", 0.02)
    made: list[Feeds] = []

    def make(names: str) -> Feeds:
        made.append(Feeds(tmp_path, names))
        return made[-1]

    yield make
    for each in made:
        each.close()


def begun(feed: Feeds, name: str) -> None:
    eventually(f"rows of {name}", lambda: feed.journal(name).of("rows"))


def outcome(supervisor: Supervisor) -> Outcome:
    ended = supervisor.wait(400)
    assert ended is not None, supervisor.status
    return ended


def test_changefeeds_run_side_by_side_and_each_delivers_everything(feeds: Callable[[str], Feeds]) -> None:
    feed = feeds("abc")
    ended = [outcome(each) for each in [feed.start(name) for name in "abc"]]
    assert ended == [Outcome("complete")] * 3
    assert feed.faults() == []
    status = {each: feed.store.statuses.load(each) for each in "abc"}
    assert {name: each and each.values["phase"] for name, each in status.items()} == dict.fromkeys("abc", "complete")


def test_a_changefeed_that_fails_ends_alone_and_starts_again_beside_the_other(feeds: Callable[[str], Feeds]) -> None:
    feed = feeds("ab")
    good = feed.start("a", once=False)
    begun(feed, "a")
    feed.scripts["b"].order("flush", "TerminalSinkError the disk is full")
    failed = outcome(feed.start("b"))
    assert isinstance(failed.error, TerminalSinkError)
    assert good.outcome is None
    eventually("all rows of a", lambda: len(feed.journal("a").numbers()) >= TOTAL)
    assert outcome(feed.start("b")) == Outcome("complete")
    assert good.outcome is None
    good.stop()
    assert outcome(good) == Outcome("stopped")
    assert feed.faults() == []


def test_one_that_is_refused_from_the_start_ends_alone(on_threads: Callable[[str], Feeds]) -> None:
    feed = on_threads("ab")
    feed.scripts["b"].order("check", "ConfigError table counter is missing")
    good, bad = feed.start("a"), feed.start("b")
    assert isinstance(outcome(bad).error, ConfigError)
    assert outcome(good) == Outcome("complete")
    assert bad.status.phase == "failed"
    assert bad.status.error == "table counter is missing"


def test_a_changefeed_is_paused_and_resumed_while_another_goes_on(on_threads: Callable[[str], Feeds]) -> None:
    feed = on_threads("ab")
    paused, other = feed.start("a", once=False), feed.start("b", once=False)
    begun(feed, "a")
    begun(feed, "b")
    paused.pause("maintenance of the warehouse")
    eventually("the pause", lambda: paused.status.phase == "paused")
    assert paused.status.waiting_for == "maintenance of the warehouse"
    before = feed.journal("a").events
    eventually("all rows of b", lambda: len(feed.journal("b").numbers()) >= TOTAL)
    assert feed.journal("a").events == before
    known = feed.store.changefeeds.find("a")
    assert known is not None
    assert known.paused is not None
    paused.resume()
    eventually("all rows of a", lambda: len(feed.journal("a").numbers()) >= TOTAL)
    for each in (paused, other):
        each.stop()
        assert outcome(each) == Outcome("stopped")
    assert feed.faults() == []


def test_a_resumption_that_comes_before_the_pause_takes_effect_undoes_it(on_threads: Callable[[str], Feeds]) -> None:
    feed = on_threads("a")
    supervisor = feed.start("a", once=False)
    supervisor.pause("asked for while it starts")
    eventually("the pause", lambda: supervisor.status.phase == "paused")
    supervisor.resume()
    begun(feed, "a")
    feed.scripts["a"].order("hold-emit")
    eventually("a step is held", lambda: feed.scripts["a"].pending("hold-emit.held"))
    supervisor.pause("asked for while a step runs")
    eventually("the step is waited for", lambda: supervisor.status.phase == "stopping")
    supervisor.resume()
    (feed.scripts["a"].directory / "hold-emit").unlink()
    eventually("all rows", lambda: len(feed.journal("a").numbers()) >= TOTAL)
    assert supervisor.outcome is None
    supervisor.stop()
    assert outcome(supervisor) == Outcome("stopped")
    assert feed.faults() == []


def test_a_pause_outlasts_a_stop_that_comes_before_it_takes_effect(on_threads: Callable[[str], Feeds]) -> None:
    feed = on_threads("a")
    supervisor = feed.start("a", once=False)
    begun(feed, "a")
    feed.scripts["a"].order("hold-emit")
    eventually("a step is held", lambda: feed.scripts["a"].pending("hold-emit.held"))
    supervisor.pause("maintenance")
    supervisor.stop()
    (feed.scripts["a"].directory / "hold-emit").unlink()
    assert outcome(supervisor) == Outcome("stopped")
    known = feed.store.changefeeds.find("a")
    assert known is not None
    assert known.paused is not None
    assert known.paused.reason == "maintenance"


def test_the_same_changefeed_does_not_run_twice(on_threads: Callable[[str], Feeds]) -> None:
    feed = on_threads("a")
    first = feed.start("a", once=False)
    begun(feed, "a")
    error = outcome(feed.start("a")).error
    assert isinstance(error, ConfigError)
    assert str(error).endswith(f"is already running from {feed.directory} (process {os.getpid()}); stop it first")
    assert first.outcome is None
    status = feed.store.statuses.load("a")
    assert status is not None
    assert status.values["error"] is None


@pytest.mark.slow
def test_sinks_that_hang_hold_up_no_other_changefeed(tmp_path: Path, kept_spark: KeptSpark) -> None:
    """Each of these would take all task slots that one changefeed alone has on this host."""
    kept_spark.close()
    slices = host_cores()
    feed = Feeds(tmp_path, "abc")
    try:
        for name in "ab":
            feed.scripts[name].order("hold-emit")
        hanging = [feed.start(name, slices=slices) for name in "ab"]
        for name in "ab":
            eventually(f"{name} hangs", lambda name=name: feed.scripts[name].pending("hold-emit.held"))
        assert outcome(feed.start("c", slices=slices)) == Outcome("complete")
        eventually("the reason", lambda: all(each.status.waiting_on == "sink 'journal'" for each in hanging))
        for name in "ab":
            (feed.scripts[name].directory / "hold-emit").unlink()
        assert [outcome(each) for each in hanging] == [Outcome("complete")] * 2
        assert feed.faults() == []
    finally:
        feed.close()


@pytest.mark.slow
def test_a_dead_worker_costs_only_its_own_changefeed_an_attempt(feeds: Callable[[str], Feeds]) -> None:
    feed = feeds("ab")
    feed.scripts["a"].order("flush", "kill")
    assert [outcome(each) for each in (feed.start("a"), feed.start("b"))] == [Outcome("complete")] * 2
    assert not feed.scripts["a"].pending("flush")
    assert feed.journal("b").epochs == {1}
    assert feed.faults() == []


@pytest.mark.slow
def test_all_changefeeds_continue_after_the_jvm_was_killed(
    feeds: Callable[[str], Feeds], kept_spark: KeptSpark
) -> None:
    feed = feeds("ab")
    running = [feed.start(name, once=False) for name in "ab"]
    for name in "ab":
        begun(feed, name)
    kept_spark.kill_jvm()
    for name in "ab":
        eventually(f"another attempt of {name}", lambda name=name: max(feed.journal(name).epochs) > 1)
        eventually(f"all rows of {name}", lambda name=name: len(feed.journal(name).numbers()) >= TOTAL)
    for each in running:
        each.stop()
        assert outcome(each) == Outcome("stopped")
    assert feed.faults() == []


def test_queries_that_start_at_once_share_no_map_that_spark_writes_into(
    feeds: Callable[[str], Feeds], monkeypatch: pytest.MonkeyPatch
) -> None:
    both, opened, started, queries = Barrier(2), query._open_rows, host.start_query, []

    def open_rows(*args: Any) -> DataFrame:
        rows = opened(*args)
        both.wait(400)  # both have registered what they need, and none has started
        return rows

    def start_query(*args: Any) -> StreamingQuery:
        queries.append(started(*args))
        return queries[-1]

    monkeypatch.setattr(query, "_open_rows", open_rows)
    monkeypatch.setattr(host, "start_query", start_query)
    feed = feeds("ab")
    running = [feed.start(name, once=False) for name in "ab"]
    for name in "ab":
        begun(feed, name)  # so Spark has looked up the source and the sink
    maps = [variables for each in queries for variables in maps_of(each)]
    for each in running:
        each.stop()
        assert outcome(each) == Outcome("stopped")
    assert len(set(maps)) == 4


def maps_of(query: StreamingQuery) -> list[int]:
    """Return which maps of variables the source and the sink of *query* have. Both have been looked up."""
    java = query._jsq.streamingQuery()
    source, table = java.analyzedPlan().collectLeaves().head().source().get(), java.sink()
    field = table.getClass().getDeclaredField("ds")
    field.setAccessible(True)
    providers = source, field.get(table)
    variables = [provider.source().dataSourceCls().envVars() for provider in providers]
    assert "SPARK_BUFFER_SIZE" in variables[0]  # Spark has written into it
    assert SparkContext._jvm is not None
    return [SparkContext._jvm.java.lang.System.identityHashCode(each) for each in variables]


def test_starts_one_after_another_use_one_session_and_register_anew(kept_spark: KeptSpark) -> None:
    session = kept_spark.session()
    sessions = StartSessions(session)
    seen, registered = [], []
    for evaluates in (False, True) * 3:
        with sessions.lent(evaluates=evaluates) as own:
            seen.append(own)
            for name in (SOURCE, SINK):
                registered.append(own._jsparkSession.sessionState().dataSourceManager().lookupDataSource(name))
    assert len({id(each) for each in seen}) == 2
    assert session not in seen
    assert len({session._jvm.java.lang.System.identityHashCode(each) for each in registered}) == 12


def test_the_host_preloads_after_a_start_in_the_same_thread(kept_spark: KeptSpark, tmp_path: Path) -> None:
    with kept_spark.lent():
        runs = host.SparkHost("t", {}, state_dir=tmp_path)
        runs.acquire("t")
        try:
            with StartSessions(kept_spark.session()).lent(evaluates=False):
                pass
            runs.preload(stopped=lambda: False)  # raises what Spark says
        finally:
            runs.release("t")


def test_sessions_for_starts_have_the_settings_of_the_application(kept_spark: KeptSpark) -> None:
    session = kept_spark.session()
    settings = {name: session.conf.get(name) for name in SETTINGS}
    sessions = StartSessions(session)
    with sessions.lent(evaluates=False) as first, sessions.lent(evaluates=False) as second:
        assert first is not second
        for each in (first, second):
            assert {name: each.conf.get(name) for name in settings} == settings
