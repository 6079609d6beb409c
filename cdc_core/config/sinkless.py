"""What stands in for the sink of a changefeed whose messages someone takes directly."""

from __future__ import annotations

from dataclasses import dataclass

from cdc_core.registrations import SinkRegistration

__all__ = ["SINKLESS", "SinklessOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SinklessOptions:
    """No options."""


SINKLESS = SinkRegistration(
    name="none",
    schemes=(),
    sink="",
    resolved_sink="",
    destination="",
    options="cdc_core.config.sinkless:SinklessOptions",
    output="messages",
    routes=True,
    summary="no sink: the messages are taken directly",
)
