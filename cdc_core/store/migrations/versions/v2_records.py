"""Plans, pauses, records of what was delivered, and dead letters."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "2"
down_revision = "1"

_NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    for name in ("plan", "paused", "recorded", "unrecorded"):
        op.add_column("cdc_changefeeds", sa.Column(name, sa.Text))
    op.create_table(
        "cdc_delivered",
        sa.Column("id", _NUMBER, primary_key=True),
        sa.Column("name", sa.String(40), nullable=False, index=True),
        sa.Column("entry", sa.Text, nullable=False),
        sa.Column("mark", sa.String(40)),
    )
    op.create_table(
        "cdc_dead_letters",
        sa.Column("id", _NUMBER, primary_key=True),
        sa.Column("name", sa.String(40), nullable=False),
        sa.Column("table_name", sa.Text, nullable=False),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("updated", sa.String(40), nullable=False),
        sa.Column("stage", sa.String(16), nullable=False),
        sa.Column("error", sa.Text, nullable=False),
        sa.Column("put_aside_at", sa.String(32), nullable=False),
        sa.Column("replayed_at", sa.String(32)),
    )
    op.create_index("ix_cdc_dead_letters_waiting", "cdc_dead_letters", ["name", "replayed_at"])
