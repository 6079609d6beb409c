"""Registrations and options of a source, encoders and sinks that exist nowhere, for tests of names and options."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from cdc_core import (
    Destination,
    EncoderRegistration,
    FunctionRegistration,
    RangefeedRegistration,
    SinkRegistration,
    hookimpl,
)
from cdc_core.options import option
from cdc_core.plugins.entry_points import Published
from cdc_core.plugins.host import PluginHost
from cdc_core.registrations import Registration

HERE = "cdc_testing.components"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    scan_workers: int = option(2, doc="How many scan at a time.")
    source_key: str | None = option(None, doc="Key of the source.", secret=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderOptions:
    null_text: str = option("null", doc="What null looks like.")


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    topic_prefix: str = option("", doc="Put before topics.")
    pin: str | None = option(None, doc="Opens the sink.", secret=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class HookOptions:
    header: str | None = option(None, doc="A header.", secret=True)
    registry: str | None = option(None, doc="A registry.", uri=True)
    secret_registry: str | None = option(None, doc="Another one.", secret=True, uri=True)
    token_url: str | None = option(None, doc="What issues tokens.")
    client: dict[str, Any] | None = option(None, doc="Settings of the client.")
    topic_prefix: str = option("", doc="Put before topics.")
    pin: str | None = option(None, doc="Opens the sink.", secret=True)
    mirrors: tuple[dict[str, Any], ...] = option((), doc="Other places.", uri=True)


class SilentDestination(Destination):
    """Accepts everything."""

    def check(self) -> None:
        """Return at once."""


def rangefeed(name: str = "paper", *, schemes: tuple[str, ...] = ("paper",), **changes: Any) -> RangefeedRegistration:
    fields: dict[str, Any] = {
        "rangefeed": "cdc_testing.scripted:CounterRangefeed",
        "planner": "cdc_testing.scripted:CounterPlanner",
        "reader": "cdc_testing.scripted:CounterReader",
        "history": "cdc_testing.scripted:CounterHistory",
        "options": f"{HERE}:SourceOptions",
        "summary": "Rows on paper",
    }
    return RangefeedRegistration(name=name, schemes=schemes, **(fields | changes))


def encoder(name: str = "json", **changes: Any) -> EncoderRegistration:
    fields: dict[str, Any] = {
        "encoder": "cdc_testing.scripted:PlainEncoder",
        "options": f"{HERE}:EncoderOptions",
        "summary": "Plain text",
        "envelopes": frozenset({"wrapped"}),
        "outputs": frozenset({"messages", "files"}),
    }
    return EncoderRegistration(name=name, **(fields | changes))


def sink(name: str = "shelf", *, schemes: tuple[str, ...] = ("shelf",), **changes: Any) -> SinkRegistration:
    fields: dict[str, Any] = {
        "sink": "cdc_testing.scripted:JournalSink",
        "resolved_sink": "cdc_testing.scripted:JournalResolvedSink",
        "destination": "cdc_testing.scripted:JournalDestination",
        "options": f"{HERE}:SinkOptions",
        "summary": "A shelf",
        "output": "files",
    }
    return SinkRegistration(name=name, schemes=schemes, **(fields | changes))


def plugin(*registrations: Registration) -> SimpleNamespace:
    """Return an object with the hooks that register *registrations*."""

    @hookimpl
    def cdc_register_rangefeeds() -> Iterator[RangefeedRegistration]:
        return (registration for registration in registrations if isinstance(registration, RangefeedRegistration))

    @hookimpl
    def cdc_register_encoders() -> Iterator[EncoderRegistration]:
        return (registration for registration in registrations if isinstance(registration, EncoderRegistration))

    @hookimpl
    def cdc_register_sinks() -> Iterator[SinkRegistration]:
        return (registration for registration in registrations if isinstance(registration, SinkRegistration))

    @hookimpl
    def cdc_register_functions() -> Iterator[FunctionRegistration]:
        return (registration for registration in registrations if isinstance(registration, FunctionRegistration))

    return SimpleNamespace(
        cdc_register_functions=cdc_register_functions,
        cdc_register_rangefeeds=cdc_register_rangefeeds,
        cdc_register_encoders=cdc_register_encoders,
        cdc_register_sinks=cdc_register_sinks,
    )


def source_of(plugin: object, distribution: str, version: str = "1.0") -> Published:
    """Return *plugin* as if *distribution* had published it."""
    return Published.of(plugin, name=distribution.replace("-", "_"), distribution=distribution, version=version)


def host(*registrations: Registration) -> PluginHost:
    """Return a host with *registrations*, by default one source, one encoder and one sink."""
    return PluginHost([source_of(plugin(*(registrations or (rangefeed(), encoder(), sink()))), "cdc-paper")])
