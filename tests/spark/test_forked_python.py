"""The Python that Spark starts on one host: forked from a process that has loaded what it needs."""

from __future__ import annotations

import json
import os
import pty
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from cdc_testing.runs import eventually

from cdc_core.engine.host_requirements import LAUNCHER
from cdc_core.spark.jvm import ForkedPython
from cdc_core.spark.python_forkserver import too_late

SHOWN = """
import json, os, sys
print("shown on", file=sys.stderr)
print(json.dumps({
    "name": __name__, "arguments": sys.argv[1:], "input": sys.stdin.readline(), "directory": os.getcwd(),
    "environment": dict(os.environ), "parent": os.getppid(), "loaded": sorted(sys.modules), "path": sys.path,
}))
sys.exit(7)
"""
HOOKED = """
import atexit, sys, threading
atexit.register(print, "the first hook", end="")
atexit.register(print, "the last hook")
threading.Timer(0.05, print, ["a thread"]).start()
sys.exit("why")
"""
STARTER = """
import sys
from pathlib import Path
from cdc_core.spark.jvm import ForkedPython
directory = Path(sys.argv[1])
forked = ForkedPython({}, scratch=directory, log_path=directory / "log")
print(forked._server.pid, forked.program, flush=True)
sys.stdin.readline()
"""


SETTINGS = {"spark.executorEnv.OPENBLAS_VERBOSE": "2", "spark.task.cpus": "3"}


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with modules to run."""
    directory = tmp_path_factory.mktemp("modules")
    (directory / "shown.py").write_text(SHOWN)
    (directory / "waiting.py").write_text("import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(999)\n")
    (directory / "hooked.py").write_text(HOOKED)
    (directory / "ending.py").write_text("import os\nprint('now', end='')\nos._exit(0)\n")
    return directory


@pytest.fixture(scope="module")
def forked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkedPython]:
    scratch = tmp_path_factory.mktemp("scratch") / ("d" * 100)  # longer than the path of a socket may be
    scratch.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTHONUNBUFFERED", raising=False)
        python = ForkedPython(SETTINGS, scratch=scratch, log_path=scratch / "log")
    yield python
    python.end()
    assert not Path(python.program).exists()


def environment_of(python: ForkedPython) -> dict[str, str]:
    """Return the environment that the server has, or will have: while it executes a program, it has none."""
    server = psutil.Process(python._server.pid)
    found: dict[str, str] = eventually("its environment", server.environ)
    return found


def started(python: ForkedPython, modules: Path, *words: str, **variables: str) -> subprocess.Popen[str]:
    """Start *words* as Spark does: with the environment that the server has, *variables*, and some of Spark's own."""
    pipe = subprocess.PIPE
    known = dict(os.environ) if python._server.poll() is not None else environment_of(python)
    return subprocess.Popen(
        [python.program, *words],
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        text=True,
        cwd=modules.parent,
        env={
            **known,
            "PYTHONPATH": f"/of/spark-core.jar{os.pathsep}{modules}",
            "SPARK_ONLY_HERE": "\udcff",
            **variables,
        },
    )


def test_a_process_has_all_that_spark_gave_it_and_has_loaded_what_it_needs(forked: ForkedPython, modules: Path) -> None:
    process = started(forked, modules, "-m", "shown", "a b", "")
    output, errors = process.communicate("said\n")
    assert (process.returncode, errors) == (7, "shown on\n")
    shown = json.loads(output)
    assert (shown["name"], shown["arguments"], shown["input"]) == ("__main__", ["a b", ""], "said\n")
    assert shown["directory"] == str(modules.parent)
    assert shown["environment"]["SPARK_ONLY_HERE"] == "\udcff"
    assert shown["environment"][LAUNCHER] == str(process.pid), "there the JVM above it is found"
    assert "/of/spark-core.jar" not in shown["path"]
    assert shown["parent"] == forked._server.pid
    loaded = {*shown["loaded"]}
    assert {"pyarrow", "pyspark.worker", "cdc_core.engine.attempt", "adbc_driver_manager.dbapi"} <= loaded
    assert "polars" not in loaded, "it begins threads, which a forked process would lack"


