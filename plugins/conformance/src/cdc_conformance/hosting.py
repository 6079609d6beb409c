"""Plugin hosts that know the component under test, and parts of a changefeed that are never opened."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import Any

from cdc_core import EncoderRegistration, RangefeedRegistration, SinkRegistration, hookimpl
from cdc_core.plugins.entry_points import PLUGINS, Published, published
from cdc_core.plugins.host import PluginHost
from cdc_core.plugins.loading import KINDS
from cdc_core.registrations import Registration

__all__ = ["SOURCE", "UNOPENED_ENCODER", "UNOPENED_SOURCE", "NoOptions", "installed_and", "plugin_of", "unopened_sink"]

SOURCE = "nothing://"
"""A changefeed must have a source. This one is never opened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoOptions:
    """The options of what is never opened."""


_NOTHING, _OPTIONS, _SUMMARY = f"{__name__}:Nothing", f"{__name__}:NoOptions", "Never opened"
UNOPENED_SOURCE = RangefeedRegistration(
    name="nothing",
    schemes=("nothing",),
    rangefeed=_NOTHING,
    planner=_NOTHING,
    reader=_NOTHING,
    options=_OPTIONS,
    summary=_SUMMARY,
)
UNOPENED_ENCODER = EncoderRegistration(
    name="none",
    encoder=_NOTHING,
    options=_OPTIONS,
    summary=_SUMMARY,
    envelopes=frozenset({"wrapped"}),
    outputs=frozenset({"messages"}),
)


def unopened_sink(name: str, *, output: str, **more: Any) -> SinkRegistration:
    """Return a sink whose URI scheme is its name."""
    return SinkRegistration(
        name=name,
        schemes=(name,),
        output=output,
        sink=_NOTHING,
        resolved_sink=_NOTHING,
        destination=_NOTHING,
        options=_OPTIONS,
        summary=_SUMMARY,
        **more,
    )


def plugin_of(*registrations: Registration) -> Published:
    """Return a plugin that registers *registrations*."""

    def register(found: Sequence[Registration]) -> Callable[[], Sequence[Registration]]:
        @hookimpl
        def cdc_register() -> Sequence[Registration]:
            return found

        return cdc_register

    hooks = {
        f"cdc_register_{kind}s": register([each for each in registrations if isinstance(each, cls)])
        for kind, cls in KINDS.items()
    }
    return Published.of(SimpleNamespace(**hooks), name="under-test")


@cache
def installed_and(*registrations: Registration) -> PluginHost:
    """Return a host with the installed plugins, and those of *registrations* that are not installed."""
    host = PluginHost.load()
    there = [host.component(row.kind, row.name) for row in host.listing() if row.kind in KINDS and not row.problem]
    found = [claim for claims in published(PLUGINS).values() for claim in claims]
    return PluginHost([*found, plugin_of(*(each for each in registrations if each not in there))])
