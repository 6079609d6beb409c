"""Spark's classes in an archive that each JVM maps instead of loading them, in the user's cache directory.

There is one for each installation of Java and pyspark, some 170 MB. The JVM of the first run that has delivered
something writes it when it ends. Without an archive, or where it does not fit, Java loads the classes as ever.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import os
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Self

import pyspark
from pyspark import SparkContext

from cdc_core.private_files import others_may_write
from cdc_core.spark.private_api import Py4JError, count_jobs, jvm_process

log = logging.getLogger(__name__)

VARIABLE = "CDC_CACHE"
"""Name of the environment variable with the cache directory; `off` is none at all."""

_AT_EXIT = "-XX:ArchiveClassesAtExit"
"""Java's option for a JVM that writes the archive when it ends in good order. It also checks and links all classes that
it has loaded. `jcmd PID VM.cds dynamic_dump` would leave a fifth of them out, which no JVM had to link before."""
_JOBS = 1
"""Spark jobs of a run that has read and written something: until then Java has loaded only a part of the classes."""
_SPACE = 1024**3
_LEFT_OUT = "spark-mllib_"
"""How the name of the jar begins that our Spark homes do not have. Each session would register its functions, for which
Scala's reflection is loaded: half a second."""
_UNUSED_S = 30 * 24 * 3600.0
_ABANDONED_S = 60.0


@dataclass(frozen=True)
class ClassArchive:
    """The archive of this Java and pyspark, in *directory*, and the Spark home that it was made with.

    Java looks at the jars under the names that they had when the archive was made, so the home belongs to it.
    """

    directory: Path

    @classmethod
    def find(cls) -> Self | None:
        """Return the archive, made already or not; None where there is no cache, or no archive can be in it.

        Java and the shell load code from it, so there is none where others may write to it, or to what is above it.

        Java refuses an archive when one of the jars changed, so their times are part of its place.
        """
        cache, java = _cache(), find_java()
        if cache is None or java is None:
            return None
        try:
            jars = sorted((_installed() / "jars").glob("*.jar"))
            stamps = [f"{path} {path.stat().st_mtime_ns}" for path in (Path(java).resolve(), *jars)]
            stamps.append(_LEFT_OUT)
            archive = cls(cache / "spark" / hashlib.sha256("\n".join(stamps).encode()).hexdigest()[:16])
            for directory in (cache, archive.directory.parent, archive.directory):
                directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            above = (*archive.directory.parents, *archive.directory.resolve().parents)
            if refused := next(filter(None, map(others_may_write, (archive.directory, *above))), None):
                _warn(refused)
                return None
            link_spark(archive.home)
            os.utime(archive.directory)  # it is in use: `_remove_unused`
            archive._remove_abandoned()
        except OSError:
            return None
        return archive

    @property
    def home(self) -> Path:
        return self.directory / "home"

    @property
    def file(self) -> Path:
        return self.directory / "classes.jsa"

    def java_options(self) -> str:
        """Return what a JVM needs to use the archive, or to write one later."""
        if self.file.exists():
            return f'-Xshare:auto "-XX:SharedArchiveFile={self.file}" -Xlog:cds*=off'
        if self._failed.exists():
            return ""
        return f'-XX:+IgnoreUnrecognizedVMOptions "{self._at_exit}" -Xlog:cds*=off'

    @classmethod
    def due(cls, context: SparkContext) -> Self | None:
        """Return the archive that the JVM of *context* should write now; None when there is one or it cannot be."""
        archive, jvm = cls.find(), jvm_process()
        if archive is None or jvm is None:
            return None
        assert isinstance(jvm.args, list)
        if not any(archive._at_exit in word for word in jvm.args):  # a later session may have other settings
            return None
        try:
            if count_jobs(context) < _JOBS:
                return None
        except Py4JError:
            return None
        if archive.file.exists() or shutil.disk_usage(archive.directory).free < _SPACE:
            return None
        return archive

    def write(self, end_jvm: Callable[[], int | None]) -> None:
        """Have the JVM write the archive, which takes some seconds. No failure is raised; one of Java is not repeated.

        *end_jvm* lets it end in good order, and returns its exit status.
        """
        try:
            log.info("saving Spark's classes in %s: the next start will be faster", self.directory)
            if end_jvm() != 0:
                log.debug("Spark's classes are not saved: the JVM was killed")
                return
            if not self._fresh.exists():
                self._failed.touch()
                return
            with self._fresh.open("rb") as written:
                os.fsync(written.fileno())
            self._fresh.replace(self.file)
            self._remove_unused()
        except KeyboardInterrupt:
            log.info("interrupted: Spark's classes are not saved")
        except Exception as error:
            log.debug("Spark's classes are not saved: %s", error)
        finally:
            self.discard()

    def discard(self) -> None:
        """Remove what the JVM of this process wrote without being asked: each one that ends in good order does."""
        with suppress(OSError):
            self._fresh.unlink(missing_ok=True)

    @property
    def _at_exit(self) -> str:
        return f"{_AT_EXIT}={self._fresh}"

    @property
    def _fresh(self) -> Path:
        """What a JVM of this process writes."""
        return self.directory / f"{os.getpid()}.new"

    @property
    def _failed(self) -> Path:
        """A file that is there when this Java can write no archive."""
        return self.directory / "failed"

    def _remove_abandoned(self) -> None:
        """Remove what JVMs wrote whose process is gone: any other renames it at once."""
        before = time.time() - _ABANDONED_S
        for left in self.directory.glob("*.new"):
            with suppress(FileNotFoundError):
                if left.stat().st_mtime < before:
                    left.unlink()

    def _remove_unused(self) -> None:
        """Remove archives of removed versions: those unused for a month. A running JVM keeps its own."""
        before = time.time() - _UNUSED_S
        for other in self.directory.parent.iterdir():
            if other.stat().st_mtime < before:
                shutil.rmtree(other, ignore_errors=True)


