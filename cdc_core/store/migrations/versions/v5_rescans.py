"""Rescans that were asked for, and which tables are scanned when they join a changefeed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "5"
down_revision = "4"

_NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.add_column("cdc_changefeeds", sa.Column("initial_scans", sa.Text))
    op.create_table(
        "cdc_rescans",
        sa.Column("id", _NUMBER, primary_key=True),
        sa.Column("name", sa.String(40), nullable=False, index=True),
        sa.Column("table_name", sa.Text),
        sa.Column("predicate", sa.Text),
        sa.Column("new_slot", sa.Boolean, nullable=False),
        sa.Column("asked_at", sa.String(32), nullable=False),
        sa.Column("began", sa.String(40)),
    )
