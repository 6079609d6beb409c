"""Resolves a changefeed of the rangefeed under test, as the engine does: its URI and options are really parsed."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from cdc_core import Changefeed, EncoderRegistration, RangefeedRegistration, SinkRegistration, hookimpl
from cdc_core.config.resolve import resolve
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.plugins.entry_points import Published
from cdc_core.plugins.host import PluginHost

__all__ = ["NoOptions", "resolved_changefeed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NoOptions:
    """The options of an encoder and a sink that are never opened."""


_HERE = "cdc_conformance.rangefeeds.changefeeds"
_ENCODER = EncoderRegistration(
    name="none",
    encoder=f"{_HERE}:NoEncoder",
    options=f"{_HERE}:NoOptions",
    summary="Never opened",
    envelopes=frozenset({"wrapped"}),
    outputs=frozenset({"messages"}),
)
_SINK = SinkRegistration(
    name="none",
    sink=f"{_HERE}:NoSink",
    resolved_sink=f"{_HERE}:NoSink",
    destination=f"{_HERE}:NoSink",
    options=f"{_HERE}:NoOptions",
    summary="Never opened",
    schemes=("cdc-none",),
    output="messages",
)


def resolved_changefeed(
    registration: RangefeedRegistration,
    *,
    uri: str,
    tables: Sequence[str],
    options: Mapping[str, Any],
    name: str = "conformance",
    feed_id: str | None = None,
) -> ResolvedChangefeed:
    """Return a changefeed of *tables* that is ready to run. Raises: ConfigError for an invalid URI or option."""
    changefeed = Changefeed(
        name=name, source=uri, tables=tuple(tables), sink="cdc-none://", format=_ENCODER.name, options=dict(options)
    )
    resolved = resolve(changefeed, PluginHost([_plugin(registration)]))
    return resolved.for_attempt(feed_id=feed_id or secrets.token_hex(6), epoch=1)


def _plugin(registration: RangefeedRegistration) -> Published:
    @hookimpl
    def cdc_register_rangefeeds() -> Iterator[RangefeedRegistration]:
        yield registration

    @hookimpl
    def cdc_register_encoders() -> Iterator[EncoderRegistration]:
        yield _ENCODER

    @hookimpl
    def cdc_register_sinks() -> Iterator[SinkRegistration]:
        yield _SINK

    hooks = SimpleNamespace(
        cdc_register_rangefeeds=cdc_register_rangefeeds,
        cdc_register_encoders=cdc_register_encoders,
        cdc_register_sinks=cdc_register_sinks,
    )
    return Published.of(hooks, name="conformance", distribution="cdc-conformance")
