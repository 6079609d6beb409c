"""The last resolved mark that was emitted."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "3"
down_revision = "2"


def upgrade() -> None:
    op.add_column("cdc_changefeeds", sa.Column("emitted", sa.Text))
