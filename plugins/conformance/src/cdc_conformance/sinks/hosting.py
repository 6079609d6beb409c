"""A plugin host that knows the sink under test, whether it is installed or not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from types import SimpleNamespace

from cdc_core import EncoderRegistration, RangefeedRegistration, SinkRegistration, hookimpl
from cdc_core.plugins.host import GROUP, PluginHost
from cdc_core.plugins.loading import PluginSource

__all__ = ["SOURCE", "NoOptions", "host_of"]

SOURCE = "nothing://"
"""URI of a source that is never opened: a changefeed must have one."""

_Registration = SinkRegistration | EncoderRegistration | RangefeedRegistration


@dataclass(frozen=True, slots=True, kw_only=True)
class NoOptions:
    """The source has none."""


_NOTHING = RangefeedRegistration(
    name="nothing",
    target=f"{__name__}:Nothing",
    options=f"{__name__}:NoOptions",
    schemes=("nothing",),
    summary="Stands where a changefeed must name a source",
)


@cache
def host_of(sink: SinkRegistration, encoder: str | EncoderRegistration) -> PluginHost:
    """Return a host with the installed plugins, and with *sink* and *encoder* where they are not among them."""
    installed = PluginHost.load()
    own: list[_Registration] = [_NOTHING]
    if sink not in _installed(installed, "sink"):
        own.append(sink)
    if isinstance(encoder, EncoderRegistration) and encoder not in installed.encoders():
        own.append(encoder)
    found = [PluginSource.of_entry_point(entry_point) for entry_point in entry_points(group=GROUP)]
    return PluginHost([*found, PluginSource.of(_plugin(*own), name="under-test", distribution="under-test")])


def _installed(host: PluginHost, kind: str) -> list[object]:
    return [host.component(kind, row.name) for row in host.listing() if row.kind == kind and not row.problem]


def _plugin(*registrations: _Registration) -> SimpleNamespace:
    @hookimpl
    def cdc_register_sinks() -> Iterator[SinkRegistration]:
        return (each for each in registrations if isinstance(each, SinkRegistration))

    @hookimpl
    def cdc_register_encoders() -> Iterator[EncoderRegistration]:
        return (each for each in registrations if isinstance(each, EncoderRegistration))

    @hookimpl
    def cdc_register_rangefeeds() -> Iterator[RangefeedRegistration]:
        return (each for each in registrations if isinstance(each, RangefeedRegistration))

    return SimpleNamespace(
        cdc_register_sinks=cdc_register_sinks,
        cdc_register_encoders=cdc_register_encoders,
        cdc_register_rangefeeds=cdc_register_rangefeeds,
    )
