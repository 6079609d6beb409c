"""What an encoder registers and can be asked for, and changefeeds that ask for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from cdc_conformance.components import SOURCE, UNOPENED_SOURCE, plugin_of, registration_of, unopened_sink
from cdc_conformance.promises import Condition
from cdc_core import Changefeed, Encoder, EncoderContext, EncoderRegistration, Envelope, RowPlace
from cdc_core.config.parts import Parts
from cdc_core.config.resolve import resolve
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.envelope import ENVELOPE_OPTIONS, ENVELOPES
from cdc_core.plugins.host import PluginHost


def registered(cls: type[Any]) -> EncoderRegistration:
    """Return the registration of the encoder that a test class names."""
    return cast(EncoderRegistration, registration_of(cls, "encoder"))


DECODER = Condition(lambda cls: bool(registered(cls).decoder), "the encoder registers no decoder")
FILES = Condition(lambda cls: "files" in registered(cls).outputs, "the encoder writes no files")
MESSAGES = Condition(lambda cls: "messages" in registered(cls).outputs, "the encoder writes no messages")
CHANGES = Condition(lambda cls: not registered(cls).scans_only, "the format is for scans only")
SCANS_ONLY = Condition(lambda cls: registered(cls).scans_only, "the format is not for scans only")
REKEYS = Condition(lambda cls: registered(cls).rekeys, "the keys of the encoder are always the primary key")
COMPRESSES = Condition(lambda cls: registered(cls).compresses, "the encoder does not compress files")


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """One form of output."""

    output: str
    envelope: Envelope
    scans_only: bool = False

    @property
    def name(self) -> str:
        return self.envelope.name

    @property
    def flags(self) -> tuple[str, ...]:
        return tuple(name for name in ENVELOPE_OPTIONS if getattr(self.envelope, name))

    @property
    def has_row(self) -> bool:
        """Whether the value holds the row after the change."""
        return self.envelope.row is not RowPlace.NOWHERE

    def __str__(self) -> str:
        added = (*self.envelope.enriched_properties, *self.flags)
        return f"envelope '{self.name}'{' with ' if added else ''}{', '.join(added)}, as {self.output}"


def resolved_changefeed(
    registration: EncoderRegistration, host: PluginHost, *, output: str, envelope: Envelope, options: Mapping[str, Any]
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
    return replace(Parts(feed).encoder_context(), clock=_noon)


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
