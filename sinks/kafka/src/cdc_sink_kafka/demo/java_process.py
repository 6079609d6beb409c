"""A Java program in a directory of its own that can be killed, stopped, paused and restarted."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from secrets import randbelow
from typing import IO

from cdc_core import ConfigError

__all__ = ["JavaProcess", "free_port", "java", "run_java"]

_SMALL = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Xms32m")
_START_LIMIT_S = 300.0
_STOP_LIMIT_S = 30.0
# Linux kills such a child when the *thread* that started it ends. This thread lives as long as the interpreter.
_launcher = ThreadPoolExecutor(max_workers=1, thread_name_prefix="java-launcher")


class JavaProcess:
    """One program. `start` may follow `kill` and `stop`. *name* is for messages; the output goes to *log_path*.

    The program is killed when this process ends, in whatever way. Not safe for use from several threads at once.
    """

    def __init__(self, name: str, log_path: Path) -> None:
        self.name = name
        self.log_path = log_path
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Process id of the running program."""
        assert self._process is not None, f"{self.name} is not running"
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether there is a process; it may be paused."""
        return self._process is not None and self._process.poll() is None

    def start(
        self, arguments: Sequence[str], *, ready: Callable[[], bool], environment: Mapping[str, str] | None = None
    ) -> None:
        """Run `java` with *arguments*, call *ready* repeatedly, and return when it returns true.

        Raises: RuntimeError with the end of the log when the program ends before that or is not ready in time;
        ConfigError when there is no Java.
        """
        assert not self.running, f"{self.name} is already running"
        with self.log_path.open("ab") as log:
            self._process = _spawn(arguments, self.log_path.parent, output=log, environment=environment)
        deadline = time.monotonic() + _START_LIMIT_S
        pause = threading.Event()
        while not ready():
            if not self.running or time.monotonic() > deadline:
                how = "takes too long to start" if self.running else "ended while starting"
                self.kill()
                raise RuntimeError(f"{self.name} {how}: {self._log_tail()}")
            pause.wait(0.02)

    def stop(self) -> None:
        """Terminate the program; kill it when that takes too long. May be called twice."""
        if self.running:
            self.resume()
            os.kill(self.pid, signal.SIGTERM)
            try:
                self._wait(_STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                self.kill()
        self._process = None

    def kill(self) -> None:
        """Kill the program and return when it has ended. May be called when it is not running."""
        if self.running:
            os.kill(self.pid, signal.SIGKILL)
            self._wait(_STOP_LIMIT_S)
        self._process = None

    def pause(self) -> None:
        """Suspend the program (SIGSTOP): connections stay open and nothing answers, until `resume`."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Continue a paused program."""
        os.kill(self.pid, signal.SIGCONT)

    def _wait(self, limit_s: float) -> None:
        assert self._process is not None
        self._process.wait(limit_s)

    def _log_tail(self) -> str:
        return _gist(self.log_path.read_text(errors="replace"))


def run_java(name: str, arguments: Sequence[str], *, cwd: Path) -> str:
    """Run a Java program to its end and return its output. Raises: RuntimeError with the output when it fails."""
    process = _spawn(arguments, cwd, output=subprocess.PIPE)
    printed = process.communicate()[0].decode(errors="replace")
    if process.returncode != 0:
        raise RuntimeError(f"{name} failed: {_gist(printed)}")
    return printed


def _gist(log: str) -> str:
    """Return the last lines of *log*, without the frames of Java's stack traces."""
    lines = [line for line in log.splitlines() if not line.lstrip().startswith(("at ", "... "))]
    return "\n".join(lines[-15:])


def java() -> str:
    """Return the path of the Java launcher. Raises: ConfigError when there is none."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(str(Path(home) / "bin" / "java") if home else "java")
    if found is None:
        raise ConfigError(
            "the Kafka broker and the registry need Java 17 or newer, but there is no java on PATH or in JAVA_HOME;"
            " install it (Debian: apt-get install default-jre-headless)"
        )
    return found


def free_port() -> int:
    """Return a free loopback port below the range that the system uses for outgoing connections.

    Only such a port is still free when a server restarts on it: from that range, a client that reconnects in the
    meantime could be given the very port that it connects to.
    """
    low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = low // 2 + randbelow(low // 2)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def _spawn(
    arguments: Sequence[str], cwd: Path, *, output: int | IO[bytes], environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    if shutil.which("setpriv") is None:
        raise ConfigError("setpriv, which ends the servers together with this process, is missing; install util-linux")
    return _launcher.submit(
        subprocess.Popen,
        ["setpriv", "--pdeathsig", "KILL", java(), *_SMALL, *arguments],
        cwd=cwd,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ).result()
