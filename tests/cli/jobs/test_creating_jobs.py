"""`cdc create`: what becomes a job, and what cannot."""

from __future__ import annotations

import json
import sys
from contextlib import closing
from pathlib import Path

import pytest
from cdc_testing.job_commands import as_json, created, done, ended, refused
from cdc_testing.stored import node, progress

from cdc_core.cli import run as run_module
from cdc_core.config.changefeed import Changefeed
from cdc_core.config.resolve import resolve
from cdc_core.config.toml_file import read_changefeed
from cdc_core.plugins.host import PluginHost
from cdc_core.store.progress import ProgressStore, store_url

Capture = pytest.CaptureFixture[str]


def test_a_changefeed_becomes_a_job(store: ProgressStore, file: Path, capsys: Capture) -> None:
    assert done(capsys, "create", str(file)) == (
        "job 'orders' is created, its owner is ann; no node that matches it is alive, and the first one that starts"
        " runs it\n"
    )
    found, known = store.find_job("orders"), store.find("orders")
    assert found is not None
    assert known is not None
    assert (found.state, found.owner) == ("running", "ann")
    assert "hunter2" not in json.dumps(known.definition)
    assert known.definition["written"]["source"] == "paper://user:${PAPER_PASSWORD}@desk/db"
    assert refused(capsys, "create", str(file)) == (
        "changefeed 'orders' is a job already (running); choose another name"
    )


def test_all_changefeeds_of_a_file_become_jobs_or_none(store: ProgressStore, file: Path, capsys: Capture) -> None:
    text = file.read_text()
    file.write_text(text + text.replace("orders", "users"))
    store.join(node("one"), lease_s=600)
    created(store, "users")
    assert "changefeed 'users' is a job already" in refused(capsys, "create", str(file))
    assert store.find_job("orders") is None
    ended(store, "succeeded", "users")
    assert done(capsys, "create", str(file), "--owner", "bob").splitlines() == [
        "job 'orders' is created, its owner is bob; a node will adopt it",
        "job 'users' is created, its owner is bob; a node will adopt it",
    ]


def test_a_pipeline_that_a_package_publishes_becomes_a_job(
    store: ProgressStore, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"control": str(tmp_path), "execution_locality": "region=eu"}
    orders = Changefeed(name="orders", source="paper://desk/db", tables=("t",), sink="shelf://room", options=options)
    monkeypatch.setattr(run_module, "pipeline_names", lambda: ["orders"])
    monkeypatch.setattr(run_module, "pipeline", lambda _name: orders)
    assert "no node matches execution_locality 'region=eu': no node is alive" in refused(capsys, "create", "orders")
    store.join(node("one", "region=eu"), lease_s=600)
    assert as_json(capsys, "create", "orders")["execution_locality"] == "region=eu"


def test_what_cannot_be_a_job_is_refused_and_nothing_is_created(
    store: ProgressStore, file: Path, capsys: Capture
) -> None:
    whole = file.read_text()
    file.write_text(whole.replace("${PAPER_PASSWORD}", "hunter2"))
    assert refused(capsys, "create", str(file)) == (
        "changefeed 'orders': 'source' has a secret in plain text, which the store does not keep; write it as"
        " ${VARIABLE} or ${file:PATH}, which is resolved on the node"
    )
    file.write_text(whole)
    (file.parent / "check").write_text("ConfigError table public.counter does not exist")
    assert refused(capsys, "create", str(file)) == "table public.counter does not exist"
    assert "is not a name of an owner" in refused(capsys, "create", str(file), "--owner", " ")
    assert store.find("orders") is None
    assert done(capsys, "create", str(file), "--no-check", "--owner", "bob")


def test_a_changefeed_that_cdc_run_left_is_continued_when_its_run_has_ended(
    store: ProgressStore, file: Path, capsys: Capture
) -> None:
    assert done(capsys, "create", str(file))
    whole = store.find("orders")
    assert whole is not None
    store.forget("orders")
    first = store.register("orders", whole.definition)
    epoch = store.begin_attempt("orders")
    store.save("orders", epoch, progress())
    store.save_status("orders", epoch, {"phase": "running", "host": "here", "pid": 7})
    assert refused(capsys, "create", str(file)) == (
        "changefeed 'orders' is running on here (process 7), by `cdc run`; stop it first, or wait half a minute if it"
        " was killed"
    )
    store.save_status("orders", epoch, {"phase": "stopped"})
    assert done(capsys, "create", str(file))
    known = store.find("orders")
    assert known is not None
    assert known.feed_id == first.feed_id
    assert store.load("orders") is not None


@pytest.mark.parametrize("more", [[], ["--no-check"]])
def test_a_changefeed_that_cdc_run_left_in_another_store_is_refused(
    more: list[str], store: ProgressStore, file: Path, capsys: Capture
) -> None:
    with closing(ProgressStore(store_url(file.parent / ".cdc"))) as own:
        own.open()
        own.register("orders", resolve(read_changefeed(file, None), PluginHost.load()).definition())
        assert done(capsys, "create", str(file), *more)  # its run never began
        store.forget("orders")
        own.save("orders", own.begin_attempt("orders"), progress())
        assert refused(capsys, "create", str(file), *more) == (
            f"changefeed 'orders' has begun with the progress store {own.shown}, and a job in {store.shown} would not"
            f" continue it; create the job with --store {file.parent}/.cdc, or run `cdc drop {file} orders` first, to"
            " deliver all rows again, or use another name"
        )
        assert store.find("orders") is None
        assert done(capsys, "create", str(file), *more, "--store", ".cdc")
        assert own.find_job("orders") is not None
        assert own.load("orders") is not None


def test_a_job_is_refused_by_run_before_spark_starts(
    store: ProgressStore, file: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    done(capsys, "create", str(file))
    monkeypatch.setitem(sys.modules, "cdc_core.spark.runner", None)  # its import would fail
    assert refused(capsys, "run", str(file), "--state", store.url) == (
        "changefeed 'orders' is a job, which nodes run (running); see `cdc show orders`, or choose another name"
    )
