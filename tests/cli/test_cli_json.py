"""With `--json`, a command prints one JSON document and nothing else. What prevents an answer is a line on stderr."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cdc_testing.command import Cdc
from cdc_testing.job_commands import created
from cdc_testing.scripted import Script

from cdc_core.cli import explain as explain_module
from cdc_core.cli.main import main
from cdc_core.store.progress import ProgressStore, store_url

Capture = pytest.CaptureFixture[str]


def document(capsys: Capture, *arguments: str, status: int = 0) -> Any:
    """Return what a command printed with --json."""
    assert main([*arguments, "--json"]) == status
    return json.loads(capsys.readouterr().out)


def test_check_has_a_report_for_each_changefeed(file: Path, capsys: Capture) -> None:
    with file.open("a") as toml:
        toml.write('resolved = "1s"\nmin_checkpoint_frequency = "1m"\n')
        toml.write(
            '\n[changefeed.other]\nsource = "paper://desk"\ntables = ["public.counter"]\nsink = "shelf://room"\n'
            f'[changefeed.other.options]\ncontrol = "{file.parent}"\n'
        )
    orders, other = document(capsys, "check", str(file))
    assert (orders["name"], orders["ok"], other["name"]) == ("orders", True, "other")
    source, encoder, sink = orders["parts"]
    assert source == {
        "part": "source",
        "what": "paper paper://user:***@desk/db",
        "ok": True,
        "error": None,
        "details": ["public.counter: 2 columns, key id"],
        "notes": [],
    }
    assert (encoder["part"], encoder["what"], encoder["details"]) == ("encoder", "json", [])
    assert sink["notes"][0].startswith("resolved timestamps are at least 1m apart")


def test_check_has_each_error_and_what_was_not_checked(file: Path, capsys: Capture) -> None:
    Script(file.parent).order("check", "ConfigError wal_level is not 'logical' for hunter2")
    text = file.read_text().replace('tables = ["public.counter"]', 'query = "SELECT id FROM public.counter"')
    file.write_text(f'{text}execution_locality = "region=eu"\n[changefeed.orders.spark]\nmaster = "spark://a:7077"\n')
    [orders] = document(capsys, "check", str(file), status=2)
    assert not orders["ok"]
    parts = {part["part"]: part for part in orders["parts"]}
    assert list(parts) == ["source", "query", "encoder", "sink", "locality", "host", "cluster"]
    assert "passwords of source and sink would cross the network in plain text" in parts["host"]["error"]
    assert (parts["source"]["ok"], parts["source"]["error"]) == (False, "wal_level is not 'logical' for ***")
    assert (parts["query"]["ok"], parts["query"]["error"]) == (None, None)
    assert parts["query"]["details"] == ["not checked, because the source did not report its columns"]
    assert parts["locality"]["ok"], "executors have localities of their own"
    assert parts["cluster"]["ok"] is None


def test_plugins_and_options_are_objects(capsys: Capture) -> None:
    paper = next(each for each in document(capsys, "plugins") if each["kind"] == "rangefeed")
    assert paper == {
        "kind": "rangefeed",
        "name": "paper",
        "schemes": ["paper"],
        "distribution": "cdc-paper",
        "version": "1.0",
        "summary": paper["summary"],
        "problem": "",
    }
    kinds = {each["kind"] for each in document(capsys, "plugins")}
    assert kinds == {"rangefeed", "encoder", "sink", "command"}
    options = {each["name"]: each for each in document(capsys, "options", "source", "paper")}
    assert options["rows_per_step"] == {
        "name": "rows_per_step",
        "type": "integer",
        "default": "1000",
        "doc": "Numbers a step.",
        "secret": False,
    }


def test_explain_has_an_object_for_each_table(file: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explain_module, "plans_of", lambda _feed, schemas: {schemas[0].name: ["Project [id]"]})
    file.write_text(file.read_text().replace('tables = ["public.counter"]', 'query = "SELECT id FROM counter"'))
    [table] = document(capsys, "explain", str(file))
    sections = table.pop("sections")
    assert table == {"table": "public.counter", "whole_rows": False, "plans": ["Project [id]"]}
    assert sections[0] == {"title": "columns that a scan reads, 1 of 2 columns", "lines": ["id"]}


@pytest.mark.parametrize(
    "command",
    [
        ["check", "shop.toml"],
        ["preview", "shop.toml"],
        ["explain", "shop.toml"],
        ["options", "sink", "shelv"],
        ["preview", "nope.toml"],
    ],
)
def test_what_prevents_an_answer_is_one_line_on_stderr(file: Path, cdc: Cdc, command: list[str]) -> None:
    file.write_text(file.read_text().replace("[changefeed.orders.options]", "[changefeed.orders.options]\nupdatd = 1"))
    shown = cdc(*command, "--json", status=2)
    assert shown.out == ""
    assert len(shown.err.splitlines()) == 1
    assert shown.err.startswith("error: ")


@pytest.mark.parametrize("secret", ["1", "true", "part", 'pä"ss'])
def test_a_secret_is_masked_in_texts_and_breaks_no_document(
    file: Path, capsys: Capture, secret: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", secret)
    file.write_text(file.read_text().replace("hunter2", "${SECRET}"))
    Script(file.parent).order("check", f"ConfigError password {secret} is wrong")
    [orders] = document(capsys, "check", str(file), status=2)
    assert orders["parts"][0]["error"] == "password *** is wrong"


def test_a_job_is_masked_before_it_becomes_json(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A password of the store's URL may be any number, also that of an epoch."""
    store = ProgressStore(store_url(tmp_path / "store"))
    created(store)
    monkeypatch.setattr("cdc_core.cli.session.uri_secrets", lambda _url: frozenset({"1"}))
    given = ["--store", str(tmp_path / "store")]
    assert document(capsys, "pause", "orders", "--reason", "1 of 1", *given)["reason"] == "*** of ***"
    assert document(capsys, "jobs", *given)["epoch"] == 1
    shown = document(capsys, "show", "orders", *given)
    assert (shown["job"]["reason"], shown["epoch"]) == ("*** of ***", 1)
    assert document(capsys, "nodes", *given)["pid"] == 1
    assert document(capsys, "drain", "one", *given)["max_jobs"] == 9
    store.close()
