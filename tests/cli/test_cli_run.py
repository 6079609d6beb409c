"""`cdc run`: what the engine gets, exit statuses, messages without tracebacks and secrets."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cdc_testing.command import Cdc
from cdc_testing.distributions import install

from cdc_core import ScanProgress, Timestamp
from cdc_core.cli.main import main
from cdc_core.cli.stop_signals import STOP_SIGNALS, stop_signals
from cdc_core.engine.run_control import RunControl
from cdc_core.errors import ConfigError, TerminalRangefeedError
from cdc_core.telemetry.status import Status

Run = Callable[..., int]


def test_run_hands_the_engine_job_store_directory_and_view(file: Path, engine: Callable[[Run], None]) -> None:
    got: dict[str, Any] = {}

    def run(feed: Any, **rest: Any) -> int:
        rest["status"](Status(changefeed=feed.name, phase="running", high_water=Timestamp(1)))
        got.update(rest, feed=feed)
        return 0

    engine(run)
    assert main(["run", str(file), "--once"]) == 0
    assert got["feed"].name == "orders"
    assert got["once"] is True
    assert got["state_dir"] == file.parent / ".cdc"
    assert got["store"].url.endswith("/.cdc/progress.sqlite")
    assert (file.parent / ".cdc" / "progress.sqlite").exists()


def test_the_state_directory_may_be_given(file: Path, tmp_path: Path, engine: Callable[[Run], None]) -> None:
    got: dict[str, Any] = {}
    engine(lambda _feed, **rest: got.update(rest) or 0)
    assert main(["run", str(file), "orders", "--state", str(tmp_path / "state")]) == 0
    assert (got["state_dir"], got["once"]) == (tmp_path / "state", False)


def test_progress_may_be_kept_in_a_database(file: Path, tmp_path: Path, engine: Callable[[Run], None]) -> None:
    got: dict[str, Any] = {}
    engine(lambda _feed, **rest: got.update(rest) or 0)
    assert main(["run", str(file), "--state", f"sqlite:///{tmp_path}/shared.sqlite"]) == 0
    assert got["store"].url == f"sqlite:///{tmp_path}/shared.sqlite"
    assert got["state_dir"] == file.parent / ".cdc"
    assert got["state_dir"].is_dir()


@pytest.mark.parametrize("state", ["{file}/state", "sqlite:///{directory}/shared.sqlite"])
def test_a_state_directory_that_cannot_be_exits_with_2(
    file: Path, engine: Callable[[Run], None], capsys: pytest.CaptureFixture[str], state: str
) -> None:
    engine(lambda _feed, **_rest: 0)
    (file.parent / ".cdc").write_text("in the way")
    assert main(["run", str(file), "--state", state.format(file=file, directory=file.parent)]) == 2
    assert "cannot be used as the state directory: " in capsys.readouterr().err


def test_a_progress_store_out_of_reach_exits_with_2_without_its_password(
    file: Path, engine: Callable[[Run], None], cdc: Cdc
) -> None:
    engine(lambda _feed, **_rest: 0)
    shown = cdc.refused("run", file, "--state", "postgresql://cdc:swordfish@127.0.0.1:1/cdc")
    assert "progress store postgresql://cdc:***@127.0.0.1:1/cdc cannot be used" in shown
    assert "swordfish" not in shown


def test_without_a_terminal_run_logs_the_status(file: Path, engine: Callable[[Run], None], cdc: Cdc) -> None:
    def run(feed: Any, *, status: Callable[[Status], None], **_rest: Any) -> int:
        status(Status(changefeed=feed.name, phase="running", rows=5, files=1))
        return 0

    engine(run)
    assert "INFO changefeed 'orders': running, 5 rows" in cdc("run", file).err


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (ConfigError("table public.x is missing"), 2, "error: table public.x is missing"),
        (TerminalRangefeedError("cannot use hunter2"), 1, "error: cannot use ***"),
        (RuntimeError("hunter2?"), 1, "internal error: RuntimeError: ***?; run with --debug to see where"),
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
    def run(_feed: Any, **_rest: Any) -> int:
        raise error

    engine(run)
    assert main(["run", str(file)]) == status
    shown = capsys.readouterr().err
    assert shown.splitlines()[-1] == line
    assert "Traceback" not in shown


def test_debug_shows_the_traceback_masked(file: Path, engine: Callable[[Run], None], cdc: Cdc) -> None:
    def run(_feed: Any, **_rest: Any) -> int:
        raise TerminalRangefeedError("cannot use hunter2") from ValueError("hunter2 is wrong")

    engine(run)
    shown = cdc("run", file, "--debug", status=1).err
    assert "Traceback" in shown
    assert "ValueError: *** is wrong" in shown
    assert "hunter2" not in shown


def test_logs_of_a_run_are_masked(file: Path, engine: Callable[[Run], None], cdc: Cdc) -> None:
    def run(_feed: Any, **_rest: Any) -> int:
        try:
            raise OSError("no route for hunter2")
        except OSError:
            logging.getLogger("cdc_core.anything").exception("connecting as %s", "user:hunter2")
        return 0

    engine(run)
    shown = cdc("run", file).err
    assert "ERROR changefeed 'orders': connecting as user:***" in shown
    assert "OSError: no route for ***" in shown
    assert "hunter2" not in shown


@pytest.fixture
def with_terminal() -> Iterator[None]:
    """SIGHUP is heeded, whoever has started the tests."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("with_terminal")
