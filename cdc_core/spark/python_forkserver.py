"""The process that Spark's Python processes on the driver's host are forked from, with what they need loaded already.

Spark starts half a dozen of them one after another before the first row, and each would spend its first second on
loading the same modules. This one loads them while the JVM starts. It ends with its standard input. Only libraries
that know how to fork have threads in it: Arrow's allocator, and OpenBLAS.

A process with variables that this one does not have, such as those that only `spark-env.sh` sets, is not forked: what
is loaded has looked at its environment already.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import json
import logging
import os
import runpy
import select
import shutil
import signal
import socket
import sys
import termios
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)

NAMES = {
    "pyspark.worker": "cdc-worker",
    "pyspark.sql.streaming.python_streaming_source_runner": "cdc-planner",
    "pyspark.sql.worker.python_streaming_sink_runner": "cdc-coordinator",
}
"""What `ps` and `top` call the processes that live as long as a changefeed, by the module that they run."""

_OTHER = "cdc-spark"
_LOADED = (
    "pyarrow.fs",
    "pyspark.sql.worker.commit_data_source_write",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.python_streaming_sink_runner",
    "pyspark.sql.worker.write_into_data_source",
    "pyspark.worker",
    "cdc_core.spark.data_sources",
    "cdc_core.spark.query_layout",
    "cdc_core.store.progress",
)
"""What the processes need, except the modules that they run as programs."""
_OF_SPARK = (
    "PYSPARK_",
    "PYTHON_DAEMON_",
    "PYTHON_FAULTHANDLER_",
    "PYTHON_TRACEBACK_",
    "PYTHON_UDF_",
    "PYTHON_UNIX_DOMAIN_",
    "PYTHON_WORKER_",
    "SPARK_",
    "_PYSPARK_",
    "_SPARK_",
)
"""How the variables begin that Spark gives each process for itself, and reads when the process runs."""
_OF_NO_LIBRARY = frozenset(
    {"JDK_JAVA_OPTIONS", "OLDPWD", "PWD", "PYTHONPATH", "PYTHONSAFEPATH", "PYTHONUNBUFFERED", "SHLVL", "_"}
)
"""Variables of Java and of shells, and what a forked process is given in another way."""
_ONLY_OF_WORKERS = "OMP_NUM_THREADS"
_WORKER = "pyspark.worker"
_LIMIT_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a forked process is to run, for the *launcher* that asked for it."""

    launcher: socket.socket
    request: Mapping[str, Any]
    descriptors: Sequence[int]
    """Its standard input, output and error."""


class End:
    """The end of a forked process: its launcher learns its status when all is done that Python does at its end.

    Made before anything is loaded: hooks of `atexit` run in the opposite order, and this one does not return.
    """

    def __init__(self) -> None:
        self.status = 0
        self._launcher: socket.socket | None = None
        atexit.register(self._tell)

    def told_to(self, launcher: socket.socket) -> None:
        """Have *launcher* told, in this process only."""
        self._launcher = launcher

    def _tell(self) -> None:
        if self._launcher is None or self._launcher.fileno() < 0:  # the server, or a child of a forked process
            return
        logging.shutdown()
        for stream in (sys.stdout, sys.stderr):
            with suppress(AttributeError, OSError, ValueError):
                stream.flush()
        with suppress(OSError):
            self._launcher.sendall(bytes([self.status & 0xFF]))
        os._exit(self.status & 0xFF)  # without freeing one by one what the server has loaded


