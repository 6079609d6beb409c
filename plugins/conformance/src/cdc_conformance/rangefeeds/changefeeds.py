"""Resolves a changefeed of the rangefeed under test, as the engine does: its URI and options are really parsed."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from cdc_conformance.hosting import UNOPENED_ENCODER, plugin_of, unopened_sink
from cdc_core import Changefeed, RangefeedRegistration
from cdc_core.config.resolve import resolve
from cdc_core.config.resolved import ResolvedChangefeed
from cdc_core.plugins.host import PluginHost

__all__ = ["resolved_changefeed"]

_SINK = unopened_sink("cdc-none", output="messages")


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
        name=name,
        source=uri,
        tables=tuple(tables),
        sink=f"{_SINK.name}://",
        format=UNOPENED_ENCODER.name,
        options=dict(options),
    )
    resolved = resolve(changefeed, PluginHost([plugin_of(registration, UNOPENED_ENCODER, _SINK)]))
    return resolved.for_attempt(feed_id=feed_id or secrets.token_hex(6), epoch=1)
