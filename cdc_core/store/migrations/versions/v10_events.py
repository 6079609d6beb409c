"""The event log."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "10"
down_revision = "9"

_NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.create_table(
        "cdc_events",
        sa.Column("id", _NUMBER, primary_key=True),
        sa.Column("at", sa.String(32), nullable=False),
        sa.Column("kind", sa.String(40), nullable=False),
        sa.Column("name", sa.String(40)),
        sa.Column("node", sa.String(80)),
        sa.Column("message", sa.Text),
        sa.Column("details", sa.Text, nullable=False),
        sa.Column("times", sa.Integer, nullable=False),
        sa.Column("last_at", sa.String(32), nullable=False),
        sa.Index("ix_cdc_events_name", "name", "id"),
        sqlite_autoincrement=True,
    )
