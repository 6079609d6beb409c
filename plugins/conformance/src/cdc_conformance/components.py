"""The component that a suite tests, where it comes from, and plugin hosts that know it."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import Any

from cdc_core import EncoderRegistration, RangefeedRegistration, SinkRegistration, hookimpl
from cdc_core.errors import ConfigError, UnknownPluginError
from cdc_core.plugins.entry_points import PLUGINS, Listing, Published, published
from cdc_core.plugins.host import PluginHost
from cdc_core.plugins.loading import KINDS
from cdc_core.registrations import Registration

SUITES = {
    "sink": "cdc_conformance.sinks:SinkConformance",
    "encoder": "cdc_conformance.encoders:EncoderConformance",
    "rangefeed": "cdc_conformance.rangefeeds:RangefeedConformance",
    "function": "cdc_conformance.functions:FunctionConformance",
}
"""The suite of each kind, loaded on first use."""
SOURCE = "nothing://"
"""A changefeed must have a source. This one is never opened."""
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


def suite_for(kind: str) -> type[Any]:
    """Return the suite of a kind."""
    module, _, name = SUITES[kind].partition(":")
    suite: type[Any] = getattr(importlib.import_module(module), name)
    return suite


def registration_of(cls: type, kind: str) -> Registration:
    """Return the registration of the component that *cls* names in the attribute *kind*.

    The attribute is the name of an installed component, or a registration. Raises: ConfigError, which names *cls*.
    """
    component = getattr(cls, kind, None)
    if isinstance(component, KINDS[kind]):
        return component
    host = installed()
    if not component:
        known = sorted({listed.name for listed in host.listing() if listed.kind == kind})
        raise ConfigError(
            f"{cls.__name__} names no {kind}; set the class attribute {kind} = 'NAME' "
            f"(installed: {', '.join(known) or 'none'})"
        )
    if not isinstance(component, str):
        raise ConfigError(
            f"{cls.__name__}.{kind} is {component!r}, which is neither the name of an installed {kind} "
            f"nor a {KINDS[kind].__name__}"
        )
    try:
        return host.component(kind, component)
    except UnknownPluginError as error:
        raise UnknownPluginError(f"{cls.__name__}: {error}") from None
    except ConfigError as error:
        raise type(error)(f"{cls.__name__}: {error}") from None


def installed() -> PluginHost:
    """Return the installed plugins, which depend only on the path. Every test needs them, so they are loaded once."""
    return _loaded(tuple(sys.path))


@cache
def _loaded(_path: tuple[str, ...]) -> PluginHost:
    return PluginHost.load()


def listed(kind: str, registration: Registration, host: PluginHost) -> Listing | None:
    """Return how *host* lists *registration*, with its distribution; None for a registration of the test itself."""
    try:
        known = host.component(kind, registration.name) == registration
    except ConfigError:
        return None
    return next((row for row in host.listing() if (row.kind, row.name) == (kind, registration.name) and known), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoOptions:
    """The options of what is never opened."""


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
