"""Altering a job, and the tables of a changefeed that `cdc run` has begun."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cdc_testing.components import encoder, host, rangefeed, sink
from cdc_testing.stored import node, progress

from cdc_core.changefeeds import altering
from cdc_core.changefeeds.creating import check_job
from cdc_core.changefeeds.service import Changefeeds, RefusedError
from cdc_core.config.alteration import Alteration
from cdc_core.config.changefeed import Changefeed
from cdc_core.config.definition import changefeed_of
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.engine.fencing import RunLock
from cdc_core.errors import ConfigError, FencedError
from cdc_core.frontier import Frontier
from cdc_core.plugins.host import PluginHost
from cdc_core.span import Span
from cdc_core.store.progress import Progress, ProgressStore

ENVIRON = {"PAPER_PASSWORD": "hunter2", "MASK_KEY": "a-key-of-many-characters"}


def scripted(*, changes_tables: bool = True) -> PluginHost:
    return host(
        rangefeed(options="cdc_testing.scripted:CounterOptions", changes_tables=changes_tables),
        encoder(),
        sink(options="cdc_testing.scripted:JournalOptions"),
        sink("drawer", schemes=("drawer",), options="cdc_testing.scripted:JournalOptions"),
    )


@pytest.fixture
def feeds(store: ProgressStore) -> Changefeeds:
    return Changefeeds(store, plugins=scripted(), environ=ENVIRON)


def written(directory: Path, **options: str) -> dict[str, Any]:
    return {
        "source": "paper://user:${PAPER_PASSWORD}@desk/db",
        "tables": ["public.counter"],
        "sink": "shelf://room",
        "options": {"control": str(directory), **options},
    }


def changefeed(directory: Path, name: str = "orders", **options: str) -> Changefeed:
    return changefeed_of(name, written(directory, **options), origin="a test", environ=ENVIRON)


def definition(store: ProgressStore, name: str = "orders") -> dict[str, Any]:
    found = store.changefeeds.find(name)
    assert found is not None
    return dict(found.definition)


def change(*, add: Any = (), drop: Any = (), unset: Any = (), **set_: str) -> Alteration:
    return Alteration(add=add, drop=drop, set=set_, unset=unset)


def begin(store: ProgressStore, feeds: Changefeeds, name: str, saved: Progress | None = None) -> None:
    """Have a node begin with the job, which is paused then."""
    [one] = store.nodes.living()
    adopted = store.claims.adopt(name, one)
    assert adopted is not None
    store.progress.save(name, adopted.epoch, saved or progress())
    feeds.pause(name, "maintenance")
    store.claims.settle(name, one, "stopped")


class TestAJob:
    @pytest.fixture(autouse=True)
    def begun(self, store: ProgressStore, feeds: Changefeeds, tmp_path: Path) -> None:
        """A paused job that has begun."""
        store.nodes.join(node("one"), lease_s=600)
        feeds.create(feeds.resolved(changefeed(tmp_path)), owner="ann")
        begin(store, feeds, "orders")

    def test_has_other_tables_and_options(self, store: ProgressStore, feeds: Changefeeds) -> None:
        before, seen = definition(store), feeds.known("orders")
        altered = feeds.alter(
            "orders", change(add=["public.a"], resolved="10s", sink="shelf://hall"), by="ann", scans=False
        )
        after = definition(store)
        assert altered.tables == ("public.counter", "public.a")
        assert (after["tables"], after["sink"]) == ([*altered.tables], "shelf://hall")
        assert after["written"]["options"] == {**before["written"]["options"], "resolved": "10s"}
        assert after["written"]["source"] == before["written"]["source"]
        assert "hunter2" not in json.dumps(after)
        assert store.rescans.initial_scans("orders") == {"public.a": False}
        event = store.jobs.events("orders")[-1]
        assert (event.state, event.reason) == ("paused", "altered (ann): added public.a; set resolved, sink")
        now = feeds.known("orders")
        assert (now.feed_id, now.high_water) == (seen.feed_id, seen.high_water)
        feeds.alter("orders", change(unset=["resolved"], drop=["public.a"]), by="ann")
        assert "resolved" not in definition(store)["written"]["options"]
        assert store.rescans.initial_scans("orders") == {}

    def test_has_the_locality_of_its_option(self, feeds: Changefeeds) -> None:
        altered = feeds.alter("orders", change(execution_locality="region=eu"), by="ann")
        assert str(altered.job.locality) == "region=eu"

    @pytest.mark.parametrize(
        ("wanted", "told"),
        [
            (change(sink="drawer://desk"), "delivers to sink 'shelf', not 'drawer', and the type of a sink cannot"),
            (change(resolvd="1s"), "has no option 'resolvd'; did you mean 'resolved'?"),
            (change(execution_locality="eu"), "'eu' is not a locality"),
            (change(format="avro"), "avro"),
            (
                change(initial_scan="no"),
                "option 'initial_scan' cannot be altered, because it has delivered rows; create another job",
            ),
            (change(sink="shelf://user:hunter3@room"), "'sink' has a secret in plain text"),
            (change(sink="shelf://user:${NOT_SET}@room"), "needs the environment variable 'NOT_SET'"),
            (change(drop=["public.countr"]), "has no table 'public.countr'; did you mean 'public.counter'?"),
        ],
    )
    def test_stays_as_it_is_when_the_change_is_refused(
        self, store: ProgressStore, feeds: Changefeeds, wanted: Alteration, told: str
    ) -> None:
        before, events = definition(store), len(store.jobs.events("orders"))
        with pytest.raises(ConfigError) as refused:
            feeds.alter("orders", wanted, by="ann")
        assert told in str(refused.value)
        assert "hunter3" not in str(refused.value)
        assert definition(store) == before
        assert len(store.jobs.events("orders")) == events

    def test_is_checked_first(self, store: ProgressStore, feeds: Changefeeds, tmp_path: Path) -> None:
        before = definition(store)
        (tmp_path / "check").write_text("ConfigError table public.a does not exist")
        with pytest.raises(ConfigError, match=r"table public\.a does not exist"):
            feeds.alter("orders", change(add=["public.a"]), by="ann", scans=True)
        assert definition(store) == before
        assert store.rescans.initial_scans("orders") == {}

    def test_loses_a_section_and_the_key_of_hashes_with_the_table(
        self, store: ProgressStore, feeds: Changefeeds, tmp_path: Path
    ) -> None:
        hashed: dict[str, Any] = {
            **written(tmp_path, mask_key="${MASK_KEY}"),
            "tables": ["public.counter", "public.users"],
            "table": {"public.users": {"mask": {"email": "hash"}}},
        }
        users = changefeed_of("users", hashed, origin="a test", environ=ENVIRON)
        feeds.create(feeds.resolved(users), owner="ann", connect=False)
        begin(store, feeds, "users")
        other = {**hashed, "table": {"public.users": {"mask": {"email": "hash", "phone": "hash"}}}}
        masked = changefeed_of("users", other, origin="a test", environ=ENVIRON)
        with pytest.raises(ConfigError, match=r"job 'users': 'table' cannot be altered, .*; create another job"):
            feeds.redefine("users", feeds.resolved(masked), before=definition(store, "users"), why="PUT")
        feeds.alter("users", change(drop=["public.users"]), by="ann")
        left = definition(store, "users")
        assert (left["tables"], "mask_key" in left["written"]["options"]) == (["public.counter"], False)
        assert "selections" not in left

    def test_takes_a_table_back_with_another_section_when_it_is_dropped(
        self, store: ProgressStore, feeds: Changefeeds, tmp_path: Path
    ) -> None:
        tables = ["public.counter", "public.users"]
        plain = changefeed_of("users", {**written(tmp_path), "tables": tables}, origin="a test", environ=ENVIRON)
        section = {"table": {"public.users": {"mask": {"email": "redact"}}}}
        masked = changefeed_of(
            "users", {**written(tmp_path), "tables": tables, **section}, origin="a test", environ=ENVIRON
        )
        feeds.create(feeds.resolved(plain), owner="ann", connect=False)
        begin(store, feeds, "users")
        feeds.resume("users")
        [one] = store.nodes.living()
        assert store.claims.adopt("users", one) is not None
        job = feeds.alter("users", change(drop=["public.users"]), by="ann").job
        assert job is not None
        assert job.pending is not None
        last = job.pending.definition
        with pytest.raises(RefusedError) as refused:
            feeds.redefine("users", feeds.resolved(masked), before=last, why="PUT", connect=False)
        assert str(refused.value) == (
            "job 'users' has not dropped table public.users yet; its section cannot change until then; repeat "
            "this after the running step"
        )
        assert store.claims.settle("users", one, "stopped") == "running"
        feeds.redefine("users", feeds.resolved(masked), before=last, why="PUT", connect=False)
        assert definition(store, "users")["tables"] == tables

    @pytest.mark.parametrize("runs", [False, True])
    @pytest.mark.parametrize("scan", [None, True, False])
    @pytest.mark.parametrize(("table", "other"), [("public.users", "public.counter"), ("app.users", "users")])
    def test_reads_a_table_again_that_is_dropped_and_added_before_the_next_run(
        self,
        store: ProgressStore,
        feeds: Changefeeds,
        tmp_path: Path,
        runs: bool,
        scan: bool | None,
        table: str,
        other: str,
    ) -> None:
        both = changefeed_of("users", {**written(tmp_path), "tables": [other, table]}, origin="a test", environ=ENVIRON)
        feeds.create(feeds.resolved(both), owner="ann", connect=False)
        spans = [Span(name) for name in sorted({f"shop.{table}", "shop.public.users"})]
        begin(store, feeds, "users", replace(progress(), frontier=Frontier(spans)))
        [one] = store.nodes.living()
        if runs:
            feeds.resume("users")
            assert store.claims.adopt("users", one) is not None
        with pytest.raises(ConfigError, match=rf"table '{table}' is both added and dropped"):
            feeds.alter("users", change(drop=[table], add=[table]), by="ann")
        feeds.alter("users", change(drop=[table]), by="ann")
        feeds.alter("users", change(add=[table]), by="ann", scans=scan)
        if runs:
            store.claims.settle("users", one, "stopped")
        asked = [found.table for found in store.rescans.waiting("users", new_slot=False)]
        assert asked == ([] if scan is False else [f"shop.{table}"])

    def test_that_runs_continues_with_the_changes_after_its_step(
        self, store: ProgressStore, feeds: Changefeeds
    ) -> None:
        [one] = store.nodes.living()
        feeds.resume("orders")
        assert store.claims.adopt("orders", one) is not None
        before = definition(store)
        for wanted, scans in ((change(add=["public.a"]), False), (change(add=["public.b"]), None)):
            job = feeds.alter("orders", wanted, by="ann", scans=scans).job
            assert job is not None
            assert job.pending is not None
        feeds.alter("orders", change(resolved="1s"), by="ann")
        assert definition(store) == before
        assert store.claims.settle("orders", one, "stopped") == "running"
        assert definition(store)["tables"] == ["public.counter", "public.a", "public.b"]
        assert definition(store)["written"]["options"]["resolved"] == "1s"
        assert store.rescans.initial_scans("orders") == {"public.a": False}

    def test_that_begins_meanwhile_keeps_what_is_fixed_then(
        self, store: ProgressStore, feeds: Changefeeds, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        feeds.create(feeds.resolved(changefeed(tmp_path, "users")), owner="ann")
        monkeypatch.setattr(altering, "check_job", lambda _feed: begin(store, feeds, "users"))
        with pytest.raises(ConfigError, match="job 'users' was changed in the meantime"):
            feeds.alter("users", change(sink="drawer://desk"), by="ann")
        assert definition(store, "users")["sink"] == "shelf://room"

    @pytest.mark.parametrize("adopted", ["before", "meanwhile"])
    def test_that_runs_keeps_what_is_fixed_before_its_first_step_is_saved(
        self, store: ProgressStore, feeds: Changefeeds, tmp_path: Path, adopted: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        [one] = store.nodes.living()
        feeds.create(feeds.resolved(changefeed(tmp_path, "users", initial_scan="no")), owner="ann")
        if adopted == "before":
            assert store.claims.adopt("users", one) is not None
        else:
            monkeypatch.setattr(altering, "check_job", lambda _feed: store.claims.adopt("users", one))
        told = {
            "before": "'initial_scan' cannot be altered while a node is starting the job; pause it with `cdc pause",
            "meanwhile": "job 'users' was changed in the meantime",
        }
        with pytest.raises(ConfigError, match=told[adopted]):
            feeds.alter("users", change(add=["public.a"], initial_scan="yes"), by="ann")
        assert feeds.require_job("users").pending is None
        altered = feeds.alter("users", change(add=["public.a"], resolved="1s"), by="ann").job
        assert altered is not None
        assert altered.pending is not None

    def test_that_is_so_already_is_not_disturbed_and_runs_again_after_an_error(
        self, store: ProgressStore, feeds: Changefeeds
    ) -> None:
        [one] = store.nodes.living()
        feeds.alter("orders", change(resolved="1s"), by="ann")
        feeds.resume("orders")
        assert store.claims.adopt("orders", one) is not None
        events = store.jobs.events("orders")
        same = feeds.alter("orders", change(resolved="1s"), by="ann")
        assert (same.job, same.is_new) == (feeds.require_job("orders"), False)
        assert store.jobs.events("orders") == events
        store.claims.settle("orders", one, "failed", "no route")
        again = feeds.alter("orders", change(resolved="1s"), by="ann")
        assert again.job is not None
        assert (again.job.state, again.is_new) == ("running", False)
        assert store.jobs.events("orders")[-1].reason == "altered (ann): set resolved"

    def test_may_be_anything_before_it_begins(self, store: ProgressStore, feeds: Changefeeds, tmp_path: Path) -> None:
        fixed = Changefeeds(store, plugins=scripted(changes_tables=False), environ=ENVIRON)
        with pytest.raises(ConfigError, match="cannot change the tables of a changefeed that has started"):
            fixed.alter("orders", change(add=["public.a"]), by="ann")
        fixed.create(fixed.resolved(changefeed(tmp_path, "users")), owner="ann")
        with pytest.raises(ConfigError, match="'users' has not started yet, so option initial_scan applies to all"):
            fixed.alter("users", change(add=["public.a"]), by="ann", scans=False)
        wanted = change(add=["public.a"], sink="drawer://desk", initial_scan="no")
        assert fixed.alter("users", wanted, by="ann").tables == ("public.counter", "public.a")
        assert definition(store, "users")["sink"] == "drawer://desk"


class TestARun:
    @pytest.fixture(autouse=True)
    def begun(self, store: ProgressStore, feeds: Changefeeds, tmp_path: Path) -> None:
        store.changefeeds.register("orders", feeds.resolved(changefeed(tmp_path)).definition())
        store.progress.save("orders", store.changefeeds.begin_attempt("orders"), Progress(token={"n": 7}))

    def test_has_other_tables_in_the_store(self, store: ProgressStore, feeds: Changefeeds, tmp_path: Path) -> None:
        before = definition(store)
        wanted = change(add=["public.a", "${b"])
        with pytest.raises(ConfigError, match=r"and is not a job; .* with `cdc alter orders --store DIR\|URL`"):
            feeds.alter("orders", wanted, by="ann")
        altered = feeds.alter_run(changefeed(tmp_path), wanted, state_dir=tmp_path, by="ann", scans=False)
        assert altered.job.is_run
        assert altered.tables == ("public.counter", "public.a", "${b")
        after = definition(store)
        assert after["tables"] == [*altered.tables]
        assert after["written"] == {**before["written"], "tables": ["public.counter", "public.a", "$${b"], "spark": {}}
        assert "hunter2" not in json.dumps(after)
        assert store.rescans.initial_scans("orders") == {"public.a": False, "${b": False}
        assert store.events.read("orders")[-1].message == "altered (ann): added public.a, ${b"
        feeds.alter_run(
            changefeed(tmp_path), change(add=["c"], drop=["public.a"]), state_dir=tmp_path, by="ann", scans=True
        )
        assert definition(store)["tables"] == ["public.counter", "${b", "c"]
        assert store.rescans.initial_scans("orders") == {"${b": False, "c": True}

    def test_may_be_made_by_code(self, feeds: Changefeeds, tmp_path: Path) -> None:
        by_code = replace(changefeed(tmp_path), written=None)
        altered = feeds.alter_run(by_code, change(add=["c"]), state_dir=tmp_path, by="ann")
        assert altered.tables == ("public.counter", "c")

    @pytest.mark.parametrize("told", ["running", "no table", "no place", "changes tables", "newer run", "not begun"])
    def test_stays_as_it_is_when_the_change_is_refused(
        self, store: ProgressStore, feeds: Changefeeds, tmp_path: Path, told: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        texts: Mapping[str, str] = {
            "running": "changefeed 'orders' is running from",
            "no table": r"table public\.a does not exist",
            "no place": "the room is locked",
            "changes tables": "cannot change the tables of a changefeed that has started",
            "newer run": "a newer attempt took over",
            "not begun": "has not started yet; change 'tables' in its file",
        }
        file, lock = changefeed(tmp_path), RunLock(tmp_path / "orders.lock")
        if told == "running":
            assert lock.acquire()
        elif told == "no table":
            (tmp_path / "check").write_text("ConfigError table public.a does not exist")
        elif told == "no place":
            (tmp_path / "sink-check").write_text("ConfigError the room is locked")
        elif told == "changes tables":
            feeds = Changefeeds(store, plugins=scripted(changes_tables=False), environ=ENVIRON)
        elif told == "newer run":
            check = check_job

            def begin(feed: ResolvedChangefeed, **how: Any) -> None:
                check(feed, **how)
                store.changefeeds.begin_attempt("orders")

            monkeypatch.setattr(altering, "check_job", begin)
        else:
            file = changefeed(tmp_path, "fresh")
            store.changefeeds.register("fresh", feeds.resolved(file).definition())
        before = definition(store, file.name)
        with pytest.raises((ConfigError, FencedError), match=texts[told]):
            feeds.alter_run(file, change(add=["public.a"]), state_dir=tmp_path, by="ann", scans=True)
        assert definition(store, file.name) == before
        assert store.rescans.initial_scans(file.name) == {}