def serve(listening: socket.socket) -> Asked | None:
    """Fork a process for each launcher that asks for one; return None when standard input ends.

    In the forked process, return what it is to run.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel forgets those that have ended
    poll = select.poll()
    for waited in (0, listening.fileno()):
        poll.register(waited, select.POLLIN)
    while 0 not in (ready := [descriptor for descriptor, _ in poll.poll()]):
        if not ready:
            continue
        launcher, _ = listening.accept()
        launcher.settimeout(_LIMIT_S)
        try:
            asked = _received(launcher)
        except (OSError, ValueError):  # the launcher was ended, or hangs
            launcher.close()
            continue
        launcher.settimeout(None)
        _, *words = asked.request["arguments"]
        if names := too_late(os.environ, asked.request["environment"], words[-1]):
            log.warning(
                "cannot reuse the preloaded Python for %s: environment variables differ: %s",
                " ".join(words),
                ", ".join(names),
            )
        elif os.fork() == 0:
            return asked
        launcher.close()  # if nothing was forked, it runs the real Python
        for descriptor in asked.descriptors:
            os.close(descriptor)
    return None


def too_late(ours: Mapping[str, str], wanted: Mapping[str, str], module: str) -> list[str]:
    """Return the names of the variables for which *wanted* differs from *ours*, if a library may have looked at them.

    *module*, the last word of a command, is to run with *wanted*. Shells leave out variables whose names are none to
    them.
    """
    names = {name for name in ours.keys() | wanted.keys() if ours.get(name) != wanted.get(name)}
    if module != _WORKER:
        names.discard(_ONLY_OF_WORKERS)
    return sorted(
        name for name in names if name.isidentifier() and name not in _OF_NO_LIBRARY and not name.startswith(_OF_SPARK)
    )


def _received(launcher: socket.socket) -> Asked:
    """Return what *launcher* asks for."""
    size, descriptors, _, _ = socket.recv_fds(launcher, 4, 3)
    try:
        with launcher.makefile("rb") as stream:
            request = json.loads(stream.read(int.from_bytes(size, "big")))
        return Asked(launcher=launcher, request=request, descriptors=descriptors)
    except BaseException:
        for descriptor in descriptors:
            os.close(descriptor)
        raise


def run(asked: Asked, end: End) -> None:
    """Run what was *asked* for in this process, which was forked for it, and give *end* its status."""
    from cdc_core.engine.host_requirements import LAUNCHER  # after `End` was made

    launcher, request = asked.launcher, asked.request
    end.status = 1
    end.told_to(launcher)
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for number, descriptor in enumerate(asked.descriptors):
            os.dup2(descriptor, number)
            os.close(descriptor)
        os.chdir(request["directory"])
        os.environ.clear()
        os.environ.update(request["environment"], **{LAUNCHER: str(request["process"])})
        os.register_at_fork(after_in_child=launcher.close)
        _end_with(launcher)
        launcher.sendall(b"\1")
        _, module, *arguments = request["arguments"]
        with suppress(OSError):
            Path("/proc/self/comm").write_text(NAMES.get((module, *arguments)[-1], _OTHER))
        _add_places(os.environ.get("PYTHONPATH", ""))
        sys.argv = [module, *arguments]
        sys.modules.pop(module, None)  # runpy warns of one that is loaded
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        end.status = 0
    except SystemExit as ended:
        end.status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        if ended.code is not None and not isinstance(ended.code, int):
            sys.stderr.write(f"{ended.code}\n")
    except BaseException:
        traceback.print_exc()
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the module's handler must not prevent the end


def _end_with(launcher: socket.socket) -> None:
    """Have the kernel end this process when *launcher* ends, which Spark takes for it. No child is ended with it."""
    fcntl.fcntl(launcher, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(launcher, fcntl.F_SETSIG, signal.SIGTERM)
    fcntl.fcntl(launcher, fcntl.F_SETFL, fcntl.fcntl(launcher, fcntl.F_GETFL) | os.O_ASYNC)


def _add_places(python_path: str) -> None:
    """Look for modules in *python_path* too. Spark names its jar there, which has none that is not installed."""
    places = [place for place in python_path.split(os.pathsep) if place and not place.endswith(".jar")]
    sys.path[1:1] = [place for place in places if place not in sys.path]


def _leave_terminal() -> None:
    """Have no terminal: a process of the background that reads from it, as for a passphrase, would be stopped."""
    with suppress(OSError):
        terminal = os.open("/dev/tty", os.O_RDWR)
        try:
            fcntl.ioctl(terminal, termios.TIOCNOTTY)
        finally:
            os.close(terminal)


def _load_adbc() -> None:
    """Load ADBC, if it is installed, without Polars, which it loads if that is, and needs for nothing but Polars' data.

    Polars begins threads, and takes 20 MB in each process.
    """
    sys.modules["polars"] = None  # type: ignore[assignment]
    with suppress(ImportError):
        import_module("adbc_driver_manager.dbapi")
    del sys.modules["polars"]


if __name__ == "__main__":
    descriptor, directory = sys.argv[1:]
    end = End()
    _leave_terminal()
    for module in _LOADED:
        import_module(module)
    _load_adbc()
    gc.collect()
    gc.freeze()  # a collection in a child would write to every page of it
    with socket.socket(fileno=int(descriptor)) as listening:
        asked = serve(listening)
    if asked is None:
        shutil.rmtree(directory, ignore_errors=True)  # who started it may have been killed
    else:
        run(asked, end)
