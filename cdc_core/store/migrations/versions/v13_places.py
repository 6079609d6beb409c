"""What each place at the destination is, so that another one of the same name is not taken for it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "13"
down_revision = "12"


def upgrade() -> None:
    op.add_column("cdc_changefeeds", sa.Column("places", sa.Text))
