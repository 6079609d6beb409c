"""How commands find their store and the job, and refuse what they do not find."""

from __future__ import annotations

from pathlib import Path

import pytest
from cdc_testing.command import Cdc
from cdc_testing.job_commands import created
from cdc_testing.scripted import CounterRangefeed
from cdc_testing.stored import DEFINITION

from cdc_core.errors import TerminalRangefeedError
from cdc_core.store.progress import ProgressStore, store_url


@pytest.mark.parametrize(
    "command",
    [
        *(["pause"], ["resume"], ["cancel", "--yes"], ["owner"], ["show"], ["alter"]),
        *(["check"], ["explain"], ["preview"], ["audit"]),
    ],
)
def test_an_unknown_job_is_refused(store: ProgressStore, command: list[str], cdc: Cdc) -> None:
    created(store)
    more = {"owner": ["bob"], "alter": ["--set", "diff=true"]}.get(command[0], [])
    told = cdc.sentence(*command, "order", *more)
    assert "'order'" in told
    assert "did you mean 'orders'?" in told


@pytest.mark.parametrize("command", [["show", "\udcff"], ["owner", "orders", "\udcff"], ["sql", "PAUSE JOB '\udcff'"]])
def test_an_argument_that_is_not_text_is_refused(store: ProgressStore, command: list[str], cdc: Cdc) -> None:
    created(store)
    assert cdc.sentence(*command) == r"'\udcff' is not Unicode text; write it in UTF-8"


@pytest.mark.parametrize(
    "command",
    [["create", "x.toml"], ["jobs"], ["pause", "x"], ["cancel", "x"], ["nodes"], ["drain", "x"], ["owner", "x", "y"]],
)
def test_a_store_must_be_named_and_none_is_created(
    command: list[str], file: Path, tmp_path: Path, cdc: Cdc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CDC_STORE", raising=False)
    command = [str(file) if word == "x.toml" else word for word in command]
    assert cdc.sentence(*command) == "no store is given; use --store DIR|URL, or set CDC_STORE"
    if command[0] != "create":
        assert "there is no progress store" in cdc.sentence(*command, "--store", tmp_path / "typo")
    assert not (tmp_path / "typo").exists()


def test_a_store_out_of_reach_exits_with_2_without_its_password(cdc: Cdc) -> None:
    told = cdc.sentence("jobs", "--store", "postgresql://cdc:swordfish@127.0.0.1:1/cdc")
    assert "progress store postgresql://cdc:***@127.0.0.1:1/cdc cannot be used" in told
    assert "swordfish" not in told


def test_a_file_is_still_a_file_with_a_store_in_the_environment(store: ProgressStore, file: Path, cdc: Cdc) -> None:
    created(store)
    beside = ProgressStore(store_url(file.parent / ".cdc"))
    beside.changefeeds.register("orders", DEFINITION)
    beside.claims.pause_run("orders", beside.changefeeds.begin_attempt("orders"), "a row was refused")
    assert "changefeed 'orders': paused" in cdc("show", file).out
    assert cdc.json("resume", file)["paused"] is None
    assert "is not a job, so no node adopts it" in cdc.sentence("resume", file, "--wait")
    assert "are for jobs" in cdc.sentence("alter", file, "--set", "diff=true")


def test_a_job_is_checked_by_its_name_and_told_the_commands_for_jobs(
    store: ProgressStore, file: Path, cdc: Cdc, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cdc("create", file).out

    def check(_rangefeed: CounterRangefeed) -> None:
        raise TerminalRangefeedError("its slot is lost. Use `cdc rescan FILE NAME --all --new-slot`")

    assert "sink     shelf shelf://room … ok" in cdc("check", "orders").out
    assert cdc("debug", "orders", "--no-connect").out.startswith("wrote cdc-debug-orders-")
    monkeypatch.setattr(CounterRangefeed, "check", check)
    assert "lost. Use `cdc rescan orders --all --new-slot`\n" in cdc("check", "orders", status=2).out
    assert "lost. Use `cdc rescan orders --all --new-slot`" in cdc.sentence("alter", "orders", "--set", "diff=true")
    assert f"lost. Use `cdc rescan {file} orders --all --new-slot`\n" in cdc("check", file, status=2).out


def test_a_job_is_named_without_its_file(store: ProgressStore, file: Path, cdc: Cdc) -> None:
    assert cdc("create", file).out
    for command in (["rescan", "--all"], ["alter", "--add", "t"], ["drop", "--yes"], ["replay-dead-letters"]):
        told = cdc.sentence(command[0], file, *command[1:], "--state", file.parent / "nodes")
        assert told == (
            "changefeed 'orders' is a job, whose definition is in the store; use --store DIR|URL orders"
            " instead of its file"
        )
