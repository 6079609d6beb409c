"""A plugin host that knows the sink under test, installed or not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace

from cdc_core import EncoderRegistration, RangefeedRegistration, SinkRegistration, hookimpl
from cdc_core.plugins.entry_points import PLUGINS, Published, published
from cdc_core.plugins.host import PluginHost

__all__ = ["SOURCE", "NoOptions", "host_of"]

SOURCE = "nothing://"
"""A changefeed must have a source. This one is never opened."""

_Registration = SinkRegistration | EncoderRegistration | RangefeedRegistration


@dataclass(frozen=True, slots=True, kw_only=True)
class NoOptions:
    """The source has no options."""


_NOTHING = RangefeedRegistration(
    name="nothing",
    rangefeed=f"{__name__}:Nothing",
    planner=f"{__name__}:Nothing",
    reader=f"{__name__}:Nothing",
    options=f"{__name__}:NoOptions",
    schemes=("nothing",),
    summary="A source that is never opened",
)


@cache
def host_of(sink: SinkRegistration, encoder: str | EncoderRegistration) -> PluginHost:
    """Return a host with the installed plugins, *sink* and *encoder*."""
    installed = PluginHost.load()
    own: list[_Registration] = [_NOTHING]
    if sink not in _installed(installed, "sink"):
        own.append(sink)
    if isinstance(encoder, EncoderRegistration) and encoder not in installed.encoders():
        own.append(encoder)
    found = [claim for claims in published(PLUGINS).values() for claim in claims]
    return PluginHost([*found, Published.of(_plugin(*own), name="under-test")])


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
