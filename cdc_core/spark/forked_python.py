"""A Python for Spark's processes on this host that starts without loading anything: see `python_forkserver`."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from tempfile import mkdtemp

from cdc_core.spark import python_launcher
from cdc_core.spark.log_file import open_log

__all__ = ["ForkedPython"]

_FOR_WORKERS = "spark.executorEnv."


class ForkedPython:
    """A server that forks, and the program that has it do so, in a directory of *scratch* that only this user can read.

    Made before the JVM that starts the program, and ended after it. What the processes print goes to the JVM, what the
    server prints to *log_path*. The server's environment is what Spark's *settings* give workers, as some variables
    count when Python or a library is loaded. A server that ends too early costs its processes a second each.

    Raises: OSError when this host has no room for it, or is not Linux.
    """

    def __init__(self, settings: Mapping[str, str], *, scratch: Path, log_path: Path) -> None:
        self._directory = Path(mkdtemp(prefix="python-", dir=scratch.absolute()))
        try:
            self._server = self._start(_environment(settings), log_path)
        except BaseException:
            shutil.rmtree(self._directory, ignore_errors=True)
            raise

    @property
    def program(self) -> str:
        """The path to give to Spark as that of its Python."""
        return str(self._directory / "python")

    def end(self) -> None:
        """Return when the server has ended. Processes that it has forked go on; their JVM ends them."""
        assert self._server.stdin is not None
        self._server.stdin.close()
        self._server.kill()
        self._server.wait()
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
                process_group=0,  # Ctrl-C at a terminal is for this process; in its session, `kill_session` finds it
            )


def _environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the environment that a worker would begin with."""
    threads = {"OMP_NUM_THREADS": settings.get("spark.task.cpus", "1")}
    given = {key.removeprefix(_FOR_WORKERS): value for key, value in settings.items() if key.startswith(_FOR_WORKERS)}
    return {"PYTHONHASHSEED": "0", **os.environ, **threads, **given}
