"""What a job is paused for, and the definition that it gets then."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "9"
down_revision = "8"


def upgrade() -> None:
    op.add_column("cdc_jobs", sa.Column("paused_for", sa.String(10)))
    op.add_column("cdc_jobs", sa.Column("pending", sa.Text))
