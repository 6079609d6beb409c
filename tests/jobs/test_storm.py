"""A short storm; `storm.py` makes longer ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from cdc_testing.node_storm import Storm

pytestmark = pytest.mark.slow


def test_jobs_move_off_a_node_that_is_cut_off_from_the_store(database: str, tmp_path: Path) -> None:
    with Storm(tmp_path, database, seed=1, jobs=2, lease_s=3) as storm:
        storm.rage(for_s=0, only=("cut",))
    assert storm.told.events.total() == 1
    assert all(rows > 0 for rows in storm.told.rows.values())
