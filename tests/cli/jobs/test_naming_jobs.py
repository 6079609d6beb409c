"""How commands find their store and the job, and refuse what they do not find."""

from __future__ import annotations

from pathlib import Path

import pytest
from cdc_testing.command import Cdc
from cdc_testing.job_commands import as_json, created, done, refused
from cdc_testing.scripted import CounterRangefeed
from cdc_testing.stored import DEFINITION

from cdc_core.errors import TerminalRangefeedError
from cdc_core.store.progress import ProgressStore, store_url

Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    "command",
    [
        *(["pause"], ["resume"], ["cancel", "--yes"], ["owner"], ["show"], ["alter"]),
        *(["check"], ["explain"], ["preview"], ["audit"]),
    ],
)
def test_an_unknown_job_is_refused(store: ProgressStore, command: list[str], capsys: Capture) -> None:
    created(store)
    more = {"owner": ["bob"], "alter": ["--set", "diff=true"]}.get(command[0], [])
    told = refused(capsys, *command, "order", *more)
    assert "'order'" in told
    assert "did you mean 'orders'?" in told


@pytest.mark.parametrize(
    "command",
    [["create", "x.toml"], ["jobs"], ["pause", "x"], ["cancel", "x"], ["nodes"], ["drain", "x"], ["owner", "x", "y"]],
)
def test_a_store_must_be_named_and_none_is_created(
    command: list[str], file: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CDC_STORE", raising=False)
    command = [str(file) if word == "x.toml" else word for word in command]
    assert refused(capsys, *command) == "no store is given; use --store DIR|URL, or set CDC_STORE"
    if command[0] != "create":
        assert "there is no progress store" in refused(capsys, *command, "--store", str(tmp_path / "typo"))
    assert not (tmp_path / "typo").exists()


def test_a_store_out_of_reach_exits_with_2_without_its_password(capsys: Capture) -> None:
    told = refused(capsys, "jobs", "--store", "postgresql://cdc:swordfish@127.0.0.1:1/cdc")
    assert "progress store postgresql://cdc:***@127.0.0.1:1/cdc cannot be used" in told
    assert "swordfish" not in told


def test_a_file_is_still_a_file_with_a_store_in_the_environment(
    store: ProgressStore, file: Path, capsys: Capture
) -> None:
    created(store)
    beside = ProgressStore(store_url(file.parent / ".cdc"))
    beside.changefeeds.register("orders", DEFINITION)
    beside.claims.pause_run("orders", beside.changefeeds.begin_attempt("orders"), "a row was refused")
    assert "changefeed 'orders': paused" in done(capsys, "show", str(file))
    assert as_json(capsys, "resume", str(file))["paused"] is None
    assert "is not a job, and no node adopts it" in refused(capsys, "resume", str(file), "--wait")
    assert "are for jobs" in refused(capsys, "alter", str(file), "--set", "diff=true")


def test_a_job_is_checked_by_its_name_and_told_the_commands_for_jobs(
    store: ProgressStore, file: Path, capsys: Capture, cdc: Cdc, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert done(capsys, "create", str(file))

    def check(_rangefeed: CounterRangefeed) -> None:
        raise TerminalRangefeedError("its slot is lost. Use `cdc rescan FILE NAME --all --new-slot`")

    assert "sink     shelf shelf://room … ok" in done(capsys, "check", "orders")
    assert done(capsys, "debug", "orders", "--no-connect").startswith("wrote cdc-debug-orders-")
    monkeypatch.setattr(CounterRangefeed, "check", check)
    assert "lost. Use `cdc rescan orders --all --new-slot`\n" in cdc("check", "orders", status=2).out
    assert "lost. Use `cdc rescan orders --all --new-slot`" in refused(capsys, "alter", "orders", "--set", "diff=true")
    assert f"lost. Use `cdc rescan {file} orders --all --new-slot`\n" in cdc("check", file, status=2).out


def test_a_job_is_named_without_its_file(store: ProgressStore, file: Path, capsys: Capture) -> None:
    assert done(capsys, "create", str(file))
    for command in (["rescan", "--all"], ["alter", "--add", "t"], ["drop", "--yes"], ["replay-dead-letters"]):
        told = refused(capsys, command[0], str(file), *command[1:], "--state", str(file.parent / "nodes"))
        assert told == (
            "changefeed 'orders' is a job, whose definition is in the store; name it without its file:"
            " --store DIR|URL orders"
        )
