"""Changefeeds as jobs of nodes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "6"
down_revision = "5"

_NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.create_table(
        "cdc_jobs",
        sa.Column("name", sa.String(40), primary_key=True),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("reason", sa.Text),
        sa.Column("owner", sa.String(64), nullable=False),
        sa.Column("locality", sa.Text, nullable=False),
        sa.Column("ends_as", sa.String(20)),
        sa.Column("node_id", sa.String(16)),
        sa.Column("clean", sa.Boolean, nullable=False),
        sa.Column("offered_to", sa.String(16)),
        sa.Column("offered_until", sa.Double),
        sa.Column("waiting_since", sa.Double),
        sa.Column("schedule", sa.String(40)),
        sa.Column("created", sa.Double, nullable=False),
        sa.Column("started", sa.Double),
        sa.Column("finished", sa.Double),
    )
    op.create_table(
        "cdc_job_events",
        sa.Column("id", _NUMBER, primary_key=True),
        sa.Column("name", sa.String(40), nullable=False, index=True),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("state", sa.String(20), nullable=False),
        sa.Column("reason", sa.Text),
        sa.Column("node", sa.String(80)),
    )
    op.create_table(
        "cdc_nodes",
        sa.Column("node_id", sa.String(16), primary_key=True),
        sa.Column("name", sa.String(80), nullable=False, unique=True),
        sa.Column("locality", sa.Text, nullable=False),
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("pid", sa.Integer, nullable=False),
        sa.Column("directory", sa.Text, nullable=False),
        sa.Column("version", sa.String(40), nullable=False),
        sa.Column("max_jobs", sa.Integer, nullable=False),
        sa.Column("started", sa.Double, nullable=False),
        sa.Column("expires", sa.Double, nullable=False),
        sa.Column("draining", sa.Boolean, nullable=False),
        sa.Column("problems", sa.Text, nullable=False),
        sa.Column("owners", sa.Text, nullable=False),
    )
    op.create_table(
        "cdc_schedules",
        sa.Column("name", sa.String(25), primary_key=True),
        sa.Column("definition", sa.Text, nullable=False),
        sa.Column("locality", sa.Text, nullable=False),
        sa.Column("owner", sa.String(64), nullable=False),
        sa.Column("cron", sa.Text, nullable=False),
        sa.Column("time_zone", sa.String(64), nullable=False),
        sa.Column("on_previous_running", sa.String(10), nullable=False),
        sa.Column("on_execution_failure", sa.String(10), nullable=False),
        sa.Column("created", sa.Double, nullable=False),
        sa.Column("next_run", sa.Double),
        sa.Column("reason", sa.Text),
        sa.Column("last_job", sa.String(40)),
        sa.Column("version", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "cdc_schedule_runs",
        sa.Column("job", sa.String(40), primary_key=True),
        sa.Column("schedule", sa.String(25), nullable=False, index=True),
    )
