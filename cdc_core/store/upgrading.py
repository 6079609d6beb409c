"""The upgrade of a store that an older version wrote: what each version of the tables has changed."""

from __future__ import annotations

import json
import uuid
from datetime import datetime

import sqlalchemy as sa
from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext

from cdc_core.store.job_tables import DatabaseNow
from cdc_core.store.tables import SCHEMA_VERSION, STORE

_NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade(connection: sa.Connection, version: int | None) -> None:
    """Upgrade the store from *version* (None: no tables) in the transaction of *connection*."""
    op = Operations(MigrationContext.configure(connection))
    for step in UPGRADES[version or 0 :]:
        step(op)
    op.drop_table("cdc_migrations", if_exists=True)  # older versions counted there too
    connection.execute(sa.delete(STORE))
    connection.execute(sa.insert(STORE).values(version=SCHEMA_VERSION))


def _to_1(op: Operations) -> None:
    """Changefeeds and their progress."""
    op.create_table("cdc_store", sa.Column("version", sa.Integer, primary_key=True, autoincrement=False))
    op.create_table(
        "cdc_changefeeds",
        sa.Column("name", sa.String(40), primary_key=True),
        sa.Column("feed_id", sa.String(12), nullable=False, unique=True),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("definition", sa.Text, nullable=False),
        sa.Column("created_at", sa.String(32), nullable=False),
        sa.Column("token", sa.Text),
        sa.Column("frontier", sa.Text),
        sa.Column("latest", sa.String(40)),
        sa.Column("counters", sa.Text),
        sa.Column("saved_at", sa.String(32)),
    )


def _to_2(op: Operations) -> None:
    """Plans, pauses, records of what was delivered, and dead letters."""
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


def _to_3(op: Operations) -> None:
    """The last resolved mark that was emitted."""
    op.add_column("cdc_changefeeds", sa.Column("emitted", sa.Text))


def _to_4(op: Operations) -> None:
    """Gaps in a table of their own, before a list in a column of the changefeeds; and the status of each run."""
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


def _to_5(op: Operations) -> None:
    """Rescans that were asked for, and which tables are scanned when they join a changefeed."""
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


def _to_6(op: Operations) -> None:
    """Changefeeds as jobs of nodes."""
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


def _to_7(op: Operations) -> None:
    """Slices that tasks have claimed."""
    op.create_table(
        "cdc_claims",
        sa.Column("name", sa.String(40), primary_key=True),
        sa.Column("epoch", sa.BigInteger, primary_key=True),
        sa.Column("step", sa.BigInteger, primary_key=True),
        sa.Column("slice", sa.Integer, primary_key=True),
        sa.Column("task", sa.Integer, nullable=False),
        sa.UniqueConstraint("name", "epoch", "step", "task", name="uq_cdc_claims_task"),
    )


def _to_8(op: Operations) -> None:
    """Topics that queries have given to rows."""
    op.create_table(
        "cdc_topics",
        sa.Column("id", _NUMBER, primary_key=True),
        sa.Column("name", sa.String(40), nullable=False, index=True),
        sa.Column("topic", sa.Text, nullable=False),
    )


def _to_9(op: Operations) -> None:
    """What a job is paused for, and the definition that it gets then."""
    op.add_column("cdc_jobs", sa.Column("paused_for", sa.String(10)))
    op.add_column("cdc_jobs", sa.Column("pending", sa.Text))


def _to_10(op: Operations) -> None:
    """The event log."""
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


def _to_11(op: Operations) -> None:
    """Traces: whose changes are followed, and what was found of them."""
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


_WHY = (
    "the store was upgraded; from now on a job may rest for as long as gc_protect_expires_after, four days by default"
)


def _to_12(op: Operations) -> None:
    """A job that has failed keeps its position. Those that failed before had lost it: they are canceled."""
    jobs = sa.table("cdc_jobs", sa.column("name", sa.String), sa.column("state", sa.String))
    op.execute(sa.update(jobs).where(jobs.c.state == "failed").values(state="canceled"))
    rests = sa.select(jobs.c.name, DatabaseNow(), jobs.c.state, sa.literal(_WHY)).where(jobs.c.state == "paused")
    events = sa.table("cdc_job_events", *map(sa.column, ("name", "at", "state", "reason")))
    op.execute(sa.insert(events).from_select(["name", "at", "state", "reason"], rests))
    for name in ("ends_as", "waiting_since"):
        op.drop_column("cdc_jobs", name)


