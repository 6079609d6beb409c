"""Topics that queries have given to rows."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "8"
down_revision = "7"

_NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.create_table(
        "cdc_topics",
        sa.Column("id", _NUMBER, primary_key=True),
        sa.Column("name", sa.String(40), nullable=False, index=True),
        sa.Column("topic", sa.Text, nullable=False),
    )
