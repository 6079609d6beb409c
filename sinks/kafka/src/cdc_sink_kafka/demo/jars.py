"""Apache Kafka and the Apicurio registry from Maven, kept in a directory of the user's cache."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

from cdc_core import ConfigError

KAFKA_VERSION = "4.3.0"
REGISTRY_VERSION = "2.6.13.Final"

_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"
_REGISTRY = f"io.apicurio:apicurio-registry-app:{REGISTRY_VERSION}:tar.gz:all"


def pom(name: str, *artifacts: str) -> str:
    """Return the file in which Maven reads what *name* requires: *artifacts*, each as `group:artifact:version`."""
    required = "".join(
        f"    <dependency>\n      <groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version>\n    </dependency>\n"
        for group, artifact, version in (each.split(":") for each in artifacts)
    )
    return f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>cdc</groupId><artifactId>{name}</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
{required}  </dependencies>
</project>
"""


# Kafka logs through SLF4J but has no binding for it. Without one, a broker that fails logs nothing.
_KAFKA_POM = pom(
    "kafka-server",
    f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}",
    "org.slf4j:slf4j-simple:1.7.36",
)


def kafka_jars() -> Path:
    """Return the directory of the jars that a broker needs. The first call on a machine downloads them.

    Raises: ConfigError when they cannot be downloaded.
    """
    return jars_of(f"kafka-{KAFKA_VERSION}", _KAFKA_POM, what="Apache Kafka")


def jars_of(name: str, pom: str, *, what: str) -> Path:
    """Return the directory of the jars that *pom* requires, kept as *name*. The first call on a machine downloads them.

    Raises: ConfigError, which says *what* could not be downloaded.
    """
    recipe = hashlib.sha256(pom.encode()).hexdigest()[:8]
    return _cached(f"{name}-{recipe}", lambda target: _fetch_jars(target, pom, what=what))


def registry_home() -> Path:
    """Return the directory of the registry. The first call on a machine downloads it. Raises: ConfigError."""
    return _cached(f"apicurio-registry-{REGISTRY_VERSION}", _fetch_registry)


def _cached(name: str, fetch: Callable[[Path], None]) -> Path:
    """Return the directory *name* of the cache. *fetch* fills a new one, in only one process of the machine."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cdc-servers"
    home = cache / name
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = cache.stat()
    if found.st_uid not in (0, os.geteuid()) or found.st_mode & 0o022:
        raise ConfigError(
            f"other users may change the programs in '{cache}'; remove the directory, and the programs will be"
            " downloaded again"
        )
    if home.exists():
        return home
    with (cache / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not home.exists():
            scratch = Path(tempfile.mkdtemp(dir=cache))
            try:
                fetch(scratch / "complete")
                (scratch / "complete").rename(home)
            finally:
                shutil.rmtree(scratch)
    return home


def _fetch_jars(target: Path, pom: str, *, what: str) -> None:
    target.mkdir()
    (target / "pom.xml").write_text(pom)
    _maven(what, "copy-dependencies", f"-DoutputDirectory={target}", "-DincludeScope=runtime", cwd=target)


def _fetch_registry(target: Path) -> None:
    packed = target.parent / "packed"
    packed.mkdir()
    _maven("the Apicurio registry", "copy", f"-Dartifact={_REGISTRY}", f"-DoutputDirectory={packed}", cwd=packed)
    (archive,) = packed.glob("*.tar.gz")
    with tarfile.open(archive) as files:
        files.extractall(target, filter="data")


def _maven(what: str, goal: str, *settings: str, cwd: Path) -> None:
    if shutil.which("mvn") is None:
        raise ConfigError(
            f"{what} must be downloaded with Maven, but there is no mvn on PATH; install Maven (Debian: apt-get install"
            " maven), or set KAFKA_BOOTSTRAP_SERVERS and SCHEMA_REGISTRY_URL to use your own servers"
        )
    command = ["mvn", "-q", "-B", "-ntp", "-Dstyle.color=never", f"{_PLUGIN}:{goal}", *settings]
    done = subprocess.run(command, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        raise ConfigError(f"mvn could not download {what}: {done.stdout.strip()[-500:]}")
