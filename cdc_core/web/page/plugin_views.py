"""The installed plugins, and the options of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cdc_core.errors import CdcError
from cdc_core.options import OptionDoc, describe
from cdc_core.plugins.classes import load_class
from cdc_core.plugins.entry_points import Listing
from cdc_core.plugins.host import PluginHost

__all__ = ["PluginGroup", "PluginRow", "plugin_groups"]

_TITLES = {"rangefeed": "Sources", "encoder": "Encoders", "sink": "Sinks", "function": "Functions", "": "Unusable"}
_WITH_OPTIONS = ("rangefeed", "encoder", "sink")


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginRow:
    """One component. `problem` is why it cannot be used, or empty."""

    part: str
    name: str
    schemes: str
    origin: str
    summary: str
    problem: str
    options: Sequence[OptionDoc]


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginGroup:
    """The components of one kind."""

    title: str
    rows: Sequence[PluginRow]


def plugin_groups(plugins: PluginHost) -> list[PluginGroup]:
    """Return all components by kind. Their classes of options are loaded; one that fails has a problem."""
    listing = plugins.listing()
    groups = [
        PluginGroup(title=title, rows=[_row(plugins, listed) for listed in listing if listed.kind == kind])
        for kind, title in _TITLES.items()
    ]
    return [group for group in groups if group.rows]


def _row(plugins: PluginHost, listed: Listing) -> PluginRow:
    options: Sequence[OptionDoc] = ()
    problem = listed.problem
    if not problem and listed.kind in _WITH_OPTIONS:
        try:
            registration = plugins.component(listed.kind, listed.name)
            owner = f"{listed.kind} '{listed.name}'"
            options = describe(load_class(registration.options, owner=owner, install_hint=registration.install_hint))
        except CdcError as error:
            problem = str(error)
    return PluginRow(
        part=f"{listed.kind}-{listed.name}",
        name=listed.name,
        schemes=", ".join(f"{scheme}://" for scheme in listed.schemes),
        origin=f"{listed.distribution} {listed.version}",
        summary=listed.summary,
        problem=problem,
        options=options,
    )
