"""The progress store: all that is kept of changefeeds, durably, and which attempt may save it."""

from __future__ import annotations

from cdc_core.store.claims import Claims
from cdc_core.store.dead_letters import DeadLetters
from cdc_core.store.events import Events, add_event
from cdc_core.store.forgetting import forget
from cdc_core.store.handover import Handover
from cdc_core.store.moments import Moments
from cdc_core.store.nodes import Nodes
from cdc_core.store.opening import sqlite_file, store_url
from cdc_core.store.pauses import Pauses
from cdc_core.store.plans import Plans
from cdc_core.store.records import Records
from cdc_core.store.rescans import Rescans
from cdc_core.store.saved_progress import SavedProgress
from cdc_core.store.schedules import Schedules
from cdc_core.store.statuses import Statuses
from cdc_core.store.steering import Steering
from cdc_core.store.topics import Topics
from cdc_core.store.traces import Traces
from cdc_core.store.values import (
    ChangefeedRecord,
    DeadLetter,
    Delivered,
    Pause,
    PendingRecord,
    Progress,
    RescanRecord,
    SavedStatus,
)

__all__ = [
    "ChangefeedRecord",
    "DeadLetter",
    "Delivered",
    "Pause",
    "PendingRecord",
    "Progress",
    "ProgressStore",
    "RescanRecord",
    "SavedStatus",
    "sqlite_file",
    "store_url",
]


class ProgressStore(
    Steering,
    Schedules,
    Nodes,
    SavedProgress,
    Records,
    Plans,
    Pauses,
    DeadLetters,
    Statuses,
    Moments,
    Rescans,
    Claims,
    Topics,
    Traces,
    Handover,
    Events,
):
    """One database with everything that is kept of changefeeds: each base class is one kind of thing."""

    def forget(self, name: str) -> None:
        """Delete the changefeed; do nothing when it is unknown. Its events are kept, and one more says this."""
        with self._transaction() as connection:
            if forget(connection, name):
                add_event(connection, "drop_changefeed", name)
