"""At every resolved mark the changefeed has the rows that the tables had, however they are altered and written."""

from __future__ import annotations

import pytest
from cdc_testing.schema_load import play


@pytest.mark.slow
def test_every_mark_shows_one_moment_of_tables_that_are_altered_and_written(database: str) -> None:
    report = play(database, seed=1, statements=12)
    assert not report.faults
    assert report.altered.total() >= 12
    assert report.compared >= 8
