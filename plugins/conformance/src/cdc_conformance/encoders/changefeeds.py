"""Resolves changefeeds with the encoder under test, as the engine does: its options are really parsed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from cdc_conformance.hosting import SOURCE, UNOPENED_SOURCE, plugin_of, unopened_sink
from cdc_core import Changefeed, Encoder, EncoderContext, EncoderRegistration, Envelope
from cdc_core.config.resolve import resolve
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.envelope import ENVELOPE_OPTIONS, ENVELOPES
from cdc_core.plugins.host import PluginHost

__all__ = ["encoder_context", "open_encoder", "plugin_host", "resolved_changefeed"]


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
        source=SOURCE,
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
    messages = unopened_sink("messages", output="messages", envelopes=frozenset(ENVELOPES))
    files = unopened_sink("files", output="files", forced=frozenset({"key_in_value"}), envelopes=file_envelopes)
    return PluginHost([plugin_of(encoder, UNOPENED_SOURCE, messages, files)])
