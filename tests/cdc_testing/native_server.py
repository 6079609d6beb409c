"""A server that is one process: it begins, is killed, paused and begun again at the same place and address."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from cdc_sink_kafka.demo.java_server import Server

_START_LIMIT_S = 300.0
_STOP_LIMIT_S = 120.0
_POLL_S = 0.02
# Linux ends such a child already when the *thread* that started it ends. This one ends with the interpreter.
_launcher = ThreadPoolExecutor(max_workers=1, thread_name_prefix="server-launcher")


class NativeServer(Server):
    """Lives in a temporary directory and dies with us, however we end. Ports are kept from start to start."""

    def __init__(self, *, prefix: str) -> None:
        super().__init__(None, prefix=prefix)
        self.log_path = self.directory / "server.log"
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def command(self) -> Sequence[str]:
        """Return the program and its arguments."""

    @abstractmethod
    def answers(self) -> bool:
        """Return whether the server is ready for work."""

    def environment(self) -> Mapping[str, str]:
        """Return what the program's environment has besides ours."""
        return {}

    @property
    def pid(self) -> int:
        """Process id of the running server."""
        assert self._process is not None, f"{type(self).__name__} is not running"
        return self._process.pid

    def start(self) -> None:
        assert self._process is None, f"{type(self).__name__} runs already"
        with self.log_path.open("ab") as log:
            self._process = _launcher.submit(
                subprocess.Popen,
                ["setpriv", "--pdeathsig", "KILL", *self.command()],
                cwd=self.directory,
                env={**os.environ, **self.environment()},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            ).result()
        deadline = time.monotonic() + _START_LIMIT_S
        pause = threading.Event()
        while not self.answers():
            ended = self._process.poll() is not None
            if ended or time.monotonic() > deadline:
                self.kill()
                log_tail = "\n".join(self.log_path.read_text(errors="replace").splitlines()[-15:])
                how = "ended while starting" if ended else "takes too long to start"
                raise RuntimeError(f"{type(self).__name__} {how}: {log_tail}")
            pause.wait(_POLL_S)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._process = None

    def stop(self) -> None:
        """End the server in order. `start` may follow."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(_STOP_LIMIT_S)
        self._process = None

    def pause(self) -> None:
        """Stop the server where it is (SIGSTOP): connections stay open and nothing answers, until `resume`."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused server go on."""
        os.kill(self.pid, signal.SIGCONT)
