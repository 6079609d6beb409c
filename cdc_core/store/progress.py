"""The progress store: all that is kept of changefeeds, durably, and which attempt may save it."""

from __future__ import annotations

from contextlib import AbstractContextManager

import sqlalchemy as sa

from cdc_core.store.changefeeds import ChangefeedRecords
from cdc_core.store.cluster import ClusterRecords
from cdc_core.store.database import Database
from cdc_core.store.dead_letters import DeadLetters
from cdc_core.store.events import Events
from cdc_core.store.handover import Handover
from cdc_core.store.job_claims import JobClaims
from cdc_core.store.jobs import Jobs
from cdc_core.store.marks import Marks
from cdc_core.store.moments import Moments
from cdc_core.store.nodes import Nodes
from cdc_core.store.opening import sqlite_file, store_url
from cdc_core.store.planned_steps import PlannedSteps
from cdc_core.store.rescans import Rescans
from cdc_core.store.saved_progress import SavedProgress
from cdc_core.store.schedules import Schedules
from cdc_core.store.statuses import Statuses
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


class ProgressStore:
    """One database with everything that is kept of changefeeds: each attribute is one kind of thing.

    *url*, *alone* and what is raised: see `Database`. Picklable as that is.
    """

    def __init__(self, url: str, *, alone: bool = False) -> None:
        self._database = database = Database(url, alone=alone)
        self.changefeeds = ChangefeedRecords(database)
        self.progress = SavedProgress(database)
        self.planned_steps = PlannedSteps(database)
        self.marks = Marks(database)
        self.topics = Topics(database)
        self.dead_letters = DeadLetters(database)
        self.rescans = Rescans(database)
        self.traces = Traces(database)
        self.statuses = Statuses(database)
        self.moments = Moments(database)
        self.events = Events(database)
        self.jobs = Jobs(database)
        self.claims = JobClaims(database)
        self.handover = Handover(database)
        self.nodes = Nodes(database)
        self.cluster = ClusterRecords(database)
        self.schedules = Schedules(database)

    def __repr__(self) -> str:
        return f"ProgressStore({self.shown!r})"

    @property
    def url(self) -> str:
        return self._database.url

    @property
    def shown(self) -> str:
        """The URL without secrets; of a SQLite store its file."""
        return self._database.shown

    def transaction(self, *, reading: bool = False) -> AbstractContextManager[sa.Connection]:
        """Return one transaction for a verb: durable at the end of the block, and undone when it raises."""
        return self._database.transaction(reading=reading)

    def open(self) -> None:
        """Return when the store works. Raises: ConfigError when it cannot be created, reached or used."""
        self._database.open()

    def close(self) -> None:
        """Close connections unless others use them. The store can be used again."""
        self._database.close()

    def release_connections(self) -> None:
        """Close connections until the next call: for a process of which a host has many. Only of a store *alone*."""
        self._database.release_connections()
