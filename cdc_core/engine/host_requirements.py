"""What every host that runs tasks of an attempt must have: versions, shared directories, the progress store."""

from __future__ import annotations

import dataclasses
import functools
import os
import socket
import sys
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from cdc_core.config.parts import Parts
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.errors import ConfigError, RetryableError

LAUNCHER = "CDC_LAUNCHER"
"""The variable with the process that Spark has started, if that had another process fork this one."""
_PREFIX = ".cdc-probe-"
_BOOT = Path("/proc/sys/kernel/random/boot_id")
"""Containers of one machine have the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A file that every host must see, because *owner* uses *directory* as if there were only one of that name."""

    owner: str
    directory: str
    file: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFile:
    """The SQLite file of the progress store. SQLite shares it between processes of one machine, and no others."""

    path: str
    identity: str

    @classmethod
    def of(cls, url: str) -> StoreFile | None:
        """Return the file of the store at *url*, None for a server."""
        from cdc_core.store.progress import sqlite_file  # loads SQLAlchemy, which most processes never need

        file = sqlite_file(url)
        return None if file is None else cls(path=str(file), identity=_identity(file))


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRequirements:
    """Requires nothing by default: then every task runs on the driver's host."""

    python: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Versions by distribution."""
    probes: tuple[Probe, ...] = ()
    store: StoreFile | None = None

    def require(self) -> None:
        """Return when this host is as the driver's. Raises: ConfigError, which names the host and the remedy;
        RetryableError when a shared file system does not answer.

        Before a process opens what it needs for slices. Cheap. An executor may join at any time, and one that joins
        badly must not fail for good what runs on others: the errors are repairable.
        """
        if (problem := self._problem()) is not None:
            raise ConfigError(problem, repairable=True)

    def _problem(self) -> str | None:
        if self.python and self.python != _python():
            return (
                f"{here()} has Python {_python()}, but the driver has {self.python}; set spark.pyspark.python to the "
                "same version on every host"
            )
        for distribution, wanted in self.versions.items():
            found = _version(distribution)
            if found != wanted:
                has = f"{distribution} {found}" if found else f"no {distribution}"
                return (
                    f"{here()} has {has}, but the driver has {wanted}; install {distribution}=={wanted} there, or run "
                    "`cdc pack` again"
                )
        for probe in self.probes:
            if not _is_seen(probe.file):
                return (
                    f"{probe.owner} uses directory {probe.directory} on the driver's host, which does not exist on"
                    f" {here()}; mount a shared file system at this path on all hosts, or use a server or an object"
                    " store instead"
                )
        if self.store is not None and _identity(Path(self.store.path)) != self.store.identity:
            return (
                f"the progress store is the SQLite file {self.store.path} on the driver's machine, which {here()}"
                " cannot use; set --state to the URL of a database server instead"
            )
        return None

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> HostRequirements:
        """Return what `to_json` gave, also in another version of this package: then at least the versions."""
        store = value.get("store")
        return cls(
            python=value.get("python", ""),
            versions=value.get("versions", {}),
            probes=tuple(Probe(**probe) for probe in value.get("probes", ())),
            store=None if store is None else StoreFile(**store),
        )


@contextmanager
def host_requirements(feed: ResolvedChangefeed, *, create: bool) -> Iterator[HostRequirements]:
    """Yield what tasks of *feed* require of their hosts, with probes that are there as long as the block lasts.

    On the driver. With *create* the directories are created; otherwise, as nothing may be created yet, the probe of a
    directory that does not exist is in the nearest one above it. Raises, when a probe cannot be written: RetryableError
    with *create*, otherwise ConfigError.
    """
    probes: list[Probe] = []
    # The name is new each time: a network file system may remember for a while that a file was not there.
    name = f"{_PREFIX}{feed.feed_id}-{uuid.uuid4().hex}"
    try:
        for owner, directory in _local_directories(feed):
            probes.append(_written(owner, directory, name=name, create=create))
        yield HostRequirements(
            python=_python(),
            versions=required_versions(feed),
            probes=tuple(probes),
            store=StoreFile.of(feed.state),
        )
    finally:
        for probe in probes:
            with suppress(OSError):
                Path(probe.file).unlink()


def required_versions(feed: ResolvedChangefeed) -> Mapping[str, str]:
    """Return the versions here, by distribution, of what every host that runs tasks of *feed* must have."""
    return versions_here(plugin["distribution"] for plugin in feed.stored.get("plugins", ()))


def versions_here(plugins: Iterable[str]) -> Mapping[str, str]:
    """Return the versions here of cdc-core and of the distributions *plugins*, without what is not installed."""
    return {name: found for name in sorted({"cdc-core", *plugins}) if (found := _version(name))}


def _local_directories(feed: ResolvedChangefeed) -> Iterator[tuple[str, Path]]:
    """Yield the directories that must be the same on every host, and whose they are."""
    for source in feed.sources:
        with closing(Parts(dataclasses.replace(feed, sources=(source,))).open_reader()) as reader:
            if (directory := reader.local_directory()) is not None:
                yield feed.rangefeed.owner, directory
    for part in (feed, feed.dead_letter):
        if part is not None:
            with closing(Parts(part).open_destination()) as destination:
                if (directory := destination.local_directory()) is not None:
                    yield part.sink.owner, directory


def _written(owner: str, directory: Path, *, name: str, create: bool) -> Probe:
    try:
        if create:
            _create(directory)
        place = next(path for path in (directory, *directory.parents) if path.is_dir())
        # Of a driver that was killed. Before an attempt has begun, another one may be alive.
        for leftover in place.glob(f"{name.rpartition('-')[0]}-*") if create else ():
            leftover.unlink(missing_ok=True)
        (place / name).touch()
    except OSError as error:
        text = f"{owner}: cannot write to directory {directory} to check whether all hosts share it"
        if create:  # it could before
            raise RetryableError(f"{text}: {error.strerror}") from error
        raise ConfigError(f"{text}: {error.strerror}; grant the driver write permission", repairable=True) from error
    return Probe(owner=owner, directory=str(directory), file=str(place / name))


def _create(directory: Path) -> None:
    """Create *directory* and those above it, durably."""
    missing = [path for path in (directory, *directory.parents) if not path.is_dir()]
    directory.mkdir(parents=True, exist_ok=True)
    for path in missing:
        descriptor = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _is_seen(file: str) -> bool:
    """Return whether *file* is there. Raises: RetryableError when its file system does not say so."""
    try:
        os.stat(file)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return False
    except OSError as error:
        raise RetryableError(f"{here()} cannot check whether file {file} exists: {error.strerror}") from error
    return True


def _identity(file: Path) -> str:
    """Return what *file* is the only one to have, on all machines; empty where it cannot be seen."""
    try:
        found = file.stat()
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return ""
    except OSError as error:
        raise RetryableError(f"{here()} cannot check whether file {file} exists: {error.strerror}") from error
    try:
        machine = _BOOT.read_text().strip()
    except OSError:  # not Linux
        machine = socket.gethostname()
    return f"{machine}/{found.st_dev}/{found.st_ino}"


def here() -> str:
    """Return how messages name the place where this process runs."""
    executor = this_executor()
    return f"executor {executor.id} on host {executor.host}" if executor.id else f"host {executor.host}"


def _python() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def _version(distribution: str) -> str:
    """Return the installed version, empty where there is none."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return ""


_MAX_PARENTS = 4
"""A Python worker is a child of a daemon, which the executor's JVM started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorIdentity:
    """`id` is unique in the application and empty outside of an executor; `host` is the name that Spark uses."""

    id: str
    host: str


@functools.cache
def this_executor() -> ExecutorIdentity:
    """Return the executor that this process works for, by the arguments of the JVM above it."""
    process = int(os.environ.get(LAUNCHER, os.getpid()))
    try:
        for _ in range(_MAX_PARENTS):
            words = Path(f"/proc/{process}/cmdline").read_text().split("\0")
            if "--executor-id" in words and "--hostname" in words:
                return ExecutorIdentity(id=_after("--executor-id", words), host=_after("--hostname", words))
            process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        pass  # no /proc, or the end of the line of parents
    return ExecutorIdentity(id="", host=socket.gethostname())


def _after(option: str, words: list[str]) -> str:
    return words[words.index(option) + 1]
