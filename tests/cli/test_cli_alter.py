"""`cdc alter`: what it asks for, and what it says. What the change does is tested with `Changefeeds.alter`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from cdc_testing.command import Cdc
from cdc_testing.components import encoder, host, rangefeed, sink
from cdc_testing.stored import dropped, node

from cdc_core.cli.located import find_changefeed
from cdc_core.cli.main import main
from cdc_core.config.resolve import resolve
from cdc_core.locality import Locality
from cdc_core.plugins.host import PluginHost
from cdc_core.store.progress import Progress, ProgressStore, store_url

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    scripted = host(
        rangefeed(options="cdc_testing.scripted:CounterOptions", changes_tables=True),
        encoder(),
        sink(options="cdc_testing.scripted:JournalOptions"),
    )
    monkeypatch.setattr(PluginHost, "load", lambda: scripted)
    monkeypatch.setenv("PAPER_PASSWORD", "hunter2")
    monkeypatch.setenv("LOGNAME", "ann")


@pytest.fixture
def store(file: Path) -> ProgressStore:
    """A store with a changefeed that was run from its file."""
    file.write_text(file.read_text().replace("hunter2", "${PAPER_PASSWORD}"))
    store = ProgressStore(store_url(file.parent / ".cdc"))
    changefeed, _ = find_changefeed(str(file), None)
    store.changefeeds.register("orders", resolve(changefeed, PluginHost.load()).definition())
    store.progress.save("orders", store.changefeeds.begin_attempt("orders"), Progress(token={"n": 7}))
    return store


def kept(store: ProgressStore) -> tuple[list[str], Mapping[str, bool]]:
    """Return the tables that the store has, and what was chosen about their scans."""
    found = store.changefeeds.find("orders")
    assert found is not None
    return found.definition["tables"], store.rescans.initial_scans("orders")


def test_tables_are_changed_by_the_name_of_the_changefeed(store: ProgressStore, capsys: Capture) -> None:
    arguments = ["--add", "public.a", "--add", "${b", "--drop", "public.counter", "--no-initial-scan"]
    assert main(["alter", "--store", store.url, "orders", *arguments]) == 0
    assert capsys.readouterr().out == "changefeed 'orders': from the next run on, its tables are public.a, ${b\n"
    assert kept(store) == (["public.a", "${b"], {"public.a": False, "${b": False})


def test_a_file_that_lists_other_tables_is_named(file: Path, store: ProgressStore, capsys: Capture, cdc: Cdc) -> None:
    assert main(["alter", str(file), "--add", "public.a"]) == 0
    assert kept(store) == (["public.counter", "public.a"], {})
    assert f"{file} lists other tables: change 'tables' there too" in capsys.readouterr().out
    file.write_text(file.read_text().replace('["public.counter"]', '["public.counter", "public.a", "public.b"]'))
    assert "lists other tables" not in cdc("alter", file, "--add", "public.b").out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "nothing to alter; name tables to add or drop"),
        (["--drop", "public.counter"], "no table would be left; to end the changefeed, use `cdc drop`"),
        (["--drop", "public.counter", "--initial-scan"], "--no-initial-scan require --add"),
        (["--set", "diff=true"], "are for jobs; the options of other changefeeds are in their files"),
    ],
)
def test_what_cannot_be_changed_is_refused(
    file: Path, store: ProgressStore, cdc: Cdc, arguments: list[str], told: str
) -> None:
    before = kept(store)
    assert told in cdc.refused("alter", file, *arguments)
    assert kept(store) == before


def test_a_job_is_altered_by_its_name(
    store: ProgressStore, file: Path, capsys: Capture, cdc: Cdc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CDC_STORE", store.url)
    assert main(["alter", str(file), "--add", "public.a"]) == 0
    feed = resolve(find_changefeed(str(file), None)[0], PluginHost.load())
    dropped(store, "orders")
    store.jobs.create("orders", feed.definition(), owner="ann", locality=Locality(), paused_for="pause")
    capsys.readouterr()
    change = ["--add", "public.b", "--no-initial-scan"]
    assert "is a job, whose definition is in the store; use --store" in cdc.refused("alter", file, *change)
    assert "--store takes one changefeed name" in cdc.refused("alter", "orders", "a", *change, "--store", store.url)
    assert cdc("alter", "orders", "--add", "public.b", "--set", "resolved=10s").out == (
        "job 'orders' is altered: added public.b; set resolved; continue it with `cdc resume orders`\n"
        "its tables are public.counter, public.b\n"
    )
    assert cdc("alter", "orders", "--set", "resolved=10s").out == (
        "job 'orders' is unchanged: this change was already made: set resolved; continue it with `cdc resume orders`\n"
    )
    assert main(["alter", "orders", "--set", "execution_locality=region=eu", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["execution_locality"] == "region=eu"
    assert main(["alter", "orders", "--unset", "execution_locality"]) == 0
    cdc("resume", "orders")
    assert cdc("alter", "orders", "--unset", "resolved").out.endswith(
        "; no matching node is alive; the first one to start will run it\n"
    )
    one = store.nodes.join(node("one"), lease_s=600)
    assert store.claims.adopt("orders", one) is not None
    assert "; node one finishes the running step first\n" in cdc("alter", "orders", "--drop", "public.b").out
