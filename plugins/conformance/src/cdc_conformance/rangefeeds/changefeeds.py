"""A rangefeed as the engine opens it: from a changefeed, with its URI and options really parsed."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from cdc_core import Changefeed, hookimpl
from cdc_core.config.resolve import resolve
from cdc_core.config.resolved import Job
from cdc_core.plugins.host import PluginHost
from cdc_core.plugins.loading import PluginSource
from cdc_core.registrations import EncoderRegistration, RangefeedRegistration, SinkRegistration

__all__ = ["NoOptions", "job_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NoOptions:
    """Of an encoder and a sink that are named but never opened."""


_HERE = "cdc_conformance.rangefeeds.jobs"
_ENCODER = EncoderRegistration(
    name="none",
    target=f"{_HERE}:NoEncoder",
    options=f"{_HERE}:NoOptions",
    summary="Never opened",
    envelopes=frozenset({"wrapped"}),
    outputs=frozenset({"messages"}),
)
_SINK = SinkRegistration(
    name="none",
    target=f"{_HERE}:NoSink",
    options=f"{_HERE}:NoOptions",
    summary="Never opened",
    schemes=("cdc-none",),
    output="messages",
)


def job_of(
    registration: RangefeedRegistration,
    *,
    uri: str,
    tables: Sequence[str],
    options: Mapping[str, Any],
    name: str = "conformance",
    feed_id: str | None = None,
) -> Job:
    """Return a changefeed of *tables* made ready to run. Raises: ConfigError for a URI or options that cannot be."""
    changefeed = Changefeed(
        name=name, source=uri, tables=tuple(tables), sink="cdc-none://", format=_ENCODER.name, options=dict(options)
    )
    job = resolve(changefeed, PluginHost([_plugin(registration)]))
    return job.with_run(feed_id=feed_id or secrets.token_hex(6), epoch=1)


def _plugin(registration: RangefeedRegistration) -> PluginSource:
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
    return PluginSource.of(hooks, name="conformance", distribution="cdc-conformance")
