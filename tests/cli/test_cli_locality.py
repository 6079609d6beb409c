"""Where this process is, and where a worker is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cdc_testing.command import Cdc

from cdc_core.cli.main import main


def test_a_changefeed_that_is_pinned_elsewhere_does_not_run(
    file: Path, monkeypatch: pytest.MonkeyPatch, cdc: Cdc
) -> None:
    with file.open("a") as toml:
        toml.write('execution_locality = "region=us"\n')
    monkeypatch.setenv("CDC_LOCALITY", "region=eu")
    assert (
        "error: changefeed 'orders': execution_locality region=us does not match this process, whose locality is "
        "region=eu; run the changefeed on a machine that matches, and give that machine's locality with --locality "
        "or CDC_LOCALITY"
    ) in cdc.refused("run", file)
    assert sorted(path.name for path in file.parent.iterdir()) == ["shop.toml"]


def test_what_is_no_locality_is_refused(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(file), "--locality", "eu"]) == 2
    assert "error: --locality: 'eu' is not a locality; write each tier as name=value" in capsys.readouterr().err


def test_the_resources_of_a_worker_are_in_a_file_and_its_settings_are_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CDC_LOCALITY", "region=eu")
    file = tmp_path / "cdc.json"
    assert main(["worker-resources", str(file), "--executors", "1"]) == 0
    (found,) = json.loads(file.read_text())
    assert found == {"id": {"componentName": "spark.worker", "resourceName": "cdc_region_eu"}, "addresses": ["0"]}
    assert capsys.readouterr().out.splitlines() == [
        f"spark.worker.resourcesFile {file}",
        "spark.worker.resource.cdc_region_eu.amount 1",
    ]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["cdc.json"], "the locality of the worker is not known; set --locality or CDC_LOCALITY"),
        (["missing/cdc.json", "--locality", "a=b"], "missing/cdc.json cannot be written: No such file or directory"),
    ],
)
def test_a_worker_without_a_locality_or_a_file_is_refused(
    arguments: list[str], reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cdc: Cdc
) -> None:
    monkeypatch.chdir(tmp_path)
    assert reason in cdc.refused("worker-resources", *arguments)
