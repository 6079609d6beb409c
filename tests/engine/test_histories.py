"""The beginnings of some histories of `histories.py`: JSON and Avro, with and without `diff`."""

from __future__ import annotations

from pathlib import Path

import pytest
from cdc_rangefeed_postgres.demo.server import EmbeddedPostgres
from cdc_testing.drawn_history import DrawnHistory
from cdc_testing.fixtures import fresh_database

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("seed", ["1/0", "1/2", "1/7", "2/0", "2/4"])
def test_a_consumer_has_the_rows_of_the_database_at_each_mark(
    seed: str, postgres_server: EmbeddedPostgres, tmp_path: Path
) -> None:
    with fresh_database(postgres_server) as database:
        history = DrawnHistory(database, tmp_path, seed=seed)
        history.run(60)
    assert history.counts["rows"] > 0