def _to_13(op: Operations) -> None:
    """What each place at the destination is, so that another one of the same name is not taken for it."""
    op.add_column("cdc_changefeeds", sa.Column("places", sa.Text))


def _to_14(op: Operations) -> None:
    """What each changefeed had counted, minute by minute, for the charts of a day."""
    op.create_table(
        "cdc_moments",
        sa.Column("name", sa.String(40), primary_key=True),
        sa.Column("minute", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("counted", sa.Text, nullable=False),
    )


def _to_15(op: Operations) -> None:
    """What `cdc run` runs is a job too, which nodes leave alone: a pause of it is the state of that job.

    Nodes of an older version that are still alive would adopt it: they lose their sessions, as columns have other
    names.
    """
    op.alter_column("cdc_nodes", "draining", new_column_name="is_draining")
    op.alter_column("cdc_jobs", "clean", new_column_name="is_clean")
    op.add_column("cdc_nodes", sa.Column("cores", sa.Integer, nullable=False, server_default="0"))
    op.add_column("cdc_nodes", sa.Column("master", sa.String(280), nullable=False, server_default=""))
    op.add_column("cdc_nodes", sa.Column("cores_used", sa.Integer, nullable=False, server_default="0"))
    op.add_column("cdc_jobs", sa.Column("is_run", sa.Boolean, nullable=False, server_default=sa.false()))
    op.add_column("cdc_jobs", sa.Column("slot", sa.Integer))
    op.create_table(
        "cdc_cluster",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("node_id", sa.String(16), nullable=False),
        sa.Column("epoch", sa.Integer, nullable=False),
        sa.Column("files", sa.Text, nullable=False),
    )
    jobs = sa.table(
        "cdc_jobs",
        *map(sa.column, ("name", "state", "reason", "owner", "locality", "paused_for", "created", "finished")),
        sa.column("is_clean", sa.Boolean),
        sa.column("is_run", sa.Boolean),
    )
    events = sa.table("cdc_job_events", *map(sa.column, ("name", "at", "state", "reason")))
    changefeeds = sa.table("cdc_changefeeds", *map(sa.column, ("name", "created_at", "paused")))
    leaving = jobs.c.finished.is_(None) & jobs.c.reason.startswith("its progress is being handed over to")
    found = (
        sa.select(changefeeds, jobs.c.name.label("job"))
        .join(jobs, jobs.c.name == changefeeds.c.name, isouter=True)
        .where(jobs.c.name.is_(None) | leaving)
    )
    for row in op.get_bind().execute(found).all():
        values = {"state": "running"}
        if row.paused is not None:
            pause = json.loads(row.paused)
            values = {"state": "paused", "reason": pause["reason"], "paused_for": "error"}
            at = datetime.fromisoformat(pause["since"]).timestamp()
            op.execute(sa.insert(events).values(name=row.name, at=at, state="paused", reason=pause["reason"]))
        if row.job is None:  # what is leaving becomes a run again, paused, if that is taken back
            values |= {"name": row.name, "owner": "", "locality": ""}
            created = datetime.fromisoformat(row.created_at).timestamp()
            op.execute(sa.insert(jobs).values(**values, is_clean=True, is_run=True, created=created))
    op.drop_column("cdc_changefeeds", "paused")


def _to_16(op: Operations) -> None:
    """The cluster of a store has a random part of its secret, so that those of several stores are different."""
    op.add_column("cdc_cluster", sa.Column("salt", sa.String(32), nullable=False, server_default=""))
    cluster = sa.table("cdc_cluster", *map(sa.column, ("id", "node_id", "epoch", "files", "salt")))
    salt = uuid.uuid4().hex
    if not op.get_bind().execute(sa.update(cluster).values(salt=salt)).rowcount:
        op.execute(sa.insert(cluster).values(id=1, node_id="", epoch=0, files="{}", salt=salt))


UPGRADES = (
    _to_1,
    _to_2,
    _to_3,
    _to_4,
    _to_5,
    _to_6,
    _to_7,
    _to_8,
    _to_9,
    _to_10,
    _to_11,
    _to_12,
    _to_13,
    _to_14,
    _to_15,
    _to_16,
)
"""By version: how the tables get from the one before to it."""
