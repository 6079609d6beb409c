"""Spark's JVM: its start as a child process that never outlives a failed start, and its end."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from shlex import quote
from tempfile import mkdtemp

from cdc_core.engine.process_session import kill_session
from cdc_core.engine.run_control import Stopped
from cdc_core.errors import ConfigError, TerminalError
from cdc_core.spark import python_launcher
from cdc_core.spark.class_archive import is_installed
from cdc_core.spark.host_limits import host_memory
from cdc_core.spark.log_file import last_words, open_log
from cdc_core.spark.private_api import connect, disconnect, jvm_process, spark_home

LOOPBACK = "127.0.0.1"
_POLL_S = 0.02
_PYTHON = "python-of-cdc"
"""The name of the program of a ForkedPython, in a directory that comes first in the PATH of those who start it."""
_NO_PYTHON = "none-of-cdc"
"""A program that is nowhere. Spark would ask its Python, in two processes, for data sources to load by itself."""

_forked: list[ForkedPython] = []  # that of the JVM, if it has one


def start_jvm(
    settings: Mapping[str, str],
    *,
    home: Path | None,
    log_path: Path,
    scratch: Path | None,
    python_path: Sequence[str],
    wanted: Callable[[], bool],
) -> None:
    """Start the JVM with *settings*, and give it to pyspark for all sessions of this process.

    Its output goes to *log_path*. Without *home* it is the Spark that pyspark finds. Python workers on this host look
    for packages in *python_path* too. With *scratch*, a directory for temporary files, there is a `forked_python` if
    possible and the Spark is that of our pyspark: for all of them, or, on a cluster of nodes, for the driver's. Called
    from any thread. When this raises, whatever it raises, the JVM has ended: pyspark's own way leaves one that is still
    starting to itself.

    Raises: ConfigError when there is no Spark; TerminalError when the JVM ends before it is ready; Stopped when it is
    no longer *wanted* before.
    """
    place = str(home or os.environ.get("SPARK_HOME") or spark_home())
    program = str(Path(place, "bin", "spark-submit"))
    if not os.access(program, os.X_OK):
        raise ConfigError(f"SPARK_HOME is '{place}', which has no program bin/spark-submit; correct or unset it")
    arguments = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
    with tempfile.TemporaryDirectory(prefix="cdc-") as directory, open_log(log_path) as log:
        connection = Path(directory) / "connection"
        own = {"SPARK_HOME": place, "SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(connection)}
        own["PYTHONSAFEPATH"] = "1"  # others may be able to put modules into the working directory
        if local := settings.get("spark.master", "").startswith("local"):
            own["SPARK_LOCAL_IP"] = os.environ.get("SPARK_LOCAL_IP", LOOPBACK)  # where Spark's pages listen
        if python_path:
            own["PYTHONPATH"] = os.pathsep.join(python_path)
        if scratch is not None:
            own["PYSPARK_DRIVER_PYTHON"] = _NO_PYTHON
            if is_installed(Path(place)):
                with suppress(OSError):
                    _forked.append(ForkedPython(settings if local else {}, scratch=scratch, log_path=log_path))
                    own["PATH"] = _forked[0].path
                    settings = {**_forked[0].socket_settings, **settings} if local else settings
        # The JVM ends when its standard input does, so also when this process is killed.
        try:
            conf = (word for key, value in settings.items() for word in ("--conf", f"{key}={value}"))
            jvm = subprocess.Popen(
                [program, *conf, *arguments],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={**os.environ, **own},
                # A signal to the group, as of a terminal or of `timeout`, is for this process, which ends the step.
                process_group=0,
            )
        except BaseException:
            _end_forked()
            raise
        try:
            while not connection.exists():
                if not wanted():
                    raise Stopped
                with suppress(subprocess.TimeoutExpired):
                    status = jvm.wait(_POLL_S)
                    raise TerminalError(
                        f"Spark's JVM ended with status {status} before it was ready; "
                        + (_killed(status) or f"see {log_path}, which ends with: {last_words(log_path)}")
                    )
            connect(connection, jvm)
        except BaseException:
            _end(jvm, grace_s=0.0)
            _end_forked()
            raise


def forked_python() -> str | None:
    """Return the name of a Python that starts at once, for the JVM's processes on this host; None if it has none."""
    return _PYTHON if _forked else None


def jvm_death() -> str | None:
    """Return what to say of a JVM that was killed, as its log does not; None when it is alive or ended otherwise."""
    jvm = jvm_process()
    return None if jvm is None else _killed(jvm.poll())


