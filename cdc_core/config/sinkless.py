"""What stands in for the sink of a changefeed whose messages someone takes directly."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cdc_core.envelope import ENVELOPES
from cdc_core.errors import OptionError
from cdc_core.sink_registration import SinkRegistration

_UNUSED = (
    *("on_error", "dead_letter", "metrics_label", "gc_protect_expires_after"),
    *("execution_locality", "executor_wait", "give_up_after", "master", "delivery_tasks"),
)
"""Options about how a changefeed runs, which has nothing of that when its messages are taken directly."""


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
    envelopes=frozenset(ENVELOPES),
    summary="no sink: the messages are read directly",
)


def refuse_unused(names: Iterable[str], *, owner: str) -> None:
    """Return when options of *names* can have an effect without a sink. Raises: OptionError, beginning with *owner*."""
    for name in names:
        if name.lower() in _UNUSED or name.lower().startswith("spark."):
            raise OptionError(
                f"{owner}: option '{name}' has no effect without a sink, because the messages are read directly; remove"
                " it"
            )
