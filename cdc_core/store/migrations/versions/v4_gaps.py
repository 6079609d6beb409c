"""Gaps in a table of their own, before a list in a column of the changefeeds; and the status of each run."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "4"
down_revision = "3"


def upgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":  # processes of the older version may still write gaps
        op.execute("LOCK TABLE cdc_changefeeds IN ACCESS EXCLUSIVE MODE")
    gaps = op.create_table(
        "cdc_gaps",
        sa.Column("name", sa.String(40), primary_key=True),
        sa.Column("mark", sa.String(40), primary_key=True),
    )
    changefeeds = sa.table("cdc_changefeeds", sa.column("name"), sa.column("unrecorded"))
    lists = sa.select(changefeeds).where(changefeeds.c.unrecorded.is_not(None))
    op.bulk_insert(
        gaps,
        [
            {"name": row.name, "mark": mark}
            for row in op.get_bind().execute(lists)
            for mark in dict.fromkeys(row.unrecorded.split())
        ],
    )
    op.drop_column("cdc_changefeeds", "unrecorded")
    op.create_table(
        "cdc_status",
        sa.Column("name", sa.String(40), primary_key=True),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("written_at", sa.String(32), nullable=False),
        if_not_exists=True,
    )
    # early stores of version 2 have another index in its place
    op.drop_index("ix_cdc_dead_letters_name", "cdc_dead_letters", if_exists=True)
    op.create_index("ix_cdc_dead_letters_waiting", "cdc_dead_letters", ["name", "replayed_at"], if_not_exists=True)
