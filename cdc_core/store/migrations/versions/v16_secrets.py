"""The cluster of a store has a random part of its secret, so that those of several stores are different."""

from __future__ import annotations

import uuid

import sqlalchemy as sa
from alembic import op

revision = "16"
down_revision = "15"


def upgrade() -> None:
    op.add_column("cdc_cluster", sa.Column("salt", sa.String(32), nullable=False, server_default=""))
    op.execute(sa.update(sa.table("cdc_cluster", sa.column("salt"))).values(salt=uuid.uuid4().hex))
