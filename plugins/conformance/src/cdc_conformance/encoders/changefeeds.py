"""Resolves changefeeds with the encoder under test, as the engine does: its options are really parsed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, cast

from cdc_core import (
    Changefeed,
    Encoder,
    EncoderContext,
    EncoderRegistration,
    Envelope,
    RangefeedRegistration,
    SinkRegistration,
    hookimpl,
)
from cdc_core.config.resolve import resolve
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.envelope import ENVELOPE_OPTIONS, ENVELOPES
from cdc_core.plugins.entry_points import Published
from cdc_core.plugins.host import PluginHost

__all__ = ["NoOptions", "encoder_context", "open_encoder", "plugin_host", "resolved_changefeed"]

_NOTHING, _OPTIONS, _SUMMARY = f"{__name__}:Nothing", f"{__name__}:NoOptions", "Never opened"


@dataclass(frozen=True, slots=True, kw_only=True)
class NoOptions:
    """The options of a source and sinks that are never opened."""


def resolved_changefeed(
    registration: EncoderRegistration,
    host: PluginHost,
    *,
    output: str,
    envelope: Envelope,
    options: Mapping[str, Any],
) -> ResolvedChangefeed:
    """Return a changefeed whose sink asks for *output*. Raises: ConfigError."""
    flags: dict[str, Any] = {name: True for name in ENVELOPE_OPTIONS if getattr(envelope, name)}
    if registration.scans_only:
        flags["initial_scan"] = "only"
    changefeed = Changefeed(
        name="conformance",
        source="nothing://",
        tables=("public.orders",),
        sink=f"{output}://nowhere",
        format=registration.name,
        options={"envelope": envelope.name, "enriched_properties": envelope.enriched_properties, **flags, **options},
    )
    return resolve(changefeed, host)


def encoder_context(feed: ResolvedChangefeed) -> EncoderContext:
    """Return what the encoder of *feed* is created from, with a clock that stands still: `ts_ns` is always the same."""
    return replace(feed.encoder_context(), clock=_noon)


def open_encoder(feed: ResolvedChangefeed) -> Encoder:
    """Return the encoder of *feed*, with the clock of `encoder_context`."""
    return cast(Encoder, feed.encoder.load("encoder", Encoder)(encoder_context(feed)))


def _noon() -> int:
    return 1_700_000_000_123_456_789


def plugin_host(encoder: EncoderRegistration, *, file_envelopes: frozenset[str]) -> PluginHost:
    """Return a host with *encoder*, and with a source and a sink for each output that are never opened."""

    @hookimpl
    def cdc_register_encoders() -> list[EncoderRegistration]:
        return [encoder]

    @hookimpl
    def cdc_register_sinks() -> list[SinkRegistration]:
        return [
            _sink("messages", envelopes=frozenset(ENVELOPES)),
            _sink("files", forced=frozenset({"key_in_value"}), envelopes=file_envelopes),
        ]

    @hookimpl
    def cdc_register_rangefeeds() -> list[RangefeedRegistration]:
        return [
            RangefeedRegistration(
                name="nothing",
                schemes=("nothing",),
                rangefeed=_NOTHING,
                planner=_NOTHING,
                reader=_NOTHING,
                options=_OPTIONS,
                summary=_SUMMARY,
            )
        ]

    hooks = SimpleNamespace(
        cdc_register_encoders=cdc_register_encoders,
        cdc_register_sinks=cdc_register_sinks,
        cdc_register_rangefeeds=cdc_register_rangefeeds,
    )
    return PluginHost([Published.of(hooks, name="under-test")])


def _sink(
    output: str, *, forced: frozenset[str] = frozenset(), envelopes: frozenset[str] | None = None
) -> SinkRegistration:
    return SinkRegistration(
        name=output,
        schemes=(output,),
        output=output,
        forced=forced,
        envelopes=envelopes,
        sink=_NOTHING,
        resolved_sink=_NOTHING,
        destination=_NOTHING,
        options=_OPTIONS,
        summary=_SUMMARY,
    )
