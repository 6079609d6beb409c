"""Servers of the demo and of tests: a directory, a process, starting and ending."""

from __future__ import annotations

import shutil
import tempfile
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import Self

from cdc_sink_kafka.demo.java_process import JavaProcess

__all__ = ["JavaServer", "Server"]


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
    """A server that is one process. Only one thread at a time may use it. A restarted server keeps its ports."""

    def __init__(self, name: str, directory: Path | None, *, prefix: str) -> None:
        super().__init__(directory, prefix=prefix)
        self.log_path = self.directory / "server.log"
        self._process = JavaProcess(f"{name} in {self.directory}", self.log_path)

    @property
    def pid(self) -> int:
        """Process id of the running server."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether there is a process. It may be paused."""
        return self._process.running

    def stop(self) -> None:
        """Terminate the server. `start` may follow. May be called twice."""
        self._process.stop()

    def kill(self) -> None:
        self._process.kill()

    def pause(self) -> None:
        """Suspend the server (SIGSTOP): connections stay open and nothing answers, until `resume`."""
        self._process.pause()

    def resume(self) -> None:
        """Continue a paused server."""
        self._process.resume()
