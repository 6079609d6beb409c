"""`cdc alter` of a job: its definition in the store."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cdc_testing.components import encoder, host, rangefeed, sink
from cdc_testing.stored import node, progress

from cdc_core.changefeeds.service import Changefeeds
from cdc_core.cli.main import main
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.jobs import redefinition
from cdc_core.locality import Locality
from cdc_core.plugins.host import PluginHost
from cdc_core.store.job_values import Pending
from cdc_core.store.progress import ProgressStore, store_url

Capture = pytest.CaptureFixture[str]


def use(monkeypatch: pytest.MonkeyPatch, *, changes_tables: bool) -> None:
    """Put scripted components in place of the installed ones."""
    scripted = host(
        rangefeed(options="cdc_testing.scripted:CounterOptions", changes_tables=changes_tables),
        encoder(),
        sink(options="cdc_testing.scripted:JournalOptions"),
        sink("drawer", schemes=("drawer",), options="cdc_testing.scripted:JournalOptions"),
    )
    monkeypatch.setattr(PluginHost, "load", lambda: scripted)


@pytest.fixture(autouse=True)
def plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, changes_tables=True)
    monkeypatch.setenv("LOGNAME", "ann")


@pytest.fixture
def store(file: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ProgressStore]:
    """The store that the environment names, with a paused job that has begun."""
    monkeypatch.setenv("PAPER_PASSWORD", "hunter2")
    file.write_text(file.read_text().replace("hunter2", "${PAPER_PASSWORD}"))
    store = ProgressStore(store_url(file.parent / "nodes"))
    monkeypatch.setenv("CDC_STORE", store.url)
    assert main(["create", str(file)]) == 0
    one = store.nodes.join(node("one"), lease_s=600)
    adopted = store.claims.adopt("orders", one)
    assert adopted is not None
    store.progress.save("orders", adopted.epoch, progress())
    Changefeeds(store).pause("orders", "maintenance")
    store.claims.settle("orders", one, "stopped")
    yield store
    store.close()


def definition(store: ProgressStore) -> dict[str, Any]:
    found = store.changefeeds.find("orders")
    assert found is not None
    return dict(found.definition)


def test_tables_and_options_are_changed(store: ProgressStore, capsys: Capture) -> None:
    before, seen = definition(store), store.changefeeds.find("orders")
    change = ["--add", "public.a", "--no-initial-scan", "--set", "resolved=10s", "--set", "sink=shelf://hall"]
    capsys.readouterr()
    assert main(["alter", "orders", *change]) == 0
    assert capsys.readouterr().out == (
        "job 'orders' is altered: added public.a; set resolved, sink; continue it with `cdc resume orders`\n"
        "its tables are public.counter, public.a\n"
    )
    after = definition(store)
    assert after["tables"] == ["public.counter", "public.a"]
    assert after["sink"] == "shelf://hall"
    assert after["written"]["options"] == {**before["written"]["options"], "resolved": "10s"}
    assert after["written"]["source"] == before["written"]["source"]
    assert "hunter2" not in json.dumps(after)
    assert store.rescans.initial_scans("orders") == {"public.a": False}
    event = store.jobs.events("orders")[-1]
    assert (event.state, event.reason) == (
        "paused",
        "altered (asked for by ann): added public.a; set resolved, sink",
    )
    now = store.changefeeds.find("orders")
    assert now is not None
    assert seen is not None
    assert (now.feed_id, now.high_water) == (seen.feed_id, seen.high_water)
    assert main(["alter", "orders", "--unset", "resolved", "--drop", "public.a"]) == 0
    assert "resolved" not in definition(store)["written"]["options"]
    assert store.rescans.initial_scans("orders") == {}


def test_the_locality_of_the_job_follows_its_option(store: ProgressStore, capsys: Capture) -> None:
    capsys.readouterr()
    assert main(["alter", "orders", "--set", "execution_locality=region=eu", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["execution_locality"] == "region=eu"
    assert main(["resume", "orders"]) == 2
    assert "no node matches execution_locality 'region=eu'" in capsys.readouterr().err
    assert main(["alter", "orders", "--unset", "execution_locality"]) == 0
    assert main(["resume", "orders"]) == 0


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--set", "sink=drawer://desk"], "delivers to sink 'shelf', not 'drawer', and the type of a sink cannot"),
        (["--set", "resolvd=1s"], "does not know option 'resolvd'; did you mean 'resolved'?"),
        (["--set", "execution_locality=eu"], "'eu' is not a locality"),
        (["--set", "format=avro"], "avro"),
        (["--set", "cursor=0"], "'cursor' cannot be altered; create another job"),
        (["--set", "sink=shelf://user:hunter3@room"], "'sink' has a secret in plain text"),
        (["--set", "sink=shelf://user:${NOT_SET}@room"], "needs the environment variable 'NOT_SET'"),
        (["--drop", "public.countr"], "has no table 'public.countr'; did you mean 'public.counter'?"),
        (["--set", "diff=true", "--initial-scan"], "are about added tables"),
        (["a", "--set", "diff=true", "--store", "nodes"], "--store takes one name"),
    ],
)
def test_what_cannot_be_altered_is_refused(
    store: ProgressStore, arguments: list[str], told: str, capsys: Capture
) -> None:
    before, events = definition(store), len(store.jobs.events("orders"))
    capsys.readouterr()
    assert main(["alter", "orders", *arguments]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert told in line
    assert "hunter3" not in line
    assert definition(store) == before
    assert len(store.jobs.events("orders")) == events


def test_a_job_is_checked_before_it_is_altered(store: ProgressStore, file: Path, capsys: Capture) -> None:
    before = definition(store)
    (file.parent / "check").write_text("ConfigError table public.a does not exist")
    assert main(["alter", "orders", "--add", "public.a"]) == 2
    assert "table public.a does not exist" in capsys.readouterr().err
    assert definition(store) == before
    assert store.rescans.initial_scans("orders") == {}


def test_of_two_alterations_at_a_time_one_is_refused(
    store: ProgressStore, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(_feed: ResolvedChangefeed) -> None:
        redefine(store, definition(store) | {"format": "other"})

    monkeypatch.setattr(redefinition, "check_job", check)
    assert main(["alter", "orders", "--set", "resolved=1s", "--store", store.url]) == 2
    assert "job 'orders' has been changed meanwhile" in capsys.readouterr().err
    assert "resolved" not in definition(store)["written"]["options"]


def redefine(store: ProgressStore, to: dict[str, Any]) -> None:
    wanted = Pending(definition=to, locality=Locality(), initial_scans={}, why="somebody else")
    store.jobs.configure("orders", wanted, before=definition(store))


def test_a_running_job_continues_with_the_changes_after_its_step(store: ProgressStore, capsys: Capture) -> None:
    [one] = store.nodes.living()
    Changefeeds(store).resume("orders")
    assert store.claims.adopt("orders", one) is not None
    before = definition(store)
    capsys.readouterr()
    for change in (["--add", "public.a", "--no-initial-scan"], ["--add", "public.b"], ["--set", "resolved=1s"]):
        assert main(["alter", "orders", *change]) == 0
        assert "; node one finishes the running step before that\n" in capsys.readouterr().out
    assert definition(store) == before
    assert store.claims.settle("orders", one, "stopped") == "running"
    assert definition(store)["tables"] == ["public.counter", "public.a", "public.b"]
    assert definition(store)["written"]["options"]["resolved"] == "1s"
    assert store.rescans.initial_scans("orders") == {"public.a": False}


def test_a_job_that_an_error_has_stopped_runs_again_with_the_changes(store: ProgressStore, capsys: Capture) -> None:
    [one] = store.nodes.living()
    Changefeeds(store).resume("orders")
    assert store.claims.adopt("orders", one) is not None
    store.claims.settle("orders", one, "failed", "the sink is full")
    capsys.readouterr()
    assert main(["alter", "orders", "--set", "sink=shelf://hall", "--set", "execution_locality=region=eu"]) == 0
    assert capsys.readouterr().out.endswith(
        "; no node that matches it is alive, and the first one that starts runs it\n"
    )
    job = store.jobs.find("orders")
    assert job is not None
    assert (job.state, str(job.locality)) == ("running", "region=eu")


def test_tables_of_a_source_that_cannot_change_them_are_changed_before_the_job_begins(
    store: ProgressStore, file: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, changes_tables=False)
    assert main(["alter", "orders", "--add", "public.a"]) == 2
    assert "cannot change the tables of a changefeed that has begun" in capsys.readouterr().err
    file.write_text(file.read_text().replace("changefeed.orders", "changefeed.users"))
    assert main(["create", str(file)]) == 0
    assert main(["pause", "users"]) == 0
    assert main(["alter", "users", "--add", "public.a", "--no-initial-scan"]) == 2
    assert "job 'users' has not begun yet, and its option initial_scan is for all tables" in capsys.readouterr().err
    assert main(["alter", "users", "--add", "public.a"]) == 0
