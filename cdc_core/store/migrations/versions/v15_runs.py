"""What `cdc run` runs is a job too, which nodes leave alone: a pause of it is the state of that job.

Nodes of an older version that are still alive would adopt it: they lose their sessions, as columns have other names.
"""

from __future__ import annotations

import json
from datetime import datetime

import sqlalchemy as sa
from alembic import op

revision = "15"
down_revision = "14"


def upgrade() -> None:
    op.alter_column("cdc_nodes", "draining", new_column_name="is_draining")
    op.alter_column("cdc_jobs", "clean", new_column_name="is_clean")
    op.add_column("cdc_nodes", sa.Column("cores", sa.Integer, nullable=False, server_default="0"))
    op.add_column("cdc_nodes", sa.Column("master", sa.String(280), nullable=False, server_default=""))
    op.add_column("cdc_nodes", sa.Column("cores_used", sa.Integer, nullable=False, server_default="0"))
    op.add_column("cdc_jobs", sa.Column("is_run", sa.Boolean, nullable=False, server_default=sa.false()))
    op.add_column("cdc_jobs", sa.Column("slot", sa.Integer))
    op.create_table(
        "cdc_cluster",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("node_id", sa.String(16), nullable=False),
        sa.Column("epoch", sa.Integer, nullable=False),
        sa.Column("files", sa.Text, nullable=False),
    )
    jobs = sa.table(
        "cdc_jobs",
        *map(sa.column, ("name", "state", "reason", "owner", "locality", "paused_for", "created", "finished")),
        sa.column("is_clean", sa.Boolean),
        sa.column("is_run", sa.Boolean),
    )
    events = sa.table("cdc_job_events", *map(sa.column, ("name", "at", "state", "reason")))
    changefeeds = sa.table("cdc_changefeeds", *map(sa.column, ("name", "created_at", "paused")))
    leaving = jobs.c.finished.is_(None) & jobs.c.reason.startswith("its progress is being handed over to")
    found = (
        sa.select(changefeeds, jobs.c.name.label("job"))
        .join(jobs, jobs.c.name == changefeeds.c.name, isouter=True)
        .where(jobs.c.name.is_(None) | leaving)
    )
    for row in op.get_bind().execute(found).all():
        values = {"state": "running"}
        if row.paused is not None:
            pause = json.loads(row.paused)
            values = {"state": "paused", "reason": pause["reason"], "paused_for": "error"}
            at = datetime.fromisoformat(pause["since"]).timestamp()
            op.execute(sa.insert(events).values(name=row.name, at=at, state="paused", reason=pause["reason"]))
        if row.job is None:  # what is leaving becomes a run again, paused, if that is taken back
            values |= {"name": row.name, "owner": "", "locality": ""}
            created = datetime.fromisoformat(row.created_at).timestamp()
            op.execute(sa.insert(jobs).values(**values, is_clean=True, is_run=True, created=created))
    op.drop_column("cdc_changefeeds", "paused")
