"""The component that a suite tests, and where it comes from."""

from __future__ import annotations

import functools
import importlib
import sys
from typing import Any

from cdc_core.errors import ConfigError, UnknownPluginError
from cdc_core.plugins.entry_points import Listing
from cdc_core.plugins.host import PluginHost
from cdc_core.plugins.loading import KINDS
from cdc_core.registrations import Registration

__all__ = ["SUITES", "listed", "registration_of", "suite_for"]

SUITES = {
    "sink": "cdc_conformance.sinks:SinkConformance",
    "encoder": "cdc_conformance.encoders:EncoderConformance",
    "rangefeed": "cdc_conformance.rangefeeds:RangefeedConformance",
    "function": "cdc_conformance.functions:FunctionConformance",
}
"""The suite of each kind, loaded on first use."""


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
    host = _installed(tuple(sys.path))
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


@functools.cache
def _installed(_path: tuple[str, ...]) -> PluginHost:
    """Return the installed plugins. They depend only on the path, and every test needs them."""
    return PluginHost.load()


def listed(kind: str, registration: Registration, host: PluginHost) -> Listing | None:
    """Return how *host* lists *registration*, with its distribution; None for a registration of the test itself."""
    try:
        known = host.component(kind, registration.name) == registration
    except ConfigError:
        return None
    return next((row for row in host.listing() if (row.kind, row.name) == (kind, registration.name) and known), None)