@pytest.mark.parametrize(
    ("module", "threads", "names"),
    [
        ("pyspark.worker", "1", []),
        ("pyspark.worker", "4", ["OMP_NUM_THREADS"]),
        ("pyspark.sql.worker.create_data_source", None, []),
        ("pyspark.sql.streaming.python_streaming_source_runner", "4", []),
    ],
)
def test_only_workers_must_have_the_threads_of_a_task(module: str, threads: str | None, names: list[str]) -> None:
    wanted = {} if threads is None else {"OMP_NUM_THREADS": threads}
    assert too_late({"OMP_NUM_THREADS": "1"}, wanted, module) == names


def test_it_has_no_terminal_at_which_it_could_be_stopped_and_nothing_is_left_when_its_starter_is_killed(
    tmp_path: Path,
) -> None:
    """Of a group in the background, whoever reads from a terminal is stopped."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-c", STARTER, str(tmp_path)])
    try:
        with os.fdopen(terminal, closefd=False) as lines:
            number, program = lines.readline().split()
        server = psutil.Process(int(number))
        eventually("the server without a terminal", lambda: server.terminal() is None)
        assert Path(program).exists()
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(terminal)
    eventually("the end of the server", lambda: not server.is_running() and not Path(program).parent.exists())


def test_what_a_process_prints_is_seen_whatever_becomes_of_it(forked: ForkedPython, modules: Path) -> None:
    process = started(forked, modules, "-m", "ending")
    assert process.communicate()[0] == "now"


def test_a_module_that_is_loaded_runs_without_a_warning(forked: ForkedPython, modules: Path) -> None:
    assert started(forked, modules, "-m", "cdc_core.store.progress").communicate() == ("", "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_process_ends_with_the_one_that_spark_knows(number: int, forked: ForkedPython, modules: Path) -> None:
    with started(forked, modules, "-m", "waiting") as process:
        assert process.stdout is not None
        child = psutil.Process(int(process.stdout.readline()))
        process.send_signal(number)
        eventually("the end of the process", lambda: not child.is_running())


def test_spark_sees_the_end_of_a_process_that_was_killed(forked: ForkedPython, modules: Path) -> None:
    with started(forked, modules, "-m", "waiting") as process:
        assert process.stdout is not None
        os.kill(int(process.stdout.readline()), signal.SIGKILL)
        assert process.wait(60) == 1


def test_what_is_no_module_runs_as_ever(forked: ForkedPython, modules: Path) -> None:
    process = started(forked, modules, "-c", "import sys; print(len(sys.argv), 'pyarrow' in sys.modules)", "one")
    assert process.communicate()[0] == "2 False\n"


def test_without_its_server_it_is_the_real_python(tmp_path: Path, modules: Path) -> None:
    python = ForkedPython({}, scratch=tmp_path, log_path=tmp_path / "log")
    try:
        pid = python._server.pid
        assert (os.getsid(pid), os.getpgid(pid)) == (os.getsid(0), pid)  # who kills the session kills it too
        python._server.kill()
        python._server.wait()
        process = started(python, modules, "-m", "shown")
        output, _ = process.communicate("")
        assert process.returncode == 7
        assert "pyarrow" not in json.loads(output)["loaded"]
    finally:
        python.end()


def test_processes_with_a_session_of_their_own_end_with_their_server(tmp_path: Path, modules: Path) -> None:
    python = ForkedPython({}, scratch=tmp_path, log_path=tmp_path / "log", session=True)
    with started(python, modules, "-m", "waiting") as process:
        assert process.stdout is not None
        child = psutil.Process(int(process.stdout.readline()))
        assert os.getsid(child.pid) == python._server.pid != os.getsid(0)
        python.end()
        assert process.wait(60) == 1
        eventually("the end of the process", lambda: not child.is_running())


def test_it_loads_no_module_of_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyarrow.py").write_text("open('planted', 'w')\n")
    monkeypatch.chdir(tmp_path)
    python = ForkedPython({}, scratch=tmp_path, log_path=tmp_path / "log")
    try:
        process = started(python, tmp_path / "none", "-m", "sysconfig")
        assert "Python version" in process.communicate()[0]  # it is served, so all is loaded
    finally:
        python.end()
    assert not (tmp_path / "planted").exists()


def test_only_its_user_may_ask_it(forked: ForkedPython) -> None:
    assert stat.S_IMODE(Path(forked.program).parent.stat().st_mode) == 0o700


def test_what_is_loaded_sees_the_environment_of_workers(forked: ForkedPython) -> None:
    """OpenBLAS, for example, looks at it only when it is loaded."""
    environment = environment_of(forked)
    assert (environment["OMP_NUM_THREADS"], environment["OPENBLAS_VERBOSE"]) == ("3", "2")
