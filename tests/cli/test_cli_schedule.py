"""`cdc schedule`: what it keeps, what it says, and what it refuses."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from cdc_testing.command import Cdc

from cdc_core.cli.main import main
from cdc_core.jobs.schedules import Schedules
from cdc_core.store.progress import ProgressStore, store_url

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ProgressStore:
    """The store that CDC_STORE names; nothing is there yet."""
    monkeypatch.setenv("CDC_STORE", str(tmp_path / "shared"))
    monkeypatch.setenv("PASSWORD", "hunter2")
    return ProgressStore(store_url(tmp_path / "shared"))


@pytest.fixture
def file(file: Path) -> Path:
    file.write_text(file.read_text().replace("hunter2", "${PASSWORD}"))
    return file


def create(file: Path, *arguments: str) -> int:
    return main(["schedule", "create", "nightly", str(file), "--cron", "30 2 * * *", *arguments])


def shown(capsys: Capture, *arguments: str) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["schedule", *arguments, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def with_options(file: Path, options: str) -> Path:
    file.write_text(file.read_text() + options)
    return file


def refused(capsys: Capture, status: int) -> str:
    assert status == 2
    text = capsys.readouterr().err
    assert text.count("\n") == 1
    return text


def test_a_schedule_is_created_listed_paused_resumed_and_dropped(
    file: Path, store: ProgressStore, capsys: Capture, cdc: Cdc
) -> None:
    assert create(file, "--time-zone", "Europe/Berlin", "--owner", "ann") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("schedule 'nightly': next run 2")
    assert lines[1:] == [
        "  cron              30 2 * * * (Europe/Berlin)",
        "  source            paper://user:***@desk/db: public.counter",
        "  sink              shelf://room (json)",
        "  owner             ann",
        "  previous running  wait",
        "  failure           reschedule",
    ]
    lines = cdc("schedule", "pause", "nightly", "--reason", "holidays").out.splitlines()
    assert (lines[0], lines[-1]) == ("schedule 'nightly': paused", "  reason            holidays")
    found = shown(capsys, "list")
    assert (found["state"], found["next_run"], found["reason"]) == ("paused", None, "holidays")
    assert shown(capsys, "resume", "nightly")["state"] == "active"
    assert cdc("schedule", "drop", "nightly").out == "schedule 'nightly' is removed\n"
    assert cdc("schedule", "list").out == f"the progress store {store.shown} has no schedules\n"


def test_a_run_has_the_definition_with_references_and_is_scan_only(
    file: Path, store: ProgressStore, capsys: Capture
) -> None:
    assert create(with_options(file, 'INITIAL_SCAN = "only"\nkey_in_value = true\n'), "--first-run", "now") == 0
    with closing(store):
        [name] = Schedules(store).tick()
        known = store.changefeeds.find(name)
    assert known is not None
    written = known.definition["written"]
    assert written["options"]["initial_scan"] == "only"
    assert written["options"]["key_in_value"] is True
    assert "INITIAL_SCAN" not in written["options"]
    assert written["source"] == "paper://user:${PASSWORD}@desk/db"
    assert "hunter2" not in json.dumps(known.definition)
    found = shown(capsys, "list")
    assert (found["last_job"], found["runs"]) == (name, [{"job": name, "state": "running"}])


@pytest.mark.parametrize(
    "option",
    ["diff = true", 'end_time = "2099-01-01T00:00:00Z"', "mvcc_timestamp = true", "resolved = true", "UPDATED = true"],
)
def test_options_that_a_scan_cannot_have_are_refused(file: Path, capsys: Capture, option: str) -> None:
    text = refused(capsys, create(with_options(file, option + "\n")))
    assert "changefeed 'orders' cannot be scheduled with option '" in text
    assert text.endswith("; remove the option\n")


def test_an_option_that_is_off_is_accepted(file: Path) -> None:
    assert create(with_options(file, "diff = false\nresolved = false\n")) == 0


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ('cursor = "2026-01-01T00:00:00Z"', "cannot be scheduled with option 'cursor'"),
        ('initial_scan = "yes"', "cannot be scheduled with initial_scan = 'yes': each run only scans"),
        ('execution_locality = "region=eu"', "no node matches execution_locality 'region=eu': no node is alive"),
    ],
)
def test_what_no_run_could_do_is_refused(file: Path, capsys: Capture, options: str, text: str) -> None:
    assert text in refused(capsys, create(with_options(file, options + "\n")))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--cron", "often"], "'often' is not a cron expression; use five fields"),
        (["--time-zone", "Mars/Olympus"], "there is no time zone 'Mars/Olympus'; use a name such as Europe/Berlin"),
        (["--first-run", "soon"], "the first run 'soon' must be now, or a time with a zone such as"),
        (["--first-run", "2020-01-01T00:00:00Z"], "the first run at 2020-01-01 00:00:00 UTC is in the past"),
        (["--owner", ""], "'' is not a valid owner; use 1 to 64 characters"),
    ],
)
def test_what_cannot_be_read_is_refused(file: Path, capsys: Capture, arguments: list[str], text: str) -> None:
    assert text in refused(capsys, create(file, *arguments))


def test_a_first_run_has_its_time(file: Path, capsys: Capture) -> None:
    assert create(file, "--first-run", "2099-01-01T00:00:00+01:00", "--json") == 0
    assert json.loads(capsys.readouterr().out)["next_run"] == "2098-12-31T23:00:00+00:00"


def test_a_name_leaves_place_for_the_time_of_a_run(file: Path, capsys: Capture) -> None:
    for name in ("n" * 26, "night ly", ""):
        status = main(["schedule", "create", name, str(file), "--cron", "@daily"])
        assert f"'{name}' is not a valid schedule name; use 1 to 25" in refused(capsys, status)


def test_a_secret_in_plain_text_is_refused(file: Path, capsys: Capture) -> None:
    file.write_text(file.read_text().replace("${PASSWORD}", "opensesame"))
    text = refused(capsys, create(file))
    assert "changefeed 'orders': 'source' has a secret in plain text, which the store does not keep" in text
    assert "opensesame" not in text


def test_unknown_schedules_and_stores_are_said(
    file: Path, store: ProgressStore, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "there is no progress store '" in refused(capsys, main(["schedule", "list"]))
    assert not Path(store.shown).exists()
    assert create(file) == 0
    capsys.readouterr()
    for command in ("pause", "resume", "drop"):
        text = refused(capsys, main(["schedule", command, "daily"]))
        assert text == "error: there is no schedule 'daily'; known: nightly\n"
    assert "schedule 'nightly' already exists" in refused(capsys, create(file))
    monkeypatch.delenv("CDC_STORE")
    assert "no store is given; use --store DIR|URL, or set CDC_STORE" in refused(capsys, main(["schedule", "list"]))
