"""A job that has failed keeps its position. Those that failed before had lost it: they are canceled."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "12"
down_revision = "11"


def upgrade() -> None:
    jobs = sa.table("cdc_jobs", sa.column("state", sa.String))
    op.execute(sa.update(jobs).where(jobs.c.state == "failed").values(state="canceled"))
    for name in ("ends_as", "waiting_since"):
        op.drop_column("cdc_jobs", name)
