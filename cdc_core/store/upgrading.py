"""The upgrade of a store that an older version wrote."""

from __future__ import annotations

import threading
from pathlib import Path

import sqlalchemy as sa
from alembic.config import Config
from alembic.runtime.environment import EnvironmentContext
from alembic.runtime.migration import RevisionStep
from alembic.script import ScriptDirectory

from cdc_core.store.tables import SCHEMA_VERSION, STORE

MIGRATIONS = Path(__file__).parent / "migrations"
"""Alembic's scripts. The revisions are the versions: 1, 2, …"""

_ALONE = threading.Lock()
"""Held during an upgrade: `alembic.op` is one for the whole process."""


def upgrade(connection: sa.Connection, version: int | None) -> None:
    """Upgrade the store from *version* (None: no tables) in the transaction of *connection*.

    What counts is the version in `cdc_store`, which every cdc-core checks. Alembic's own table follows it.
    """
    script = ScriptDirectory(str(MIGRATIONS))

    def steps(_revision: object, _context: object) -> list[RevisionStep]:
        return script._upgrade_revs(str(SCHEMA_VERSION), "base" if version is None else str(version))

    with _ALONE, EnvironmentContext(Config(), script, fn=steps) as environment:
        environment.configure(connection=connection, version_table="cdc_migrations")
        if version is not None:
            environment.get_context().stamp(script, str(version))
        environment.run_migrations()
    connection.execute(sa.delete(STORE))
    connection.execute(sa.insert(STORE).values(version=SCHEMA_VERSION))
