"""The tables of jobs and nodes, and the clock that their times are in: the database's."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.expression import ColumnElement

from cdc_core.errors import ConfigError
from cdc_core.store.tables import METADATA, NUMBER, Words

JOBS = sa.Table(
    "cdc_jobs",
    METADATA,
    sa.Column("name", sa.String(40), primary_key=True),
    sa.Column("state", sa.String(20), nullable=False),
    sa.Column("reason", Words),
    sa.Column("owner", sa.String(64), nullable=False),
    sa.Column("locality", sa.Text, nullable=False),
    sa.Column("node_id", sa.String(16)),
    sa.Column("is_clean", sa.Boolean, nullable=False),
    sa.Column("offered_to", sa.String(16)),
    sa.Column("offered_until", sa.Double),
    sa.Column("schedule", sa.String(40)),
    sa.Column("created", sa.Double, nullable=False),
    sa.Column("started", sa.Double),
    sa.Column("finished", sa.Double),
    sa.Column("paused_for", sa.String(10)),
    sa.Column("pending", sa.Text),
    sa.Column("is_run", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("slot", sa.Integer),
)
"""Every changefeed has a row. With `is_run` it belongs to `cdc run`, and nodes leave it alone.
`is_clean`: no node has run the job since it was settled last.
`slot`: which executor of each worker it has, when it runs across the nodes.
`paused_for` is a `PausedFor`, and `pending` the `Pending` definition that the job gets when it is paused."""
JOB_EVENTS = sa.Table(
    "cdc_job_events",
    METADATA,
    sa.Column("id", NUMBER, primary_key=True),
    sa.Column("name", sa.String(40), nullable=False, index=True),
    sa.Column("at", sa.Double, nullable=False),
    sa.Column("state", sa.String(20), nullable=False),
    sa.Column("reason", Words),
    sa.Column("node", sa.String(80)),
)
NODES = sa.Table(
    "cdc_nodes",
    METADATA,
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
    sa.Column("is_draining", sa.Boolean, nullable=False),
    sa.Column("problems", sa.Text, nullable=False),
    sa.Column("owners", sa.Text, nullable=False),
    sa.Column("cores", sa.Integer, nullable=False, server_default="0"),
    sa.Column("master", sa.String(280), nullable=False, server_default=""),
    sa.Column("cores_used", sa.Integer, nullable=False, server_default="0"),
)
CLUSTER = sa.Table(
    "cdc_cluster",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("node_id", sa.String(16), nullable=False),
    sa.Column("epoch", sa.Integer, nullable=False),
    sa.Column("files", sa.Text, nullable=False),
    sa.Column("salt", sa.String(32), nullable=False, server_default=""),
)
"""One row, from the beginning: the session of the node that leads the cluster, how often that has changed, and its
master's files.
`salt`: what its secret has that no other cluster's has."""


class DatabaseNow(ColumnElement[float]):
    """The clock of the database, in seconds since 1970. It continues within a transaction."""

    inherit_cache = True
    type = sa.Double()


@compiles(DatabaseNow)
def _unknown(_element: DatabaseNow, compiler: Any, **_options: Any) -> str:
    raise ConfigError(f"jobs and nodes need a store in PostgreSQL or SQLite, but this one is {compiler.dialect.name}")


@compiles(DatabaseNow, "postgresql")
def _postgresql(_element: DatabaseNow, _compiler: Any, **_options: Any) -> str:
    return "extract(epoch FROM clock_timestamp())::float8"


@compiles(DatabaseNow, "sqlite")
def _sqlite(_element: DatabaseNow, _compiler: Any, **_options: Any) -> str:
    return "((julianday('now') - 2440587.5) * 86400.0)"
