"""`--store`: a changefeed by the definition in the progress store, without its file."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cdc_testing.command import Cdc
from cdc_testing.components import encoder, plugin, rangefeed, sink, source_of

from cdc_core.cli.main import main
from cdc_core.plugins.host import PluginHost
from cdc_core.store.progress import ProgressStore, sqlite_file, store_url

Run = Callable[..., int]


@pytest.fixture
def got(engine: Callable[[Run], None]) -> dict[str, Any]:
    """What the engine gets; it registers the changefeed, as the real one does."""
    got: dict[str, Any] = {}

    def run(feed: Any, **rest: Any) -> int:
        rest["store"].changefeeds.register(feed.name, feed.definition())
        got.update(rest, feed=feed)
        return 0

    engine(run)
    return got


@pytest.fixture
def store(file: Path, tmp_path: Path, got: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> ProgressStore:
    """A store with a changefeed that was run from its file; the file is gone, and the directory is another one."""
    monkeypatch.setenv("PAPER_PASSWORD", "hunter2")
    file.write_text(file.read_text().replace("hunter2", "${PAPER_PASSWORD}"))
    store = ProgressStore(store_url(tmp_path / "kept"))
    assert main(["run", str(file), "--state", str(tmp_path / "kept")]) == 0
    file.unlink()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return store


def test_a_changefeed_runs_without_its_file(store: ProgressStore, tmp_path: Path, got: dict[str, Any]) -> None:
    first = got["feed"]
    assert main(["run", "--store", store.url, "orders", "--once"]) == 0
    assert got["feed"] == first
    assert (got["once"], got["store"].url) == (True, store.url)
    assert got["state_dir"] == tmp_path / "elsewhere" / ".cdc"
    assert got["resume_command"] == f"cdc resume orders --store {store.url}"


def test_the_store_may_be_given_as_its_directory(store: ProgressStore, tmp_path: Path, got: dict[str, Any]) -> None:
    assert main(["run", "--store", "../kept", "orders"]) == 0
    assert got["state_dir"].resolve() == tmp_path / "kept"
    assert got["store"].progress.load("orders") is None


def test_a_run_from_the_store_leaves_the_definition_as_it_was(store: ProgressStore, got: dict[str, Any]) -> None:
    before = store.changefeeds.find("orders")
    assert main(["run", "--store", store.url, "orders"]) == 0
    assert store.changefeeds.find("orders") == before


def test_other_versions_of_plugins_are_one_warning(
    store: ProgressStore, monkeypatch: pytest.MonkeyPatch, cdc: Cdc, got: dict[str, Any]
) -> None:
    parts = plugin(
        rangefeed(options="cdc_testing.scripted:CounterOptions"),
        encoder(),
        sink(options="cdc_testing.scripted:JournalOptions"),
    )
    newer = PluginHost([source_of(parts, "cdc-paper", "2.0")])
    monkeypatch.setattr(PluginHost, "load", lambda: newer)
    told = [line for line in cdc("run", "--store", store.url, "orders").err.splitlines() if "WARNING" in line]
    assert len(told) == 1
    assert "changefeed 'orders' runs with different plugin versions than before: cdc-paper 2.0 (before: 1.0)" in told[0]
    assert "WARNING" not in cdc("run", "--store", store.url, "orders").err


def test_a_plugin_that_is_missing_exits_with_2(store: ProgressStore, monkeypatch: pytest.MonkeyPatch, cdc: Cdc) -> None:
    fewer = PluginHost([source_of(plugin(rangefeed(options="cdc_testing.scripted:CounterOptions"), encoder()), "x")])
    monkeypatch.setattr(PluginHost, "load", lambda: fewer)
    assert "there is no sink for URIs that begin with 'shelf://'" in cdc.refused("run", "--store", store.url, "orders")


def test_a_secret_that_is_missing_exits_with_2(store: ProgressStore, monkeypatch: pytest.MonkeyPatch, cdc: Cdc) -> None:
    monkeypatch.delenv("PAPER_PASSWORD")
    assert cdc.refused("run", "--store", store.url, "orders") == (
        f"error: the progress store {sqlite_file(store.url)}: changefeed 'orders', source needs the environment"
        " variable 'PAPER_PASSWORD', which is not set\n"
    )


def test_a_secret_in_plain_text_is_not_kept_and_exits_with_2(
    file: Path, tmp_path: Path, got: dict[str, Any], capsys: pytest.CaptureFixture[str], cdc: Cdc
) -> None:
    assert main(["run", str(file), "--state", str(tmp_path / "kept")]) == 0
    with sqlite3.connect(tmp_path / "kept" / "progress.sqlite") as connection:
        assert "hunter2" not in "\n".join(connection.iterdump())
    connection.close()
    capsys.readouterr()
    assert cdc.refused("run", "--store", tmp_path / "kept", "orders") == (
        f"error: changefeed 'orders' cannot run from the progress store {tmp_path}/kept/progress.sqlite: 'source' had a"
        " secret in plain text, which the store does not keep; write it as ${VARIABLE} or ${file:PATH} in the"
        " changefeed's file, and run once from the file\n"
    )


def test_a_definition_of_an_older_version_exits_with_2(
    store: ProgressStore, capsys: pytest.CaptureFixture[str]
) -> None:
    with sqlite3.connect(str(sqlite_file(store.url))) as connection:
        old = {"source": "paper://x", "tables": ["t"], "sink": "shelf://x", "format": "json"}
        connection.execute("UPDATE cdc_changefeeds SET definition = ?", [json.dumps(old)])
    connection.close()
    assert main(["run", "--store", store.url, "orders"]) == 2
    assert "which an older version of cdc-core wrote; run it once from its file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["orders", "--state", "x"], "--store and --state cannot be used together; remove --state"),
        (["../shop.toml", "--state", "x"], "--store and --state cannot be used together; remove --state"),
        (
            ["orders", "users"],
            "--store takes one changefeed name, but 'users' is a second name; write `--store DIR|URL NAME`",
        ),
        (["order"], "/progress.sqlite; did you mean 'orders'?"),
    ],
)
@pytest.mark.parametrize("command", ["run", "resume"])
def test_wrong_usage_exits_with_2(
    store: ProgressStore, arguments: list[str], complaint: str, command: str, cdc: Cdc
) -> None:
    assert complaint in cdc.refused(command, "--store", store.url, *arguments)


@pytest.mark.parametrize("path", ["shop.toml", "./shop.toml", "./shop"])
@pytest.mark.parametrize("is_first", [True, False])
def test_the_store_of_a_file_is_named_by_the_same_option(
    path: str, is_first: bool, store: ProgressStore, got: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    definition = 'source = "paper://desk"\ntables = ["public.counter"]\nsink = "shelf://room"\noptions.control = "."\n'
    Path(path).write_text(f"[changefeed.users]\n{definition}[changefeed.orders]\n{definition}")

    def done(command: str, *arguments: str) -> str:
        words = ["--store", store.url, path] if is_first else [path, "--store", store.url]
        assert main([command, *words, *arguments]) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    done("run", "users")
    assert (got["feed"].name, got["store"].url) == ("users", store.url)
    assert got["resume_command"] == f"cdc resume {path} users --state {store.url}"
    assert "changefeed 'users': has never run" in done("show", "users")
    assert "changefeed 'users' is removed" in done("drop", "users", "--forget-only", "--yes")
    assert store.changefeeds.find("users") is None
    assert store.changefeeds.find("orders") is not None


def test_a_name_is_that_of_a_changefeed_in_the_store_even_beside_a_file_of_that_name(
    store: ProgressStore, got: dict[str, Any]
) -> None:
    Path("orders").write_text("no TOML")
    assert main(["run", "orders", "--store", store.url]) == 0
    assert got["feed"].name == "orders"


@pytest.mark.parametrize("command", ["explain", "preview", "watch"])
def test_a_file_needs_no_store_where_no_progress_is_read(
    store: ProgressStore, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "shop.toml", "--store", store.url]) == 2
    assert (
        "'shop.toml' is a file, and this command does not use its progress, so --store has no effect; remove --store"
        in capsys.readouterr().err
    )


def test_no_store_is_created(tmp_path: Path, cdc: Cdc) -> None:
    assert "there is no progress store" in cdc.refused("run", "--store", tmp_path / "typo", "orders")
    assert not (tmp_path / "typo").exists()
    for mistake in ("host=db user=cdc password=hunter2", "postgresql:cdc:hunter2@db/cdc"):
        said = cdc.refused("run", "--store", mistake, "orders")
        assert "a directory or a URL; write postgresql://USER" in said
        assert "hunter2" not in said


def test_a_changefeed_of_the_store_is_checked(store: ProgressStore, cdc: Cdc) -> None:
    shown = cdc("check", "--store", store.url, "orders").out
    assert "changefeed 'orders'\n  source   paper paper://user:***@desk/db … ok" in shown


def test_the_dead_letters_of_a_changefeed_of_the_store_are_listed(
    store: ProgressStore, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay-dead-letters", "--store", store.url, "orders", "--list"]) == 0
    assert capsys.readouterr().out == "changefeed 'orders' has no dead letters\n"
