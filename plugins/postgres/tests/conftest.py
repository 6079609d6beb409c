"""Fixtures of the PostgreSQL source's tests."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from cdc_testing.postgres import Sql


@pytest.fixture
def sql(database: str) -> Iterator[Sql]:
    """A connection to the test's own database in autocommit mode."""
    with psycopg.connect(database, autocommit=True) as connection:
        yield connection
