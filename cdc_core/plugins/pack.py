"""The installed packages that a task needs, as an archive for hosts that cannot install any."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution, entry_points
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from cdc_core.errors import ConfigError
from cdc_core.plugins.entry_points import PLUGINS

_CORE = "cdc-core"
_ON_EVERY_EXECUTOR = frozenset({"pyspark", "py4j"})
"""Spark brings its own Python part along."""


@dataclass(frozen=True, slots=True)
class Pack:
    """Distributions of this environment by name: the core, its plugins, and all that they require but Spark itself.

    The extras of a plugin count when all that they require is installed: what was asked for is not recorded anywhere.
    """

    distributions: Mapping[str, Distribution]

    @classmethod
    def of_this_environment(cls) -> Pack:
        """Return what is installed for this interpreter. Raises: ConfigError when something that is required is not."""
        found: dict[str, Distribution] = {}
        roots = {entry_point.dist.name for entry_point in entry_points(group=PLUGINS) if entry_point.dist is not None}
        for name in sorted({_CORE, *roots}):
            extras = ",".join(_installed_extras(name))
            _add(found, Requirement(f"{name}[{extras}]"), asked_by="this environment")
        return cls(dict(sorted(found.items())))

    def write(self, path: Path) -> None:
        """Write the archive *path*, gzipped; a file that is there is replaced once the new one is complete.

        Unpacked, it is a directory for PYTHONPATH, for this version of Python and this kind of machine. Programs and
        compiled bytecode are left out. Of a file that an installer has linked, it has the contents. Raises: ConfigError
        when the files of a distribution are unknown; OSError.
        """
        files = [file for each in self.distributions.values() for file in _files_of(each)]
        unfinished = path.with_name(f"{path.name}.part")
        try:
            with tarfile.open(unfinished, "w:gz", compresslevel=5, dereference=True) as archive:
                for inside, place in sorted(files):
                    archive.add(place, inside, recursive=False)
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)


def _add(found: dict[str, Distribution], wanted: Requirement, *, asked_by: str) -> None:
    """Add to *found* the distribution that *wanted* names, and what it requires with the extras of *wanted*."""
    name = canonicalize_name(wanted.name)
    if name in _ON_EVERY_EXECUTOR or (name in found and not wanted.extras):
        return
    try:
        found[name] = distribution(wanted.name)
    except PackageNotFoundError:
        raise ConfigError(
            f"{asked_by} needs {wanted}, which is not installed. Install {asked_by} again, with its dependencies"
        ) from None
    for each in _required(found[name], wanted.extras):
        _add(found, each, asked_by=name)


def _installed_extras(name: str) -> Iterator[str]:
    extras = distribution(name).metadata.get_all("Provides-Extra") or ()
    return (extra for extra in extras if _is_installed(Requirement(f"{name}[{extra}]")))


def _is_installed(wanted: Requirement) -> bool:
    """Return whether *wanted* is there, and what its extras add. What it requires without them is."""
    try:
        dist = distribution(wanted.name)
    except PackageNotFoundError:
        return False
    plain = set(_required(dist, ()))
    return all(_is_installed(added) for added in _required(dist, wanted.extras) if added not in plain)


def _required(dist: Distribution, extras: Iterable[str]) -> Iterator[Requirement]:
    for text in dist.requires or ():
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            raise ConfigError(
                f"{dist.name} cannot be packed: its requirement '{text}' is not valid; install another version of it"
            ) from None
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield requirement


def _files_of(dist: Distribution) -> Iterator[tuple[str, str]]:
    """Yield each file of *dist* by its name in the archive, with its path."""
    files = dist.files
    if files is None or _is_editable(dist):
        raise ConfigError(
            f"{dist.name} cannot be packed: it is installed in editable mode, or without a list of its files; install"
            " it with `pip install` from a wheel or a directory"
        )
    for file in files:
        if ".." in file.parts or file.suffix == ".pyc":
            continue
        path = str(file.locate())
        if not Path(path).exists():
            raise ConfigError(f"{dist.name} cannot be packed: its file {path} is missing; install it again")
        yield str(file), path


def _is_editable(dist: Distribution) -> bool:
    """Return whether the code of *dist* is elsewhere, by its record as PEP 610 has it."""
    origin = json.loads(dist.read_text("direct_url.json") or "{}")
    return bool(origin.get("dir_info", {}).get("editable"))
