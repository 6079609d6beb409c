"""A store in a file, and one in PostgreSQL; nodes as processes, and what they deliver from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres
from cdc_testing.fixtures import fresh_database
from cdc_testing.nodes import Nodes

from cdc_core.store.progress import ProgressStore


@pytest.fixture
def store(url: str) -> Iterator[ProgressStore]:
    with closing(ProgressStore(url)) as store:
        yield store


@pytest.fixture
def nodes(postgres_server: EmbeddedPostgres, tmp_path: Path) -> Iterator[Nodes]:
    """Nodes without Spark over a store in PostgreSQL; none has started."""
    with fresh_database(postgres_server) as store, Nodes(tmp_path / "nodes", store, spark=False) as nodes:
        yield nodes
