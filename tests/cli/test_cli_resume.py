"""`cdc resume`: which changefeed, where its progress is, and what it says when there is nothing to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cdc_testing.command import Cdc

from cdc_core.cli.main import main
from cdc_core.store.progress import ProgressStore, store_url

Run = Callable[..., int]


def paused(store: ProgressStore, name: str = "orders", *, reason: str = "a row was refused") -> ProgressStore:
    """Return *store* with a changefeed in it that is paused."""
    store.changefeeds.register(name, {"source": "paper://x", "tables": ["t"], "sink": "shelf://x", "format": "json"})
    store.claims.pause_run(name, store.changefeeds.begin_attempt(name), reason)
    return store


def is_paused(store: ProgressStore, name: str = "orders") -> bool:
    feed = store.changefeeds.find(name)
    assert feed is not None
    return feed.paused is not None


@pytest.fixture
def store(file: Path) -> ProgressStore:
    return paused(ProgressStore(store_url(file.parent / ".cdc")))


def test_a_paused_changefeed_is_resumed(file: Path, store: ProgressStore, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["resume", str(file)]) == 0
    assert not is_paused(store)
    assert capsys.readouterr().out == (
        "changefeed 'orders' is resumed: a waiting run continues now; otherwise start one with `cdc run`\n"
    )


def test_to_resume_it_twice_is_no_failure(file: Path, store: ProgressStore, cdc: Cdc) -> None:
    store.claims.resume_run("orders")
    assert cdc("resume", file, "orders").out == "changefeed 'orders' is not paused\n"


def test_a_pause_is_undone_before_it_took_effect(store: ProgressStore, cdc: Cdc) -> None:
    there = ["orders", "--store", store.url]
    cdc("resume", *there)
    store.statuses.save("orders", 1, {"phase": "running"})
    cdc("pause", *there)
    assert cdc("resume", *there).out == (
        "changefeed 'orders' is resumed: a running changefeed continues after its step; otherwise start one with"
        " `cdc run`\n"
    )
    assert not is_paused(store)


def test_what_no_job_runs_is_paused_and_resumed_by_its_name_too(store: ProgressStore, cdc: Cdc) -> None:
    there = ["orders", "--store", store.url]
    cdc("resume", *there)
    assert cdc("pause", *there, "--reason", "lunch", "--wait").out == "changefeed 'orders' is paused\n"
    assert is_paused(store)
    told = cdc("sql", "--store", store.url, "RESUME JOB orders; PAUSE JOB orders; RESUME JOB orders")
    assert not is_paused(store)
    assert "changefeed 'orders' is resumed: a waiting run continues now" in told.err


@pytest.mark.parametrize("url", [False, True], ids=["directory", "URL"])
def test_its_progress_may_be_elsewhere(file: Path, tmp_path: Path, url: bool) -> None:
    store = paused(ProgressStore(store_url(tmp_path / "state")))
    assert main(["resume", str(file), "--state", store.url if url else str(tmp_path / "state")]) == 0
    assert not is_paused(store)


@pytest.mark.parametrize("url", [False, True], ids=["directory", "URL"])
def test_without_a_store_it_is_not_known_and_none_is_created(file: Path, tmp_path: Path, cdc: Cdc, url: bool) -> None:
    state = tmp_path / "typo"
    assert cdc.refused("resume", file, "--state", store_url(state) if url else state) == (
        f"error: changefeed 'orders' is not known: there is no progress store '{state}/progress.sqlite'; name"
        " its progress store with --state\n"
    )
    assert not state.exists()


def test_one_that_never_ran_is_not_known(file: Path, tmp_path: Path, cdc: Cdc) -> None:
    paused(ProgressStore(store_url(tmp_path / "state")), "customers")
    assert cdc.refused("resume", file, "--state", tmp_path / "state") == (
        f"error: changefeed 'orders' is not in the progress store {tmp_path}/state/progress.sqlite; known: customers\n"
    )


def test_a_name_that_the_file_does_not_have_exits_with_2(file: Path, cdc: Cdc) -> None:
    assert "has no changefeed 'order'; did you mean 'orders'?" in cdc.refused("resume", file, "order")


def test_what_the_changefeed_refers_to_need_not_be_there(file: Path, store: ProgressStore) -> None:
    file.write_text(file.read_text().replace("hunter2", "${NOT_SET}").replace("paper://", "unheard-of://"))
    assert main(["resume", str(file)]) == 0
    assert not is_paused(store)


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        ([], "cdc resume {file}"),
        (["orders", "--state", "a b"], "cdc resume {file} orders --state 'a b'"),
        (["--state", "sqlite:///{file}.hunter2"], "cdc resume {file} --state sqlite:///{file}.***"),
    ],
)
def test_a_run_is_told_the_command_that_resumes_it(
    file: Path, engine: Callable[[Run], None], monkeypatch: pytest.MonkeyPatch, arguments: list[str], command: str
) -> None:
    monkeypatch.chdir(file.parent)
    got: dict[str, Any] = {}
    engine(lambda _job, **rest: got.update(rest) or 0)
    assert main(["run", str(file), *(argument.format(file=file) for argument in arguments)]) == 0
    assert got["resume_command"] == command.format(file=file)
