"""The tables of schedules."""

from __future__ import annotations

import sqlalchemy as sa

from cdc_core.store.tables import METADATA

__all__ = ["SCHEDULES", "SCHEDULE_RUNS"]

SCHEDULES = sa.Table(
    "cdc_schedules",
    METADATA,
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
"""`next_run` is null while the schedule is paused. `version` is raised by each change, so that two nodes never make
the same one."""
SCHEDULE_RUNS = sa.Table(
    "cdc_schedule_runs",
    METADATA,
    sa.Column("job", sa.String(40), primary_key=True),
    sa.Column("schedule", sa.String(25), nullable=False, index=True),
)
"""The jobs that schedules have started and whose end no node has looked at yet."""
