"""The upgrade of a store that an older version wrote: what has changed in tables that were there."""

from __future__ import annotations

import json
import uuid
from datetime import datetime

import sqlalchemy as sa
from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext

from cdc_core.store.job_tables import CLUSTER, JOB_EVENTS, JOBS, DatabaseNow
from cdc_core.store.tables import GAPS, METADATA, SCHEMA_VERSION, STORE

_COLUMNS = {
    2: ("plan", "paused", "recorded", "unrecorded"),
    3: ("emitted",),
    5: ("initial_scans",),
    13: ("places",),
}
"""What each version has added to the table of changefeeds."""
_HAS_JOBS, _HAS_CLUSTER = 6, 15
"""Which version has added the tables of jobs and nodes, and that of the cluster."""
_MAY_REST = (
    "the store was upgraded; from now on, a job may be idle for up to gc_protect_expires_after, four days by default"
)


def upgrade(connection: sa.Connection, version: int) -> None:
    """Upgrade the store from *version* in the transaction of *connection*.

    A table that it lacks is made as it is now. So a change of a table is only for stores that had it. Statements write
    rows into tables as they are now too: a column that may not be null is added before them, or has a server's default.
    """
    op = Operations(MigrationContext.configure(connection))
    if connection.dialect.name == "postgresql":  # only its own schema is seen, and not another store's on the path
        op.execute(
            "SELECT set_config('search_path', relnamespace::regnamespace::text, true)"
            " FROM pg_class WHERE oid = 'cdc_store'::regclass"
        )
    METADATA.create_all(connection)
    for since, names in _COLUMNS.items():
        for name in names if version < since else ():
            op.add_column("cdc_changefeeds", sa.Column(name, sa.Text))
    if version < 4:
        _move_gaps(op)
    if _HAS_JOBS <= version < 9:
        op.add_column("cdc_jobs", sa.Column("paused_for", sa.String(10)))
        op.add_column("cdc_jobs", sa.Column("pending", sa.Text))
    if _HAS_JOBS <= version < 12:
        _cancel_failed(op)
    if version < 15:
        if version >= _HAS_JOBS:
            _mark_runs(op)
        _add_runs(op)
    if version < 16:  # the clusters of several stores are different by this part of their secrets
        if version >= _HAS_CLUSTER:
            op.add_column("cdc_cluster", sa.Column("salt", sa.String(32), nullable=False, server_default=""))
        salt = uuid.uuid4().hex
        if not connection.execute(sa.update(CLUSTER).values(salt=salt)).rowcount:
            connection.execute(sa.insert(CLUSTER).values(id=1, node_id="", epoch=0, files="{}", salt=salt))
    op.drop_table("cdc_migrations", if_exists=True)  # in which versions were counted too
    connection.execute(sa.delete(STORE))
    connection.execute(sa.insert(STORE).values(version=SCHEMA_VERSION))


def _move_gaps(op: Operations) -> None:
    """Give gaps, a list in a column of changefeeds, their table."""
    # processes of the older version may still write gaps: not now, as a column that was added before locks the table
    changefeeds = sa.table("cdc_changefeeds", sa.column("name"), sa.column("unrecorded"))
    for row in op.get_bind().execute(sa.select(changefeeds).where(changefeeds.c.unrecorded.is_not(None))).all():
        marks = dict.fromkeys(row.unrecorded.split())
        op.bulk_insert(GAPS, [{"name": row.name, "mark": mark} for mark in marks])
    op.drop_column("cdc_changefeeds", "unrecorded")
    # early stores of version 2 have another index in its place
    op.drop_index("ix_cdc_dead_letters_name", "cdc_dead_letters", if_exists=True)
    op.create_index("ix_cdc_dead_letters_waiting", "cdc_dead_letters", ["name", "replayed_at"], if_not_exists=True)


def _cancel_failed(op: Operations) -> None:
    """Cancel the jobs that have failed: they have lost their positions, which those that fail from now on keep."""
    jobs = sa.table("cdc_jobs", sa.column("name", sa.String), sa.column("state", sa.String))
    op.execute(sa.update(jobs).where(jobs.c.state == "failed").values(state="canceled"))
    rests = sa.select(jobs.c.name, DatabaseNow(), jobs.c.state, sa.literal(_MAY_REST)).where(jobs.c.state == "paused")
    op.execute(sa.insert(JOB_EVENTS).from_select(["name", "at", "state", "reason"], rests))
    for name in ("ends_as", "waiting_since"):
        op.drop_column("cdc_jobs", name)


def _mark_runs(op: Operations) -> None:
    """Let jobs be of `cdc run`, and nodes offer cores.

    Nodes of an older version that are still alive would adopt what `cdc run` runs: they lose their sessions, as columns
    have other names.
    """
    op.alter_column("cdc_nodes", "draining", new_column_name="is_draining")
    op.alter_column("cdc_jobs", "clean", new_column_name="is_clean")
    op.add_column("cdc_nodes", sa.Column("cores", sa.Integer, nullable=False, server_default="0"))
    op.add_column("cdc_nodes", sa.Column("master", sa.String(280), nullable=False, server_default=""))
    op.add_column("cdc_nodes", sa.Column("cores_used", sa.Integer, nullable=False, server_default="0"))
    op.add_column("cdc_jobs", sa.Column("is_run", sa.Boolean, nullable=False, server_default=sa.false()))
    op.add_column("cdc_jobs", sa.Column("slot", sa.Integer))


def _add_runs(op: Operations) -> None:
    """Make what `cdc run` runs a job too, which nodes leave alone: a pause of it is the state of that job."""
    changefeeds = sa.table("cdc_changefeeds", *map(sa.column, ("name", "created_at", "paused")))
    leaving = JOBS.c.finished.is_(None) & JOBS.c.reason.startswith("its progress is being handed over to")
    found = (
        sa.select(changefeeds, JOBS.c.name.label("job"))
        .join(JOBS, JOBS.c.name == changefeeds.c.name, isouter=True)
        .where(JOBS.c.name.is_(None) | leaving)
    )
    for row in op.get_bind().execute(found).all():
        values = {"state": "running"}
        if row.paused is not None:
            pause = json.loads(row.paused)
            values = {"state": "paused", "reason": pause["reason"], "paused_for": "error"}
            at = datetime.fromisoformat(pause["since"]).timestamp()
            op.execute(sa.insert(JOB_EVENTS).values(name=row.name, at=at, state="paused", reason=pause["reason"]))
        if row.job is None:  # what is leaving becomes a run again, paused, if that is taken back
            values |= {"name": row.name, "owner": "", "locality": ""}
            created = datetime.fromisoformat(row.created_at).timestamp()
            op.execute(sa.insert(JOBS).values(**values, is_clean=True, is_run=True, created=created))
    op.drop_column("cdc_changefeeds", "paused")