@functools.cache
def _warn(refused: str) -> None:
    log.warning("Spark's classes will not be cached: %s (set the directory with %s)", refused, VARIABLE)


def find_java() -> str | None:
    """Return the path of the Java that Spark starts."""
    home = os.environ.get("JAVA_HOME")
    return f"{home}/bin/java" if home else shutil.which("java")


def link_spark(home: Path) -> None:
    """Make *home* a Spark home without Spark's own copy of pyspark, and without `_LEFT_OUT`. Raises: OSError.

    Workers would import pyspark from that copy, a zip file without compiled modules: half a second of processor time
    for each of a dozen processes. Without it they use the installed package.
    """
    if (home / "jars").is_dir():
        return
    home.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        (home / "bin").symlink_to(_installed() / "bin")
    fresh = Path(mkdtemp(prefix="jars-", dir=home))  # another process may do the same
    for jar in (_installed() / "jars").glob("*.jar"):
        if not jar.name.startswith(_LEFT_OUT):
            (fresh / jar.name).symlink_to(jar)
    try:
        fresh.rename(home / "jars")
    except OSError:
        shutil.rmtree(fresh)
        if not (home / "jars").is_dir():
            raise


def is_installed(home: Path) -> bool:
    """Return whether the Spark in *home* is that of our pyspark."""
    installed = _installed().resolve() / "jars"
    return any(jar.resolve().parent == installed for jar in (home / "jars").glob("spark-core_*.jar"))


def _installed() -> Path:
    return Path(pyspark.__file__).parent


def _cache() -> Path | None:
    named = os.environ.get(VARIABLE)
    if named:
        return None if named == "off" else Path(named).absolute()
    if sys.platform == "darwin":
        base: str | Path = "~/Library/Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    try:
        return Path(base).expanduser().absolute() / "cdc"
    except RuntimeError:  # this user has no home
        return None