@pytest.mark.parametrize("number", STOP_SIGNALS, ids=lambda number: number.name)
def test_a_signal_stops_every_run_and_a_second_one_abandons_them(
    file: Path, engine: Callable[[Run], None], number: int
) -> None:
    file.write_text(file.read_text() + file.read_text().replace("orders", "items"))
    stopped: list[str] = []

    def run(feed: Any, control: RunControl, **_rest: Any) -> str:
        if feed.name == "orders":
            os.kill(os.getpid(), number)
        assert control.stop.wait(300)
        stopped.append(feed.name)
        if len(stopped) == 2:
            os.kill(os.getpid(), signal.SIGTERM if number == signal.SIGHUP else number)
        assert control.abandon.wait(300)
        return "abandoned"

    engine(run)
    before = [signal.getsignal(each) for each in STOP_SIGNALS]
    assert main(["run", str(file)]) == 130
    assert sorted(stopped) == ["items", "orders"]
    assert [signal.getsignal(each) for each in STOP_SIGNALS] == before


@pytest.mark.parametrize("ending", ["stopped", "abandoned", "complete"])
def test_a_run_that_was_stopped_tells_where_the_next_one_continues(
    ending: str, file: Path, engine: Callable[[Run], None], capsys: pytest.CaptureFixture[str]
) -> None:
    texts = [file.read_text().replace("orders", name) for name in ("orders", "items", "users")]
    file.write_text("".join(texts))
    reached = {
        "orders": Status(changefeed="orders", phase=ending, high_water=Timestamp(1_800_000_000_000_000_000)),
        "items": Status(changefeed="items", phase=ending, scan=ScanProgress(done=40, total=1000, unit="blocks")),
        "users": Status(changefeed="users", phase=ending),
    }

    def run(feed: Any, status: Callable[[Status], None], **_rest: Any) -> str:
        status(reached[feed.name])
        return ending

    engine(run)
    assert main(["run", str(file)]) == (130 if ending == "abandoned" else 0)
    shown = capsys.readouterr().err
    again = ", and repeats what was delivered later" if ending == "abandoned" else ""
    told = [
        f"'orders': the next run continues after 2027-01-15 08:00:00 UTC (1800000000000000000.0000000000){again}\n",
        f"'items': the next run continues the scan at 40 of 1,000 blocks{again}\n",
        f"'users': the next run starts where this one started{again}\n",
    ]
    assert [text in shown for text in told] == [ending != "complete"] * 3


def test_a_changefeed_that_fails_leaves_the_others_alone(file: Path, engine: Callable[[Run], None], cdc: Cdc) -> None:
    file.write_text(file.read_text() + file.read_text().replace("orders", "items"))
    failed = threading.Event()

    def run(feed: Any, status: Callable[[Status], None], **_rest: Any) -> None:
        if feed.name == "items":
            failed.set()
            raise ConfigError("table public.counter is missing, says hunter2")
        assert failed.wait(300)
        status(Status(changefeed=feed.name, phase="running", rows=7))

    engine(run)
    shown = cdc.refused("run", file)
    assert "ERROR changefeed 'items' failed: table public.counter is missing, says ***" in shown
    assert "INFO changefeed 'orders': running, 7 rows" in shown
    assert "Traceback" not in shown


def test_changefeeds_with_other_spark_settings_do_not_share_a_process(
    file: Path, engine: Callable[[Run], None], cdc: Cdc
) -> None:
    other = file.read_text().replace("orders", "items") + '[changefeed.items.spark]\nmaster = "local[1]"\n'
    file.write_text(file.read_text() + other)
    begun: list[str] = []
    engine(lambda feed, **_: begun.append(feed.name))
    assert "changefeed 'items' needs different Spark settings" in cdc.refused("run", file)
    assert begun == []


def test_without_spark_run_says_what_to_install(file: Path, monkeypatch: pytest.MonkeyPatch, cdc: Cdc) -> None:
    for name in [name for name in sys.modules if name.startswith("cdc_core.spark.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    assert "running a changefeed needs Spark: pip install 'cdc-core[spark]'" in cdc.refused("run", file)
    assert not (file.parent / ".cdc").exists()


def test_a_published_pipeline_runs_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: Callable[[Run], None]
) -> None:
    install(
        tmp_path,
        "acme",
        "1.0",
        module="cdc_t_cli_pipeline",
        source="""
            from cdc_core.config.changefeed import Changefeed

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
    engine(lambda feed, **rest: got.update(rest, feed=feed) or 0)
    assert main(["run", "acme-orders"]) == 0
    assert got["feed"].name == "orders"
    assert got["state_dir"] == tmp_path / ".cdc"


def test_a_run_outlives_its_terminal_under_nohup() -> None:
    told: list[None] = []
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as `nohup` does
    try:
        with stop_signals(lambda: told.append(None)):
            os.kill(os.getpid(), signal.SIGHUP)
            assert told == []
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("with_terminal")
def test_a_terminal_that_closes_is_one_stop() -> None:
    """The shell and the kernel both say so."""
    told: list[None] = []
    with stop_signals(lambda: told.append(None)):
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGHUP)
        assert told == [None]
        os.kill(os.getpid(), signal.SIGTERM)
        assert told == [None, None]
