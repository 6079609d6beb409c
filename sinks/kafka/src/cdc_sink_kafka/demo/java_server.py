"""What the servers of demo and tests share: a directory, a process, and the ways in which they begin and end."""

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
    """Entering starts it; leaving ends it and removes its directory when that is a temporary one."""

    def __init__(self, directory: Path | None, *, prefix: str) -> None:
        """Take where it lives; without *directory* that is a temporary one whose name begins with *prefix*."""
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

        Raises: RuntimeError with the log's tail when it does not come up; ConfigError when Java or Maven is missing.
        """

    @abstractmethod
    def kill(self) -> None:
        """End the server by SIGKILL. `start` may follow. May be called when it is not running."""

    def close(self) -> None:
        """End the server at once and remove its directory when that is a temporary one. May be called twice."""
        self.kill()
        if self._temporary:
            shutil.rmtree(self.directory, ignore_errors=True)


class JavaServer(Server):
    """A server that is one process. It belongs to one thread at a time; ports are kept from start to start."""

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
        """Whether there is a process; it may be paused."""
        return self._process.running

    def stop(self) -> None:
        """End the server in order. `start` may follow. May be called twice."""
        self._process.stop()

    def kill(self) -> None:
        self._process.kill()

    def pause(self) -> None:
        """Stop the server where it is (SIGSTOP): connections stay open and nothing answers, until `resume`."""
        self._process.pause()

    def resume(self) -> None:
        """Let a paused server go on."""
        self._process.resume()
