"""Java programs, each in a directory of its own, that end with this process; and ports for them."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from secrets import randbelow
from typing import IO

from cdc_core import ConfigError

_SMALL = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Xms32m")
# Linux kills such a child when the *thread* that started it ends. This thread lives as long as the interpreter.
_launcher = ThreadPoolExecutor(max_workers=1, thread_name_prefix="java-launcher")


def run_java(name: str, arguments: Sequence[str], *, cwd: Path) -> str:
    """Run a Java program to its end and return its output. Raises: RuntimeError with the output when it fails."""
    process = start_java(arguments, cwd, output=subprocess.PIPE)
    printed = process.communicate()[0].decode(errors="replace")
    if process.returncode != 0:
        raise RuntimeError(f"{name} failed: {gist(printed)}")
    return printed


def gist(log: str) -> str:
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
            " install Java (Debian: apt-get install default-jre-headless)"
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


def start_java(
    arguments: Sequence[str], cwd: Path, *, output: int | IO[bytes], environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start `java` with *arguments*. It is killed when this process ends, in whatever way. Raises: ConfigError."""
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
