"""The tables of the progress store."""

from __future__ import annotations

import sqlalchemy as sa

SCHEMA_VERSION = 16
"""Version of the tables below. `cdc_core.store.upgrading` upgrades the older ones."""

METADATA = sa.MetaData()
NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")
"""Type of a number that the database assigns: the only one that SQLite increments by itself."""


class Words(sa.TypeDecorator[str]):
    r"""A text for people. NUL and half of a surrogate pair, which no database holds, become `\x00` and `\ud800`."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> str | None:  # noqa: ARG002
        return None if value is None else value.replace("\0", r"\x00").encode(errors="backslashreplace").decode()


STORE = sa.Table("cdc_store", METADATA, sa.Column("version", sa.Integer, primary_key=True, autoincrement=False))
CHANGEFEEDS = sa.Table(
    "cdc_changefeeds",
    METADATA,
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
    sa.Column("plan", sa.Text),
    sa.Column("recorded", sa.Text),
    sa.Column("emitted", sa.Text),
    sa.Column("initial_scans", sa.Text),
    sa.Column("places", sa.Text),
)
UNRECORDED = sa.Table(
    "cdc_delivered",
    METADATA,
    sa.Column("id", NUMBER, primary_key=True),
    sa.Column("name", sa.String(40), nullable=False, index=True),
    sa.Column("entry", sa.Text, nullable=False),
    sa.Column("mark", sa.String(40)),
)
GAPS = sa.Table(
    "cdc_gaps",
    METADATA,
    sa.Column("name", sa.String(40), primary_key=True),
    sa.Column("mark", sa.String(40), primary_key=True),
)
"""Marks behind which rows were delivered without a record: the record of the next mark must not name them."""
DEAD_LETTERS = sa.Table(
    "cdc_dead_letters",
    METADATA,
    sa.Column("id", NUMBER, primary_key=True),
    sa.Column("name", sa.String(40), nullable=False),
    sa.Column("table_name", sa.Text, nullable=False),
    sa.Column("key", sa.Text, nullable=False),
    sa.Column("updated", sa.String(40), nullable=False),
    sa.Column("stage", sa.String(16), nullable=False),
    sa.Column("error", sa.Text, nullable=False),
    sa.Column("put_aside_at", sa.String(32), nullable=False),
    sa.Column("replayed_at", sa.String(32)),
    sa.Index("ix_cdc_dead_letters_waiting", "name", "replayed_at"),
)
STATUSES = sa.Table(
    "cdc_status",
    METADATA,
    sa.Column("name", sa.String(40), primary_key=True),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("written_at", sa.String(32), nullable=False),
)

RESCANS = sa.Table(
    "cdc_rescans",
    METADATA,
    sa.Column("id", NUMBER, primary_key=True),
    sa.Column("name", sa.String(40), nullable=False, index=True),
    sa.Column("table_name", sa.Text),
    sa.Column("predicate", sa.Text),
    sa.Column("new_slot", sa.Boolean, nullable=False),
    sa.Column("asked_at", sa.String(32), nullable=False),
    sa.Column("began", sa.String(40)),
)
CLAIMS = sa.Table(
    "cdc_claims",
    METADATA,
    sa.Column("name", sa.String(40), primary_key=True),
    sa.Column("epoch", sa.BigInteger, primary_key=True),
    sa.Column("step", sa.BigInteger, primary_key=True),
    sa.Column("slice", sa.Integer, primary_key=True),
    sa.Column("task", sa.Integer, nullable=False),
    sa.UniqueConstraint("name", "epoch", "step", "task", name="uq_cdc_claims_task"),
)
"""Which task of a step reads which slice."""
TOPICS = sa.Table(
    "cdc_topics",
    METADATA,
    sa.Column("id", NUMBER, primary_key=True),
    sa.Column("name", sa.String(40), nullable=False, index=True),
    sa.Column("topic", sa.Text, nullable=False),
)
"""The topics that a query has given to rows: each is here before its first row is delivered."""
EVENTS = sa.Table(
    "cdc_events",
    METADATA,
    sa.Column("id", NUMBER, primary_key=True),
    sa.Column("at", sa.String(32), nullable=False),
    sa.Column("kind", sa.String(40), nullable=False),
    sa.Column("name", sa.String(40)),
    sa.Column("node", sa.String(80)),
    sa.Column("message", Words),
    sa.Column("details", sa.Text, nullable=False),
    sa.Column("times", sa.Integer, nullable=False),
    sa.Column("last_at", sa.String(32), nullable=False),
    sa.Index("ix_cdc_events_name", "name", "id"),
    sqlite_autoincrement=True,
)
"""The event log. A number is never used again: who follows the log asks for those after the last one."""
TRACES = sa.Table(
    "cdc_traces",
    METADATA,
    sa.Column("id", NUMBER, primary_key=True),
    sa.Column("name", sa.String(40), nullable=False, index=True),
    sa.Column("table_name", sa.Text),
    sa.Column("key", sa.Text),
    sa.Column("most", sa.Integer, nullable=False),
    sa.Column("expires", sa.Double, nullable=False),
    sa.Column("found", sa.Text, nullable=False),
    sqlite_autoincrement=True,
)
"""Whose changes are followed, how many at most and until when, and what was found of them."""

MOMENTS = sa.Table(
    "cdc_moments",
    METADATA,
    sa.Column("name", sa.String(40), primary_key=True),
    sa.Column("minute", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("counted", sa.Text, nullable=False),
)
"""What each changefeed had counted in the minutes of the last day in which it ran."""


def update(name: str) -> sa.Update:
    """Return an update of the row of changefeed *name*."""
    return sa.update(CHANGEFEEDS).where(CHANGEFEEDS.c.name == name)
