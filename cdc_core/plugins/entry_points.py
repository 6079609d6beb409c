"""Entry points: how installed distributions publish plugins, pipelines, commands and demos. One mechanism for all four.

    [project.entry-points."cdc_core.plugins"]
    my_package = "my_package.plugin"

A name that two distributions publish in one group is an error for both, as soon as one of them is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import Distribution, EntryPoint, entry_points, version
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from cdc_core.errors import PluginConflictError, PluginLoadError

_CORE = "cdc-core"
PLUGINS = "cdc_core.plugins"
"""Name of the import package -> module with hook implementations (`cdc_core.hookspecs`)."""
PIPELINES = "cdc_core.pipelines"
"""Name of the pipeline -> a `Changefeed`, or a function without arguments that returns one."""
COMMANDS = "cdc_core.commands"
"""Name of the command -> click command."""
DEMOS = "cdc_core.demos"
"""Name of the demo -> function that takes the remaining arguments and returns the exit status."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """An object that a distribution publishes. `load` imports it and returns it; it raises whatever the import does.

    Raises, from `load`: PluginConflictError when another distribution publishes the same name; PluginLoadError when the
    distribution requires another version of the core.
    """

    name: str
    load: Callable[[], Any]
    distribution: str
    version: str

    @classmethod
    def of(cls, plugin: object, *, name: str, distribution: str = "", version: str = "0") -> Published:
        """Return *plugin*, an object at hand, as if a distribution published it. For tests and embedding programs."""
        return cls(name=name, load=lambda: plugin, distribution=distribution or name, version=version)

    @classmethod
    def of_entry_point(cls, entry_point: EntryPoint) -> Published:
        """Return what an installed distribution publishes."""
        metadata = None if entry_point.dist is None else entry_point.dist.metadata  # parsed at each access
        return cls(
            name=entry_point.name,
            load=partial(_load, entry_point),
            distribution=entry_point.name if metadata is None else metadata["Name"],
            version="unknown" if metadata is None else metadata["Version"],
        )

    @property
    def origin(self) -> str:
        """Distribution and version, as messages name them."""
        return f"{self.distribution} {self.version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """One component or command in a listing. A plugin that registers nothing has an empty `kind` and its own name."""

    kind: str
    name: str
    schemes: tuple[str, ...]
    distribution: str
    version: str
    summary: str
    problem: str


def published(group: str) -> Mapping[str, Sequence[Published]]:
    """Return everything that is published in *group* by name, in the order of the names.

    Several entries under one name come from several distributions; each of them raises when it is loaded.
    """
    found: dict[str, list[Published]] = {}
    for entry_point in entry_points(group=group):
        found.setdefault(entry_point.name, []).append(Published.of_entry_point(entry_point))
    return {
        name: claims if len(claims) == 1 else _in_conflict(group, sorted(claims, key=lambda claim: claim.distribution))
        for name, claims in sorted(found.items())
    }


def _load(entry_point: EntryPoint) -> Any:
    if entry_point.dist is not None:
        _require_core(entry_point.dist)
    return entry_point.load()


def _require_core(dist: Distribution) -> None:
    """Return if the core has a version that *dist* requires. Raises: PluginLoadError."""
    for text in dist.requires or ():
        try:
            wanted = Requirement(text)
        except InvalidRequirement:  # such as `tool >=1.0.*`, which earlier versions of pip accepted
            continue
        if canonicalize_name(wanted.name) != _CORE or wanted.marker is not None:
            continue
        if not wanted.specifier.contains(installed := version(_CORE), prereleases=True):
            raise PluginLoadError(
                f"{dist.name} {dist.version} requires {wanted}, but {_CORE} {installed} is installed; run pip install"
                f" --upgrade {_CORE} {dist.name}"
            )


def _in_conflict(group: str, claims: Sequence[Published]) -> Sequence[Published]:
    what = group.removeprefix("cdc_core.").removesuffix("s")
    origins = " and ".join(claim.origin for claim in claims)
    names = " or ".join(claim.distribution for claim in claims)
    text = f"{what} '{claims[0].name}' is published by both {origins}; uninstall one of them: pip uninstall {names}"

    def fail() -> Any:
        raise PluginConflictError(text)

    return [replace(claim, load=fail) for claim in claims]