def _killed(status: int | None) -> str | None:
    if status != -signal.SIGKILL:
        return None
    memory = f"{host_memory() / 2**30:.1f} GB"
    return f"it was killed (SIGKILL). If memory ran out, give this host or container more than its {memory}"


def forget_jvm(*, grace_s: float) -> None:
    """End the JVM, if there is one, so that the next session starts another."""
    jvm = jvm_process()
    disconnect()
    if jvm is not None:
        _end(jvm, grace_s=grace_s)
    _end_forked()


def _end_forked() -> None:
    while _forked:
        _forked.pop().end()


def _end(jvm: subprocess.Popen[bytes], *, grace_s: float) -> None:
    """Return when *jvm* has ended. One that is healthy cleans up first, within *grace_s*."""
    if jvm.stdin is not None:
        with suppress(OSError):
            jvm.stdin.close()
    try:
        with suppress(subprocess.TimeoutExpired):
            jvm.wait(grace_s)
    finally:
        jvm.kill()
        jvm.wait()


_FOR_WORKERS = "spark.executorEnv."


class ForkedPython:
    """A server that forks, and the program that has it do so, in a directory of *scratch* that only this user can read.

    Made before the JVM that starts the program, and ended after it. What the processes print goes to the JVM, what the
    server prints to *log_path*. The server's environment is what Spark's *settings* give workers, as some variables
    count when Python or a library is loaded. A server that ends too early costs its processes a second each. With
    *session* all of them are in one of their own, and end with it.

    Raises: OSError when this host has no room for it, or is not Linux.
    """

    def __init__(self, settings: Mapping[str, str], *, scratch: Path, log_path: Path, session: bool = False) -> None:
        self._directory = Path(mkdtemp(prefix="python-", dir=scratch.absolute()))
        self._descriptor = os.open(self._directory, os.O_RDONLY)
        self._has_session = session
        try:
            self._server = self._start({**_environment(settings), "PATH": self.path}, log_path)
        except BaseException:
            self._remove()
            raise

    @property
    def program(self) -> str:
        """The path to give to Spark as that of its Python."""
        return str(self._directory / _PYTHON)

    @property
    def path(self) -> str:
        """The variable PATH with which a process finds the program by its name."""
        return os.pathsep.join([str(self._directory), os.environ.get("PATH", os.defpath)])

    @property
    def socket_settings(self) -> dict[str, str]:
        """The settings with which the JVM and its Python processes on this host talk over sockets in the directory.

        Over TCP, tasks wait for delayed acknowledgements: 40 ms in each step. The path is short enough for a socket.
        """
        directory = f"/proc/{os.getpid()}/fd/{self._descriptor}"
        return {"spark.python.unix.domain.socket.enabled": "true", "spark.python.unix.domain.socket.dir": directory}

    def end(self) -> None:
        """Return when the server has ended. Processes that it has forked keep running until their JVM ends them, unless
        they have a session.
        """
        assert self._server.stdin is not None
        self._server.stdin.close()
        self._server.kill()
        if self._has_session:
            kill_session(self._server.pid)
        self._server.wait()
        self._remove()

    def _remove(self) -> None:
        os.close(self._descriptor)
        shutil.rmtree(self._directory, ignore_errors=True)

    def _start(self, environment: Mapping[str, str], log_path: Path) -> subprocess.Popen[bytes]:
        words = (sys.executable, "-I", "-S", python_launcher.__file__, str(self._directory), sys.executable)
        program = Path(self.program)
        program.write_text(f'#!/bin/sh\nexec {" ".join(map(quote, words))} "$@"\n')
        program.chmod(0o700)
        if not os.access(program, os.X_OK):
            raise PermissionError(f"no program may run in {self._directory}")
        server = "cdc_core.spark.python_forkserver"
        with socket.socket(socket.AF_UNIX) as listening, open_log(log_path) as log:
            with python_launcher.reached(str(self._directory)) as place:
                listening.bind(place)
            listening.listen(64)
            return subprocess.Popen(
                [sys.executable, "-P", "-u", "-m", server, str(listening.fileno()), str(self._directory)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=environment,
                pass_fds=[listening.fileno()],
                # Ctrl-C at a terminal is for this process; in its session, `kill_session` finds it.
                process_group=None if self._has_session else 0,
                start_new_session=self._has_session,
            )


def _environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the environment that a worker would begin with."""
    threads = {"OMP_NUM_THREADS": settings.get("spark.task.cpus", "1")}
    given = {key.removeprefix(_FOR_WORKERS): value for key, value in settings.items() if key.startswith(_FOR_WORKERS)}
    return {"PYTHONHASHSEED": "0", **os.environ, **threads, **given}
