"""The process that Spark's Python processes on the driver's host are forked from, with what they need loaded already.

Spark starts half a dozen of them one after another before the first row, and each would spend its first second on
loading the same modules. This one loads them while the JVM starts. It ends with its standard input. Only
libraries that know how to fork have threads in it: Arrow's allocator, and OpenBLAS.
"""

from __future__ import annotations

import fcntl
import gc
import json
import os
import runpy
import select
import shutil
import signal
import socket
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

__all__ = ["NAMES", "serve"]

NAMES = {
    "pyspark.worker": "cdc-worker",
    "pyspark.sql.streaming.python_streaming_source_runner": "cdc-planner",
    "pyspark.sql.worker.python_streaming_sink_runner": "cdc-coordinator",
}
"""What `ps` and `top` call the processes that live as long as a changefeed, by the module that they run."""

_OTHER = "cdc-spark"
_LOADED = (
    "pyspark.sql.worker.commit_data_source_write",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.python_streaming_sink_runner",
    "pyspark.sql.worker.write_into_data_source",
    "pyspark.worker",
    "cdc_core.spark.data_sources",
    "cdc_core.spark.source",
    "cdc_core.spark.writer",
    "cdc_core.store.progress",
)
"""What the processes need, except the modules that they run as programs."""
_HIDDEN = ("polars",)
"""What begins threads when it is loaded, as ADBC does wherever it is installed, and is of no use to it with Arrow."""
_LIMIT_S = 5.0


def serve(listening: socket.socket) -> None:
    """Fork a process for each launcher that asks for one, until standard input ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel forgets those that have ended
    poll = select.poll()
    for waited in (0, listening.fileno()):
        poll.register(waited, select.POLLIN)
    while 0 not in (ready := [descriptor for descriptor, _ in poll.poll()]):
        if not ready:
            continue
        launcher, _ = listening.accept()
        with launcher:
            launcher.settimeout(_LIMIT_S)
            try:
                request, descriptors = _received(launcher)
            except (OSError, ValueError):  # the launcher was ended, or hangs
                continue
            launcher.settimeout(None)
            if os.fork() == 0:
                listening.close()
                _run(launcher, request, descriptors)
            for descriptor in descriptors:
                os.close(descriptor)


def _received(launcher: socket.socket) -> tuple[dict[str, Any], Sequence[int]]:
    """Return what is to run, and its standard input, output and error."""
    size, descriptors, _, _ = socket.recv_fds(launcher, 4, 3)
    try:
        with launcher.makefile("rb") as stream:
            return json.loads(stream.read(int.from_bytes(size, "big"))), descriptors
    except BaseException:
        for descriptor in descriptors:
            os.close(descriptor)
        raise


def _run(launcher: socket.socket, request: dict[str, Any], descriptors: Sequence[int]) -> None:
    """Become the process that was asked for, and end with it. Does not return."""
    status = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
            os.close(descriptor)
        os.chdir(request["directory"])
        os.environ.clear()
        os.environ.update(request["environment"])
        time.tzset()
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
        status = 0
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the module's handler must not prevent the end
        with suppress(OSError, ValueError):
            sys.stdout.flush()
        with suppress(OSError, ValueError):
            launcher.sendall(bytes([status & 0xFF]))
        os._exit(status & 0xFF)


def _end_with(launcher: socket.socket) -> None:
    """Have the kernel end this process when *launcher* ends, which Spark takes for it. No child is ended with it."""
    fcntl.fcntl(launcher, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(launcher, fcntl.F_SETSIG, signal.SIGTERM)
    fcntl.fcntl(launcher, fcntl.F_SETFL, fcntl.fcntl(launcher, fcntl.F_GETFL) | os.O_ASYNC)


def _add_places(python_path: str) -> None:
    """Look for modules in *python_path* too. Spark names its jar there, which has none that is not installed."""
    places = [place for place in python_path.split(os.pathsep) if place and not place.endswith(".jar")]
    sys.path[1:1] = [place for place in places if place not in sys.path]


def _load(modules: Sequence[str]) -> None:
    """Load plugins' *modules*, except when one begins a thread, which would be missing in processes that are forked.

    Those that fail do so again in the process that needs them, which says why.
    """
    before = len(os.listdir("/proc/self/task"))
    hidden = {name: None for name in _HIDDEN if name not in sys.modules}
    sys.modules.update(hidden)  # type: ignore[arg-type]
    for module in modules:
        with suppress(Exception):
            import_module(module)
    for name in hidden:
        del sys.modules[name]
    if len(os.listdir("/proc/self/task")) > before:
        os.execv(sys.executable, [*sys.orig_argv[: -len(modules)]])


if __name__ == "__main__":
    descriptor, directory, *modules = sys.argv[1:]
    for module in _LOADED:
        import_module(module)
    _load(modules)
    gc.collect()
    gc.freeze()  # a collection in a child would write to every page of it
    with socket.socket(fileno=int(descriptor)) as listening:
        serve(listening)
    shutil.rmtree(directory, ignore_errors=True)  # who started it may have been killed
