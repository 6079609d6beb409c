"""Traces: whose changes are followed, and what was found of them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "11"
down_revision = "10"

_NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.create_table(
        "cdc_traces",
        sa.Column("id", _NUMBER, primary_key=True),
        sa.Column("name", sa.String(40), nullable=False, index=True),
        sa.Column("table_name", sa.Text),
        sa.Column("key", sa.Text),
        sa.Column("most", sa.Integer, nullable=False),
        sa.Column("expires", sa.Double, nullable=False),
        sa.Column("found", sa.Text, nullable=False),
        sqlite_autoincrement=True,
    )
