"""The command: exit statuses, messages without tracebacks and secrets, and what each part prints."""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
from cdc_testing.components import encoder, host, rangefeed, sink
from cdc_testing.distributions import install
from cdc_testing.scripted import Script

from cdc_core import Timestamp
from cdc_core.cli import main
from cdc_core.errors import ConfigError, TerminalRangefeedError
from cdc_core.plugin_host import PluginHost
from cdc_core.status import Status

TOML = """
[changefeed.orders]
source = "paper://user:hunter2@desk/db"
tables = ["public.counter"]
sink = "shelf://room"
[changefeed.orders.options]
control = "{control}"
"""

Run = Callable[..., int]


@pytest.fixture(autouse=True)
def plugins(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Scripted components, and the root logger as it was before."""
    scripted = host(
        rangefeed(options="cdc_testing.scripted:CounterOptions"),
        encoder(),
        sink(options="cdc_testing.scripted:JournalOptions"),
    )
    monkeypatch.setattr(PluginHost, "load", lambda: scripted)
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "shop.toml"
    path.write_text(TOML.format(control=tmp_path))
    return path


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Callable[[Run], None]:
    """Return a function that puts another engine in place of the real one."""

    def use(run: Run) -> None:
        module = types.ModuleType("cdc_core.spark.runner")
        module.run = run  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "cdc_core.spark.runner", module)

    return use


def test_run_hands_the_engine_job_store_directory_and_view(file: Path, engine: Callable[[Run], None]) -> None:
    got: dict[str, Any] = {}

    def run(job: Any, **rest: Any) -> int:
        rest["status"](Status(changefeed=job.name, phase="running", high_water=Timestamp(1)))
        got.update(rest, job=job)
        return 0

    engine(run)
    assert main(["run", str(file), "--once"]) == 0
    assert got["job"].name == "orders"
    assert got["once"] is True
    assert got["state_dir"] == file.parent / ".cdc"
    assert got["store"].url.endswith("/.cdc/progress.sqlite")
    assert (file.parent / ".cdc" / "progress.sqlite").exists()


def test_the_state_directory_may_be_given(file: Path, tmp_path: Path, engine: Callable[[Run], None]) -> None:
    got: dict[str, Any] = {}
    engine(lambda _job, **rest: got.update(rest) or 0)
    assert main(["run", str(file), "orders", "--state", str(tmp_path / "state")]) == 0
    assert (got["state_dir"], got["once"]) == (tmp_path / "state", False)


def test_progress_may_be_kept_in_a_database(file: Path, tmp_path: Path, engine: Callable[[Run], None]) -> None:
    got: dict[str, Any] = {}
    engine(lambda _job, **rest: got.update(rest) or 0)
    assert main(["run", str(file), "--state", f"sqlite:///{tmp_path}/shared.sqlite"]) == 0
    assert got["store"].url == f"sqlite:///{tmp_path}/shared.sqlite"
    assert got["state_dir"] == file.parent / ".cdc"
    assert got["state_dir"].is_dir()


@pytest.mark.parametrize("state", ["{file}/state", "sqlite:///{directory}/shared.sqlite"])
def test_a_state_directory_that_cannot_be_exits_with_2(
    file: Path, engine: Callable[[Run], None], capsys: pytest.CaptureFixture[str], state: str
) -> None:
    engine(lambda _job, **_rest: 0)
    (file.parent / ".cdc").write_text("in the way")
    assert main(["run", str(file), "--state", state.format(file=file, directory=file.parent)]) == 2
    assert "cannot be the state directory: " in capsys.readouterr().err


def test_a_progress_store_out_of_reach_exits_with_2_without_its_password(
    file: Path, engine: Callable[[Run], None], capsys: pytest.CaptureFixture[str]
) -> None:
    engine(lambda _job, **_rest: 0)
    assert main(["run", str(file), "--state", "postgresql://cdc:swordfish@127.0.0.1:1/cdc"]) == 2
    shown = capsys.readouterr().err
    assert "progress store postgresql://cdc:***@127.0.0.1:1/cdc cannot be used" in shown
    assert "swordfish" not in shown


def test_without_a_terminal_run_logs_the_status(
    file: Path, engine: Callable[[Run], None], capsys: pytest.CaptureFixture[str]
) -> None:
    def run(job: Any, *, status: Callable[[Status], None], **_rest: Any) -> int:
        status(Status(changefeed=job.name, phase="running", rows=5, files=1))
        return 0

    engine(run)
    assert main(["run", str(file)]) == 0
    assert "INFO changefeed 'orders': running, 5 rows" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (ConfigError("table public.x is missing"), 2, "error: table public.x is missing"),
        (TerminalRangefeedError("cannot use hunter2"), 1, "error: cannot use ***"),
        (RuntimeError("hunter2?"), 1, "internal error: RuntimeError: ***?; --debug shows where"),
    ],
)
def test_a_failure_is_one_masked_line_and_its_exit_status(
    file: Path,
    engine: Callable[[Run], None],
    capsys: pytest.CaptureFixture[str],
    error: Exception,
    status: int,
    line: str,
) -> None:
    def run(_job: Any, **_rest: Any) -> int:
        raise error

    engine(run)
    assert main(["run", str(file)]) == status
    assert capsys.readouterr().err.splitlines()[-1] == line
    assert "Traceback" not in capsys.readouterr().err


def test_debug_shows_the_traceback_masked(
    file: Path, engine: Callable[[Run], None], capsys: pytest.CaptureFixture[str]
) -> None:
    def run(_job: Any, **_rest: Any) -> int:
        raise TerminalRangefeedError("cannot use hunter2") from ValueError("hunter2 is wrong")

    engine(run)
    assert main(["run", str(file), "--debug"]) == 1
    shown = capsys.readouterr().err
    assert "Traceback" in shown
    assert "ValueError: *** is wrong" in shown
    assert "hunter2" not in shown


def test_logs_of_a_run_are_masked(
    file: Path, engine: Callable[[Run], None], capsys: pytest.CaptureFixture[str]
) -> None:
    def run(_job: Any, **_rest: Any) -> int:
        try:
            raise OSError("no route for hunter2")
        except OSError:
            logging.getLogger("cdc_core.anything").exception("connecting as %s", "user:hunter2")
        return 0

    engine(run)
    assert main(["run", str(file)]) == 0
    shown = capsys.readouterr().err
    assert "ERROR connecting as user:***" in shown
    assert "OSError: no route for ***" in shown
    assert "hunter2" not in shown


def test_an_interrupt_exits_with_130(
    file: Path, engine: Callable[[Run], None], capsys: pytest.CaptureFixture[str]
) -> None:
    def run(_job: Any, **_rest: Any) -> int:
        signal.raise_signal(signal.SIGINT)
        return 0

    engine(run)
    assert main(["run", str(file)]) == 130
    assert capsys.readouterr().err.splitlines()[-1] == "interrupted"


def test_without_spark_run_says_what_to_install(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.startswith("cdc_core.spark.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    assert main(["run", str(file)]) == 2
    assert "running a changefeed needs Spark: pip install 'cdc-core[spark]'" in capsys.readouterr().err
    assert not (file.parent / ".cdc").exists()


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (("[changefeed.orders]", "[changefeed.orders"), "shop.toml, line 2, column 19: "),
        (("[changefeed.orders.options]", "[changefeed.orders.options]\nupdatd = true"), "did you mean 'updated'?"),
        (("shelf://", "kafka://"), "pip install cdc-sink-kafka"),
        (("hunter2", "${NO_SUCH_VARIABLE}"), "needs the environment variable 'NO_SUCH_VARIABLE'"),
        (("tables", "tabels"), "has no key 'tabels'; did you mean 'tables'?"),
    ],
)
@pytest.mark.parametrize("command", ["run", "check"])
def test_a_mistake_in_the_file_exits_with_2_and_leaves_nothing(
    file: Path, capsys: pytest.CaptureFixture[str], command: str, change: tuple[str, str], complaint: str
) -> None:
    file.write_text(file.read_text().replace(*change))
    assert main([command, str(file)]) == 2
    shown = capsys.readouterr()
    assert complaint in shown.err
    assert len(shown.err.splitlines()) == 1
    assert "hunter2" not in shown.err
    assert sorted(path.name for path in file.parent.iterdir()) == ["shop.toml"]


@pytest.mark.parametrize(
    ("argument", "complaint"),
    [
        ("nope.toml", "error: nope.toml cannot be read: No such file or directory"),
        ("some/where", "error: some/where cannot be read: No such file or directory"),
        ("nope", "error: there is no file 'nope', and no installed package publishes a pipeline of that name"),
    ],
)
def test_a_file_or_pipeline_that_is_not_there_is_named(
    capsys: pytest.CaptureFixture[str], argument: str, complaint: str
) -> None:
    assert main(["run", argument]) == 2
    assert capsys.readouterr().err.strip() == complaint


def test_a_published_pipeline_runs_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: Callable[[Run], None]
) -> None:
    install(
        tmp_path,
        "acme",
        "1.0",
        module="cdc_t_cli_pipeline",
        source="""
            from cdc_core.changefeed import Changefeed

            orders = Changefeed(
                name="orders", source="paper://x", tables=["t"], sink="shelf://x", options={"control": "/x"}
            )
        """,
        group="cdc_core.pipelines",
        entry="acme-orders",
        value="cdc_t_cli_pipeline:orders",
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    got: dict[str, Any] = {}
    engine(lambda job, **rest: got.update(rest, job=job) or 0)
    assert main(["run", "acme-orders"]) == 0
    assert got["job"].name == "orders"
    assert got["state_dir"] == tmp_path / ".cdc"


def test_check_prints_a_line_for_each_part_and_changes_nothing(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(file)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "changefeed 'orders'",
        "  source   paper paper://user:***@desk/db … ok",
        "           public.counter: 2 columns, key id",
        "  encoder  json … ok",
        "  sink     shelf shelf://room … ok",
    ]
    assert sorted(path.name for path in file.parent.iterdir()) == ["shop.toml"]


def test_check_reports_every_part_that_fails_and_exits_with_2(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Script(file.parent).order("check", "ConfigError wal_level is not logical for hunter2")
    Script(file.parent).order("sink-check", "ConfigError the directory is not writable")
    assert main(["check", str(file)]) == 2
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "  source   paper paper://user:***@desk/db … wal_level is not logical for ***"
    assert lines[-1] == "  sink     shelf shelf://room … the directory is not writable"


def test_plugins_lists_name_kind_distribution_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plugins"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["KIND", "NAME", "SCHEMES", "DISTRIBUTION", "VERSION", "SUMMARY"]
    assert [line.split()[:5] for line in lines[1:]] == [
        ["encoder", "json", "-", "cdc-paper", "1.0"],
        ["rangefeed", "paper", "paper", "cdc-paper", "1.0"],
        ["sink", "shelf", "shelf", "cdc-paper", "1.0"],
    ]


def test_options_explains_a_component_and_the_changefeed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["options", "source", "paper"]) == 0
    assert "rows_per_step  (integer; default 1000)\n    Numbers a step." in capsys.readouterr().out
    assert main(["options", "changefeed"]) == 0
    shown = capsys.readouterr().out
    assert "resolved  (flag or duration; default (none))" in shown
    assert "min_checkpoint_frequency  (duration; default (none))" in shown


def test_options_names_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["options", "sink"]) == 2
    assert "name the sink; installed: shelf" in capsys.readouterr().err
    assert main(["options", "sink", "shelv"]) == 2
    assert "there is no sink 'shelv'; did you mean 'shelf'?" in capsys.readouterr().err
    assert main(["options", "spark"]) == 2


@pytest.mark.parametrize("arguments", [["nonsense"], ["run"], ["run", "x", "--nope"], ["plugins", "x"]])
def test_a_wrong_command_line_exits_with_2(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert main(arguments) == 2
    assert "Usage: " in capsys.readouterr().err


@pytest.mark.parametrize("command", [[], ["run"], ["check"], ["plugins"], ["options"], ["demo"]])
def test_every_command_has_help(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.setattr("cdc_core.cli_plugins.entry_points", lambda **_: [])
    assert main([*command, "--help"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("Usage: ")
    assert len(shown.splitlines()) > 4


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
        "cdc_core.cli_plugins.entry_points",
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


def test_one_of_several_demos_must_be_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    demo_site(tmp_path, monkeypatch, "movr", "tpcc")
    assert main(["demo"]) == 2
    assert "there are several demos, name one of them: movr, tpcc" in capsys.readouterr().err
    assert main(["demo", "mover"]) == 2
    assert "there is no demo 'mover'; did you mean 'movr'?" in capsys.readouterr().err
    assert main(["demo", "tpcc"]) == 0


def test_without_a_demo_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("cdc_core.cli_plugins.entry_points", lambda **_: [])
    assert main(["demo"]) == 2
    assert "pip install 'cdc-rangefeed-postgres[demo]'" in capsys.readouterr().err


def test_a_demo_that_lacks_something_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    demo_site(tmp_path, monkeypatch, "movr")
    (module,) = tmp_path.glob("*.py")
    module.write_text("import no_such_module_at_all")
    assert main(["demo"]) == 2
    assert re.search(
        r"demo 'movr' cannot be loaded: .*no_such_module_at_all.*; pip install 'acme-movr\[demo\]'",
        capsys.readouterr().err,
    )


def test_the_module_is_the_command(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "cdc_core", "check", "nope.toml"],
        cwd=tmp_path,
        env={**os.environ, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: nope.toml cannot be read: No such file or directory\n"
