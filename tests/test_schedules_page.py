"""docs/schedules.md shows the real output of commands."""

from __future__ import annotations

import json
import re
import shlex
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa
from cdc_testing.stored import dropped

from cdc_core.cli.main import main
from cdc_core.jobs.schedules import Schedules
from cdc_core.store.job_tables import DatabaseNow
from cdc_core.store.progress import ProgressStore, store_url
from cdc_core.store.schedules import SCHEDULES

PAGE = (Path(__file__).parents[1] / "docs" / "schedules.md").read_text()
Capture = pytest.CaptureFixture[str]


def without_times(text: str) -> str:
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", "TIME", text)
    return re.sub(r"nightly-\d{14}", "nightly-TIME", text)


def test_the_page_shows_what_the_commands_print(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    [toml] = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "shop.toml").write_text(toml)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PASSWORD", "hunter2")
    monkeypatch.setenv("CDC_STORE", str(tmp_path / "store"))
    sessions = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
    created, watched = ([each.partition("\n") for each in text.split("$ ")[1:]] for text in sessions)
    shown: dict[str, object] = {}
    with closing(ProgressStore(store_url(tmp_path / "store"))) as store:
        for command, _, printed in [*created[1:], *watched]:
            if "list" in command:
                with store._database.transaction() as connection:
                    connection.execute(sa.update(SCHEDULES).values(next_run=DatabaseNow() - 1))
                assert len(Schedules(store).tick()) == 1
            if "resume" in command:  # its run has ended by then
                dropped(store, str(store.schedules.find("nightly").last_job))
                Schedules(store).tick()
            if "pause" in command:
                assert main(["schedule", "list", "--json"]) == 0
                shown = json.loads(capsys.readouterr().out)
            assert main(shlex.split(command)[1:]) == 0
            assert without_times(capsys.readouterr().out) == without_times(printed)
    table = PAGE.partition("New fields may be added.")[2]
    documented = {name for cell in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in cell.split(", ")}
    assert documented == {f"`{name}`" for name in shown}
