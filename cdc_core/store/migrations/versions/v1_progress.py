"""Changefeeds and their progress."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "1"
down_revision = None


def upgrade() -> None:
    op.create_table("cdc_store", sa.Column("version", sa.Integer, primary_key=True, autoincrement=False))
    op.create_table(
        "cdc_changefeeds",
        sa.Column("name", sa.String(40), primary_key=True),
        sa.Column("feed_id", sa.String(12), nullable=False, unique=True),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("definition", sa.Text, nullable=False),
        sa.Column("created_at", sa.String(32), nullable=False),
        sa.Column("token", sa.Text),
        sa.Column("frontier", sa.Text),
        sa.Column("latest", sa.String(40)),
        sa.Column("counters", sa.Text),
        sa.Column("saved_at", sa.String(32)),
    )
