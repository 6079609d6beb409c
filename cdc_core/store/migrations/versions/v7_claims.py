"""Slices that tasks have claimed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "7"
down_revision = "6"


def upgrade() -> None:
    op.create_table(
        "cdc_claims",
        sa.Column("name", sa.String(40), primary_key=True),
        sa.Column("epoch", sa.BigInteger, primary_key=True),
        sa.Column("step", sa.BigInteger, primary_key=True),
        sa.Column("slice", sa.Integer, primary_key=True),
        sa.Column("task", sa.Integer, nullable=False),
        sa.UniqueConstraint("name", "epoch", "step", "task", name="uq_cdc_claims_task"),
    )
