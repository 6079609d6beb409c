"""A store in a file, and one in PostgreSQL; nodes as processes, and what they deliver from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres
from cdc_testing.fixtures import fresh_database
from cdc_testing.nodes import Nodes

from cdc_core.store.opening import store_url
from cdc_core.store.progress import ProgressStore


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProgressStore]:
    postgresql = request.param == "postgresql"
    store = ProgressStore(
        str(request.getfixturevalue("database")) if postgresql else store_url(tmp_path_factory.mktemp("store"))
    )
    yield store
    store.close()


@pytest.fixture
def nodes(postgres_server: EmbeddedPostgres, tmp_path: Path) -> Iterator[Nodes]:
    """Nodes without Spark over a store in PostgreSQL; none has started."""
    with fresh_database(postgres_server) as store, Nodes(tmp_path / "nodes", store, spark=False) as nodes:
        yield nodes
