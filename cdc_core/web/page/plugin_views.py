"""The installed plugins, and the options of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cdc_core.errors import CdcError
from cdc_core.options import OptionDoc, describe
from cdc_core.plugins.classes import load_class
from cdc_core.plugins.entry_points import Listing
from cdc_core.plugins.host import PluginHost

_TITLES = {"rangefeed": "Sources", "encoder": "Encoders", "sink": "Sinks", "function": "Functions", "": "Unusable"}
_WITH_OPTIONS = ("rangefeed", "encoder", "sink")


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginRow:
    """One component. `problem` is why it cannot be used, or empty."""

    listed: Listing
    problem: str
    options: Sequence[OptionDoc]


def plugin_groups(plugins: PluginHost) -> dict[str, list[PluginRow]]:
    """Return all components by the title of their kind. One whose class of options cannot be loaded has a problem."""
    listing = plugins.listing()
    groups = {
        title: [_row(plugins, listed) for listed in listing if listed.kind == kind] for kind, title in _TITLES.items()
    }
    return {title: rows for title, rows in groups.items() if rows}


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
    return PluginRow(listed=listed, problem=problem, options=options)
