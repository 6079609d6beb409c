"""Options of the null sink."""

from __future__ import annotations

from dataclasses import dataclass

from cdc_core import Duration, option


@dataclass(frozen=True, slots=True, kw_only=True)
class NullOptions:
    """Options of the changefeed or parameters of the sink URI."""

    delay: Duration = option(
        Duration(0.0), doc="How long each flush takes, to simulate a slow destination. Each task flushes once per step."
    )
