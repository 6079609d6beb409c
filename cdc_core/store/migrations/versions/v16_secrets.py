"""The cluster of a store has a random part of its secret, so that those of several stores are different."""

from __future__ import annotations

import uuid

import sqlalchemy as sa
from alembic import op

revision = "16"
down_revision = "15"


def upgrade() -> None:
    op.add_column("cdc_cluster", sa.Column("salt", sa.String(32), nullable=False, server_default=""))
    cluster = sa.table("cdc_cluster", *map(sa.column, ("id", "node_id", "epoch", "files", "salt")))
    salt = uuid.uuid4().hex
    if not op.get_bind().execute(sa.update(cluster).values(salt=salt)).rowcount:
        op.execute(sa.insert(cluster).values(id=1, node_id="", epoch=0, files="{}", salt=salt))
