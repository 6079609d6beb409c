"""The command: exit statuses and what it says of a wrong command line or file."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cdc_testing.command import Cdc


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (("[changefeed.orders]", "[changefeed.orders"), "shop.toml, line 2, column 19: "),
        (("[changefeed.orders.options]", "[changefeed.orders.options]\nupdatd = true"), "did you mean 'updated'?"),
        (("shelf://", "quarry://"), "install the package that registers it"),
        (("hunter2", "${NO_SUCH_VARIABLE}"), "needs the environment variable 'NO_SUCH_VARIABLE'"),
        (("tables", "tabels"), "unknown key 'tabels'; did you mean 'tables'?"),
    ],
)
@pytest.mark.parametrize("command", ["run", "check"])
def test_a_mistake_in_the_file_exits_with_2_and_leaves_nothing(
    file: Path, cdc: Cdc, command: str, change: tuple[str, str], complaint: str
) -> None:
    file.write_text(file.read_text().replace(*change))
    shown = cdc(command, file, status=2)
    assert complaint in shown.err
    assert len(shown.err.splitlines()) == 1
    assert "hunter2" not in shown.err
    assert sorted(path.name for path in file.parent.iterdir()) == ["shop.toml"]


@pytest.mark.parametrize(
    ("argument", "complaint"),
    [
        ("nope.toml", "error: nope.toml cannot be read: No such file or directory"),
        ("some/where", "error: some/where cannot be read: No such file or directory"),
        (
            "nope",
            "error: there is no file 'nope', and no installed package publishes a pipeline 'nope'; "
            "give the path of a file, or install the package that publishes it",
        ),
    ],
)
def test_a_file_or_pipeline_that_is_not_there_is_named(cdc: Cdc, argument: str, complaint: str) -> None:
    assert cdc.refused("run", argument).strip() == complaint


@pytest.mark.parametrize(
    "argument",
    [
        "host=db password=hunter2",
        "host=/run sslpassword=hunter2",
        "postgresql:u:hunter2@h/d",
        "postgresql:/u:hunter2@h/d",
    ],
)
@pytest.mark.parametrize("command", ["run", "show", "create"])
def test_a_login_in_place_of_a_file_is_not_shown(
    cdc: Cdc, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str, argument: str
) -> None:
    monkeypatch.setenv("CDC_STORE", str(tmp_path))
    said = cdc.refused(command, argument)
    assert "it looks like a login" in said
    assert "hunter2" not in said


@pytest.mark.parametrize("argument", ["/mnt/nfs:/cdc@prod", "/data/a:b@c", "nfs:/cdc@prod"])
def test_a_path_is_no_login(cdc: Cdc, argument: str) -> None:
    assert f"{argument} cannot be read" in cdc.refused("run", argument)


def test_without_a_query_there_is_nothing_to_explain(file: Path, cdc: Cdc) -> None:
    assert "has no query to explain: it delivers whole rows of public.counter" in cdc.refused("explain", file)


@pytest.mark.parametrize(
    "arguments",
    [
        *(["nonsense"], ["run"], ["run", "x", "--nope"], ["plugins", "x"]),
        ["show", "x", "y", "db://u:hunter2@h", "db://u:cdc@h\x1b[1m "],
    ],
)
def test_a_wrong_command_line_exits_with_2(cdc: Cdc, arguments: list[str]) -> None:
    said = cdc.refused(*arguments)
    assert "Usage: cdc " in said
    assert "Try 'cdc " in said
    assert "hunter2" not in said


@pytest.mark.parametrize("command", [[], ["run"], ["check"], ["plugins"], ["options"], ["demo"]])
def test_every_command_has_help(cdc: Cdc, monkeypatch: pytest.MonkeyPatch, command: list[str]) -> None:
    monkeypatch.setattr("cdc_core.plugins.entry_points.entry_points", lambda **_: [])
    shown = cdc(*command, "--help").out
    assert shown.startswith("Usage: ")
    assert len(shown.splitlines()) > 4


@pytest.mark.parametrize(
    ("script", "status", "shown"),
    [
        ("cdc plugins >&- 2>&- <&-", 0, ""),
        ("cdc plugins >/dev/full", 1, "error: [Errno 28] No space left on device; run with --debug to see where\n"),
        (
            "mkdir gone && cd gone && rmdir ../gone && cdc show",
            1,
            "error: the current directory no longer exists; change to another one\n",
        ),
    ],
)
def test_a_command_survives_odd_surroundings(tmp_path: Path, script: str, status: int, shown: str) -> None:
    script = script.replace("cdc", f'"{sys.executable}" -m cdc_core')
    done = subprocess.run(script, shell=True, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (status, "", shown)


def test_the_module_is_the_command(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "cdc_core", "check", "nope.toml"],
        cwd=tmp_path,
        env={**os.environ, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: nope.toml cannot be read: No such file or directory\n"


def test_an_interrupt_while_modules_load_leaves_no_traceback() -> None:
    code = """
import os, signal, sys
class Interrupting:
    def find_spec(self, name, *_):
        if name == "cdc_core.cli.main":
            os.kill(os.getpid(), signal.SIGINT)
from cdc_core.__main__ import main
sys.meta_path.insert(0, Interrupting())
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, b"", b"")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_command_that_is_ended_by_a_signal_leaves_no_files(tmp_path: Path, number: signal.Signals) -> None:
    code = """
import os, signal, sys, tempfile
import cdc_core.cli.main
def command():
    try:
        with tempfile.TemporaryDirectory(dir=sys.argv[1]):
            try:
                os.kill(os.getpid(), int(sys.argv[2]))
            finally:
                os.kill(os.getpid(), signal.SIGHUP)  # a terminal that closes sends two
    except KeyboardInterrupt:
        return 130
cdc_core.cli.main.main = command
from cdc_core.__main__ import main
sys.exit(main())
"""
    done = subprocess.run([sys.executable, "-c", code, tmp_path, str(int(number))], capture_output=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (128 + number, b"", b"")
    assert not list(tmp_path.iterdir())


def test_a_command_that_stops_ends_well_after_its_terminal_closed() -> None:
    code = """
import os, threading
from cdc_core.cli.stop_signals import stop_signals
os.open(os.ttyname(0), os.O_RDWR)  # now it is the terminal of this session
told = threading.Event()
with stop_signals(told.set):
    print("ready", flush=True)
    told.wait()
    print("stopped", flush=True)
"""
    ours, its = pty.openpty()
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=its, stdout=its, stderr=its, start_new_session=True) as process:
        os.close(its)
        assert os.read(ours, 5) == b"ready"
        os.close(ours)
        assert process.wait(300) == 0
