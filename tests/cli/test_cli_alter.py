"""`cdc alter`: the tables of the definition in the store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cdc_testing.components import encoder, host, rangefeed, sink

from cdc_core.cli.alter import _with_tables as with_tables
from cdc_core.cli.main import main
from cdc_core.cli.run import find_changefeed
from cdc_core.config.resolve import resolve
from cdc_core.engine.fencing import RunLock
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


@pytest.fixture
def store(file: Path, monkeypatch: pytest.MonkeyPatch) -> ProgressStore:
    """A store with a changefeed that was run from its file."""
    monkeypatch.setenv("PAPER_PASSWORD", "hunter2")
    file.write_text(file.read_text().replace("hunter2", "${PAPER_PASSWORD}"))
    store = ProgressStore(store_url(file.parent / ".cdc"))
    changefeed, _ = find_changefeed(str(file), None)
    store.changefeeds.register("orders", resolve(changefeed, PluginHost.load()).definition())
    store.progress.save("orders", store.changefeeds.begin_attempt("orders"), Progress(token={"n": 7}))
    return store


def definition(store: ProgressStore) -> dict[str, Any]:
    found = store.changefeeds.find("orders")
    assert found is not None
    return dict(found.definition)


def test_tables_are_added_and_dropped_in_the_store(file: Path, store: ProgressStore, capsys: Capture) -> None:
    before = definition(store)
    assert (
        main(["alter", "--store", store.url, "orders", "--add", "public.a", "--add", "${b", "--no-initial-scan"]) == 0
    )
    tables = ["public.counter", "public.a", "${b"]
    assert capsys.readouterr().out == (
        "changefeed 'orders' has the tables public.counter, public.a, ${b from its next run on\n"
    )
    after = definition(store)
    assert after["tables"] == tables
    assert after["written"] == {**before["written"], "tables": ["public.counter", "public.a", "$${b"]}
    assert "hunter2" not in json.dumps(after)
    assert store.rescans.initial_scans("orders") == {"public.a": False, "${b": False}
    arguments = ["--add", "c", "--drop", "public.a", "--initial-scan"]
    assert main(["alter", "--store", store.url, "orders", *arguments]) == 0
    assert definition(store)["tables"] == ["public.counter", "${b", "c"]
    assert store.rescans.initial_scans("orders") == {"${b": False, "c": True}


def test_a_file_that_lists_other_tables_is_named(file: Path, store: ProgressStore, capsys: Capture) -> None:
    assert main(["alter", str(file), "--add", "public.a"]) == 0
    assert definition(store)["tables"] == ["public.counter", "public.a"]
    assert store.rescans.initial_scans("orders") == {}
    assert f"{file} lists others: change 'tables' there too" in capsys.readouterr().out
    file.write_text(file.read_text().replace('["public.counter"]', '["public.counter", "public.a", "public.b"]'))
    assert main(["alter", str(file), "--add", "public.b"]) == 0
    assert "lists others" not in capsys.readouterr().out


def test_the_last_table_with_a_hash_takes_the_key_with_it(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASK_KEY", "a-key-of-many-characters")
    text = file.read_text().replace('["public.counter"]', '["public.counter", "public.users"]')
    options = "[changefeed.orders.options]"
    assert options in text
    section = '[changefeed.orders.table."public.users"]\nmask = { email = "hash" }\n'
    file.write_text(text.replace(options, f'{section}{options}\nmask_key = "${{MASK_KEY}}"'))
    changefeed, _ = find_changefeed(str(file), None)
    plugins_ = PluginHost.load()
    before, kept = resolve(changefeed, plugins_).definition(), ["public.counter"]
    altered = with_tables(changefeed, changefeed.tables, kept)
    after = resolve(altered, plugins_).definition()
    assert (before["written"]["options"]["mask_key"], after["tables"]) == ("${MASK_KEY}", kept)
    assert "mask_key" not in after["written"]["options"]
    assert "selections" not in after
    both = resolve(with_tables(changefeed, changefeed.tables, [*changefeed.tables, "c"]), plugins_).definition()
    assert both["written"]["options"] == before["written"]["options"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "name the tables to add or to drop"),
        (["--drop", "public.countr"], "has no table 'public.countr'; did you mean 'public.counter'?"),
        (["--add", "public.counter"], "has the table 'public.counter' already"),
        (["--drop", "public.counter"], "no table would be left; to end the changefeed, use `cdc drop`"),
        (["--drop", "public.counter", "--initial-scan"], "are about added tables; name them with --add"),
    ],
)
def test_what_cannot_be_changed_is_refused(
    file: Path, store: ProgressStore, capsys: Capture, arguments: list[str], told: str
) -> None:
    before = definition(store)
    assert main(["alter", str(file), *arguments]) == 2
    assert told in capsys.readouterr().err
    assert definition(store) == before


def test_a_running_changefeed_is_not_changed(file: Path, store: ProgressStore, capsys: Capture) -> None:
    before = definition(store)
    with RunLock(file.parent / ".cdc" / "orders.lock") as lock:
        assert lock.acquire()
        assert main(["alter", str(file), "--add", "public.a"]) == 2
    assert "changefeed 'orders' is running from" in capsys.readouterr().err
    assert definition(store) == before


def test_a_source_that_cannot_change_tables_says_so(
    file: Path, store: ProgressStore, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted = host(
        rangefeed(options="cdc_testing.scripted:CounterOptions"),
        encoder(),
        sink(options="cdc_testing.scripted:JournalOptions"),
    )
    monkeypatch.setattr(PluginHost, "load", lambda: scripted)
    assert main(["alter", str(file), "--add", "public.a"]) == 2
    assert "cannot change the tables of a changefeed that has begun" in capsys.readouterr().err


def test_a_table_that_the_source_refuses_changes_nothing(file: Path, store: ProgressStore, capsys: Capture) -> None:
    before = definition(store)
    (file.parent / "check").write_text("ConfigError table public.a does not exist")
    assert main(["alter", str(file), "--add", "public.a"]) == 2
    assert "table public.a does not exist" in capsys.readouterr().err
    assert definition(store) == before
    assert store.rescans.initial_scans("orders") == {}
