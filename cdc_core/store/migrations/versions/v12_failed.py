"""A job that has failed keeps its position. Those that failed before had lost it: they are canceled."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from cdc_core.store.job_tables import DatabaseNow

revision = "12"
down_revision = "11"

_WHY = (
    "the store was upgraded; from now on a job may rest for as long as gc_protect_expires_after, four days by default"
)


def upgrade() -> None:
    jobs = sa.table("cdc_jobs", sa.column("name", sa.String), sa.column("state", sa.String))
    op.execute(sa.update(jobs).where(jobs.c.state == "failed").values(state="canceled"))
    rests = sa.select(jobs.c.name, DatabaseNow(), jobs.c.state, sa.literal(_WHY)).where(jobs.c.state == "paused")
    events = sa.table("cdc_job_events", *map(sa.column, ("name", "at", "state", "reason")))
    op.execute(sa.insert(events).from_select(["name", "at", "state", "reason"], rests))
    for name in ("ends_as", "waiting_since"):
        op.drop_column("cdc_jobs", name)
