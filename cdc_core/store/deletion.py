"""How a changefeed is forgotten: nothing of it stays in the store but its events."""

from __future__ import annotations

import sqlalchemy as sa

from cdc_core.store.events import add_event
from cdc_core.store.job_tables import JOB_EVENTS, JOBS
from cdc_core.store.tables import (
    CHANGEFEEDS,
    CLAIMS,
    DEAD_LETTERS,
    GAPS,
    MOMENTS,
    RESCANS,
    STATUSES,
    TOPICS,
    TRACES,
    UNRECORDED,
)

_TABLES = (
    *(JOBS, CHANGEFEEDS, UNRECORDED, GAPS, DEAD_LETTERS, STATUSES, MOMENTS, RESCANS, CLAIMS, TOPICS, TRACES),
    JOB_EVENTS,
)
"""Jobs first: whoever changes a job locks it before its changefeed."""


def forget(connection: sa.Connection, name: str) -> bool:
    """Delete changefeed *name* in the transaction of *connection*, and return whether it was known."""
    deleted = [connection.execute(sa.delete(table).where(table.c.name == name)).rowcount for table in _TABLES]
    return any(deleted)


def drop(connection: sa.Connection, name: str) -> None:
    """Forget changefeed *name*; do nothing when it is unknown. Its events are kept, and one more says this."""
    if forget(connection, name):
        add_event(connection, "drop_changefeed", name)
