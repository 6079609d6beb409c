"""`cdc NAME` runs what installed packages publish, and nothing that is wrong with them stops the built-in commands.

The help and the shell list both.
"""

from __future__ import annotations

import re
import socket
import sys
import threading
from contextlib import closing
from pathlib import Path

import click
import pytest
from cdc_testing.command import Cdc
from cdc_testing.distributions import install
from cdc_testing.stored import DEFINITION

from cdc_core.cli import completion
from cdc_core.cli.main import cdc as commands
from cdc_core.cli.main import main
from cdc_core.store.progress import ProgressStore, store_url

COMMAND = """
import click

@click.command(short_help="Draw a picture.")
@click.argument("what")
@click.option("--colour")
def draw(what, colour):
    print("drawn", what, colour)
    return 5
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory on the path that distributions may be put into."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(site)
    return site


def publish(
    site: Path, name: str, *, source: str = COMMAND, distribution: str = "acme-art", value: str = "draw"
) -> str:
    module = f"cdc_t_command_{distribution}_{site.parent.name}".replace("-", "_")
    install(
        site,
        distribution,
        "1.2",
        module=module,
        source=source,
        group="cdc_core.commands",
        entry=name,
        value=f"{module}:{value}",
    )
    return module


def test_a_published_command_gets_its_arguments_and_returns_its_status(site: Path, cdc: Cdc) -> None:
    publish(site, "draw")
    assert cdc("draw", "fish", "--colour", "red", status=5).out == "drawn fish red\n"
    assert main(["draw"]) == 2


def test_help_lists_it_with_its_short_help(site: Path, cdc: Cdc) -> None:
    publish(site, "draw")
    assert re.search(r"^  draw +Draw a picture\.$", cdc("--help").out, re.MULTILINE)


def test_help_groups_the_commands_by_what_they_are_for(site: Path, cdc: Cdc) -> None:
    publish(site, "draw")
    sections = re.findall(r"^(\w.*):\n((?:  .*\n)+)", cdc("--help").out, re.MULTILINE)
    found = {title: re.findall(r"^  ([\w-]+) ", rows, re.MULTILINE) for title, rows in sections}
    assert {"run", "show"} <= set(found["Changefeeds"])
    assert {"create", "jobs"} <= set(found["Jobs, which nodes run"])
    assert "draw" in found["Other packages"]
    assert max(map(len, found.values())) < 10
    listed = sorted(name for title, names in found.items() if title != "Options" for name in names)
    assert listed == commands.list_commands(click.Context(commands)), "each command once"


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("cdc r", ["plain,replay-dead-letters", "plain,rescan", "plain,resume", "plain,run"]),
        ("cdc dr", ["plain,drain", "plain,draw", "plain,drop"]),
        ("cdc --ver", ["plain,--version"]),
        ("cdc run --onc", ["plain,--once"]),
        ("cdc schedule pa", ["plain,pause"]),
        ("cdc run sh", ["file,sh"]),
        ("cdc show some/sh", ["file,some/sh"]),
    ],
)
def test_the_shell_completes_commands_options_and_files(
    site: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: str, found: list[str]
) -> None:
    module = publish(site, "draw")
    monkeypatch.setenv("_CDC_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(words.count(" ")))
    with pytest.raises(SystemExit, match="0"):
        main([])
    assert capsys.readouterr().out.splitlines() == found
    assert module not in sys.modules


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("cdc pause or", ["plain,orders"]),
        ("cdc show or", ["plain,orders"]),
        ("cdc owner ", ["plain,orders", "plain,users"]),
        ("cdc show us", ["plain,users", "plain,users.toml"]),
        ("cdc show sh", ["file,sh"]),
        ("cdc show shop.toml cu", ["plain,customers"]),
        ("cdc run or", ["file,or"]),
        ("cdc run --store nodes or", ["plain,orders"]),
        ("cdc create or", ["file,or"]),
        ("cdc create shop.toml cu", ["plain,customers"]),
        ("cdc show --store newer or", ["file,or"]),
        ("cdc show none.toml or", [""]),
        ("cdc show --store postgresql://h:port/db or", ["file,or"]),
        ("cdc show --store sqlite:///x?timeout=soon or", ["file,or"]),
        ("cdc show --store no:such://x or", ["file,or"]),
    ],
)
def test_the_shell_completes_changefeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: str, found: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop.toml").write_text("[changefeed.customers]\n")
    (tmp_path / "users.toml").touch()
    (tmp_path / "newer").mkdir()
    (tmp_path / "newer" / "progress.sqlite").write_text("of another version")
    with closing(ProgressStore(store_url(tmp_path / "nodes"))) as store:
        for name in ("users", "orders"):
            store.changefeeds.register(name, DEFINITION)
    for variable, value in {"CDC_STORE": "nodes", "_CDC_COMPLETE": "bash_complete", "COMP_WORDS": words}.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setenv("COMP_CWORD", str(words.count(" ")))
    with pytest.raises(SystemExit, match="0"):
        main([])
    assert capsys.readouterr().out.splitlines() == found


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--key", "[42]"], "--key requires --table"),
        (["--timeout", "2x"], "--timeout: '2x' must be a duration such as 500ms, 10s or 1h30m"),
        (["--timeout", "2h"], "--timeout: '2h' must be more than 0s and at most 1h"),
    ],
)
def test_trace_names_the_option_that_is_wrong(cdc: Cdc, arguments: list[str], told: str) -> None:
    assert cdc.refused("trace", "shop.toml", *arguments) == f"error: {told}\n"


def test_the_shell_does_not_wait_for_a_store_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(completion, "_MAX_WAIT_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        store = f"postgresql://127.0.0.1:{silent.getsockname()[1]}/db?connect_timeout=600"
        for variable, value in {
            "CDC_STORE": store,
            "_CDC_COMPLETE": "bash_complete",
            "COMP_WORDS": "cdc pause o",
        }.items():
            monkeypatch.setenv(variable, value)
        monkeypatch.setenv("COMP_CWORD", "2")
        with pytest.raises(SystemExit, match="0"):
            main([])
        assert capsys.readouterr().out == "\n"
        looking = [thread for thread in threading.enumerate() if thread.name == "completion"]
    for thread in looking:
        thread.join()


def test_it_is_imported_only_when_it_is_run_or_listed(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module = publish(site, "draw")
    assert main(["options", "changefeed"]) == 0
    assert module not in sys.modules


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("import no_such_module_at_all", "cannot be loaded: ModuleNotFoundError: No module named 'no_such_module_at_"),
        ("draw = print", "is a builtin_function_or_method, not a click command"),
        ("raise SystemExit(3)", "cannot be loaded: SystemExit: 3"),
    ],
)
def test_one_that_fails_to_load_is_named_and_stops_no_other(
    site: Path, capsys: pytest.CaptureFixture[str], cdc: Cdc, source: str, problem: str
) -> None:
    publish(site, "draw", source=source)
    assert main(["draw", "fish", "--colour=red", "--help"]) == 2
    assert capsys.readouterr().err.startswith(f"error: the command 'draw' of acme-art 1.2 {problem}")
    assert f"({problem[:20]}" in cdc("--help").out
    assert re.search(rf"command +draw +- +acme-art +1\.2 +PROBLEM: {problem}", cdc("plugins").out)
    assert "nope.toml cannot be read" in cdc.refused("run", "nope.toml")


def test_two_packages_that_publish_one_name_are_both_named(site: Path, cdc: Cdc) -> None:
    publish(site, "draw")
    publish(site, "draw", distribution="best-art")
    assert cdc.refused("draw", "fish") == (
        "error: command 'draw' is published by both acme-art 1.2 and best-art 1.2; uninstall one of them: "
        "pip uninstall acme-art or best-art\n"
    )


def test_a_built_in_command_cannot_be_replaced(site: Path, cdc: Cdc) -> None:
    publish(site, "options")
    assert "resolved  (flag or duration" in cdc("options", "changefeed").out
    shown = cdc("plugins").out
    assert re.search(r"command +options .* PROBLEM: 'options' is a built-in command and cannot be replaced", shown)
