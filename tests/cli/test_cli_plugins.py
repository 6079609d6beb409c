"""`cdc plugins`, `cdc options` and `cdc demo` show and run what is installed."""

from __future__ import annotations

import re
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from cdc_testing.command import Cdc
from cdc_testing.distributions import install

from cdc_core.cli.main import main


def test_plugins_lists_name_kind_distribution_and_version(cdc: Cdc) -> None:
    lines = cdc("plugins").out.splitlines()
    assert lines[0].split() == ["KIND", "NAME", "SCHEMES", "DISTRIBUTION", "VERSION", "SUMMARY"]
    assert [line.split()[:5] for line in lines[1:] if not line.startswith("command")] == [
        ["encoder", "json", "-", "cdc-paper", "1.0"],
        ["rangefeed", "paper", "paper", "cdc-paper", "1.0"],
        ["sink", "shelf", "shelf", "cdc-paper", "1.0"],
    ]


def test_options_explains_a_component_and_the_changefeed(cdc: Cdc) -> None:
    assert "rows_per_step  (integer; default 1000)\n    Numbers a step." in cdc("options", "source", "paper").out
    shown = cdc("options", "changefeed").out
    assert "resolved  (flag or duration; default (none))" in shown
    assert "min_checkpoint_frequency  (duration; default (none))" in shown


def test_options_names_what_there_is(cdc: Cdc) -> None:
    assert "name the sink; installed: shelf" in cdc.refused("options", "sink")
    assert "there is no sink 'shelv'; did you mean 'shelf'?" in cdc.refused("options", "sink", "shelv")
    assert main(["options", "spark"]) == 2


def demo_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    for name in names:
        module = f"cdc_t_demo_{name}_{tmp_path.name.replace('-', '_')}"
        source = "def run(arguments):\n    print('demo', *arguments)\n    return len(arguments)\n"
        install(
            tmp_path,
            f"acme-{name}",
            "1.0",
            module=module,
            source=source,
            group="cdc_core.demos",
            entry=name,
            value=f"{module}:run",
        )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(
        "cdc_core.plugins.entry_points.entry_points",
        lambda *, group: [found for found in entry_points(group=group) if found.name in names],
    )


def test_the_only_demo_runs_without_its_name_and_gets_its_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    demo_site(tmp_path, monkeypatch, "movr")
    assert main(["demo"]) == 0
    assert main(["demo", "movr", "--seconds", "5", "--help"]) == 3
    assert main(["demo", "--seconds", "5"]) == 2
    assert capsys.readouterr().out.splitlines() == ["demo", "demo --seconds 5 --help", "demo --seconds 5"]


def test_one_of_several_demos_must_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cdc: Cdc) -> None:
    demo_site(tmp_path, monkeypatch, "movr", "tpcc")
    assert "several demos are installed; choose one: movr, tpcc" in cdc.refused("demo")
    assert "there is no demo 'mover'; did you mean 'movr'?" in cdc.refused("demo", "mover")
    assert main(["demo", "tpcc"]) == 0


def test_without_a_demo_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, cdc: Cdc) -> None:
    monkeypatch.setattr("cdc_core.plugins.entry_points.entry_points", lambda **_: [])
    assert "no demo is installed; install a package that publishes a demo" in cdc.refused("demo")


def test_a_demo_that_lacks_something_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cdc: Cdc
) -> None:
    demo_site(tmp_path, monkeypatch, "movr")
    (module,) = tmp_path.glob("*.py")
    module.write_text("import no_such_module_at_all")
    assert re.search(
        r"demo 'movr' cannot be loaded: .*no_such_module_at_all.*; pip install 'acme-movr\[demo\]'", cdc.refused("demo")
    )
