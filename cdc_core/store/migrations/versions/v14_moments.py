"""What each changefeed had counted, minute by minute, for the charts of a day."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "14"
down_revision = "13"


def upgrade() -> None:
    op.create_table(
        "cdc_moments",
        sa.Column("name", sa.String(40), primary_key=True),
        sa.Column("minute", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("counted", sa.Text, nullable=False),
    )
