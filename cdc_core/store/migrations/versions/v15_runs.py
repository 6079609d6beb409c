"""What `cdc run` runs is a job too, which nodes leave alone: a pause of it is the state of that job."""

from __future__ import annotations

import json
from datetime import datetime

import sqlalchemy as sa
from alembic import op

revision = "15"
down_revision = "14"


def upgrade() -> None:
    op.add_column("cdc_jobs", sa.Column("is_run", sa.Boolean, nullable=False, server_default=sa.false()))
    jobs = sa.table(
        "cdc_jobs",
        *map(sa.column, ("name", "state", "reason", "owner", "locality", "paused_for", "created")),
        sa.column("clean", sa.Boolean),
        sa.column("is_run", sa.Boolean),
    )
    events = sa.table("cdc_job_events", *map(sa.column, ("name", "at", "state", "reason")))
    changefeeds = sa.table("cdc_changefeeds", *map(sa.column, ("name", "created_at", "paused")))
    runs = sa.select(changefeeds).where(changefeeds.c.name.not_in(sa.select(jobs.c.name)))
    for row in op.get_bind().execute(runs).all():
        pause = None if row.paused is None else json.loads(row.paused)
        values = {"state": "running"}
        if pause is not None:
            values = {"state": "paused", "reason": pause["reason"], "paused_for": "error"}
            at = datetime.fromisoformat(pause["since"]).timestamp()
            op.execute(sa.insert(events).values(name=row.name, at=at, state="paused", reason=pause["reason"]))
        created = datetime.fromisoformat(row.created_at).timestamp()
        row_of_run = {"name": row.name, "owner": "", "locality": "", "clean": True, "is_run": True, "created": created}
        op.execute(sa.insert(jobs).values(**row_of_run, **values))
    op.drop_column("cdc_changefeeds", "paused")
