"""Servers of the demo and of tests: a directory, a process, starting and ending."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from cdc_sink_kafka.demo.java_process import gist, start_java

_START_LIMIT_S = 300.0
_STOP_LIMIT_S = 30.0


class Server(ABC):
    """A context manager: it starts the server, ends it, and removes its directory if that is temporary."""

    def __init__(self, directory: Path | None, *, prefix: str) -> None:
        """Use *directory*, or a temporary directory whose name begins with *prefix*."""
        self._temporary = directory is None
        self.directory = Path(tempfile.mkdtemp(prefix=prefix)) if directory is None else directory.absolute()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @abstractmethod
    def start(self) -> None:
        """Return when the server answers.

        Raises: RuntimeError with the end of the log when it does not start; ConfigError when Java or Maven is missing.
        """

    @abstractmethod
    def kill(self) -> None:
        """Kill the server. `start` may follow. May be called when it is not running."""

    def close(self) -> None:
        """Kill the server and remove its directory if that is temporary. May be called twice."""
        self.kill()
        if self._temporary:
            shutil.rmtree(self.directory, ignore_errors=True)


class JavaServer(Server):
    """A server that is one process. Only one thread at a time may use it. A restarted server keeps its ports.

    It is killed when this process ends, in whatever way.
    """

    def __init__(self, name: str, directory: Path | None, *, prefix: str) -> None:
        """*name* is for messages."""
        super().__init__(directory, prefix=prefix)
        self.log_path = self.directory / "server.log"
        self._name = f"{name} in {self.directory}"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Process id of the running server."""
        assert self._process is not None, f"{self._name} is not running"
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether there is a process. It may be paused."""
        return self._process is not None and self._process.poll() is None

    def stop(self) -> None:
        """Terminate the server; kill it when that takes too long. May be called twice."""
        if self._process is not None and self.running:
            self.resume()
            os.kill(self.pid, signal.SIGTERM)
            try:
                self._process.wait(_STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                self.kill()
        self._process = None

    def kill(self) -> None:
        """Kill the server and return when it has ended. May be called when it is not running."""
        if self._process is not None and self.running:
            os.kill(self.pid, signal.SIGKILL)
            self._process.wait(_STOP_LIMIT_S)
        self._process = None

    def pause(self) -> None:
        """Suspend the server (SIGSTOP): connections stay open and nothing answers, until `resume`."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Continue a paused server."""
        os.kill(self.pid, signal.SIGCONT)

    def _launch(
        self, arguments: Sequence[str], *, ready: Callable[[], bool], environment: Mapping[str, str] | None = None
    ) -> None:
        """Run `java` with *arguments*, call *ready* repeatedly, and return when it returns true.

        Raises: RuntimeError with the end of the log when the program ends before that or is not ready in time;
        ConfigError when there is no Java.
        """
        assert not self.running, f"{self._name} is already running"
        with self.log_path.open("ab") as log:
            self._process = start_java(arguments, self.directory, output=log, environment=environment)
        deadline = time.monotonic() + _START_LIMIT_S
        pause = threading.Event()
        while not ready():
            if not self.running or time.monotonic() > deadline:
                how = "takes too long to start" if self.running else "ended while starting"
                self.kill()
                raise RuntimeError(f"{self._name} {how}: {gist(self.log_path.read_text(errors='replace'))}")
            pause.wait(0.02)
